// SPDX-License-Identifier: Apache-2.0
#include "model/load.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "device/buffer.h"
#include "kernels/backend.h"
#include "kernels/devices/devices.h"
#include "kernels/matrix.h"
#include "kernels/split/divided.h"
#include "kernels/reference/math.h"
#include "model/config/text_vectors.h"
#include "model/decoders/qwen_seeing.h"
#include "model/digest.h"
#include "model/family.h"
#include "model/planned_source.h"
#include "model/vision/load_tower.h"
#include "state/ids.h"
#include "tensor/codec.h"
#include "weights/memory.h"
#include "weights/recipe/recipe.h"

namespace reprise {
namespace {

// Tokens that guesses are made of: 31,000 of the 248,000 of Qwen3.5. Of what the bundled model
// tells 95 % is among the first 2,048 of its 6,144.
constexpr int64_t kCommonTokensMin = 2048;
constexpr int64_t kCommonPart = 8;

// One tensor of the plan with its place in the file and its type in memory.
struct Resolved {
  const PlannedTensor* plan = nullptr;
  const Checkpoint* from = nullptr;
  PlannedSource source;
  DType wanted = DType::kF32;  // of a matrix, by the file and the options
  DType dtype = DType::kF32;   // in memory
  DType values = DType::kF32;  // whose values these are: as they were in a file of that type

  size_t memory_bytes() const {
    return plan->is_matrix() ? RowBytes(dtype, plan->cols) * size_t(plan->row_count())
                             : size_t(plan->element_count()) * sizeof(float);
  }
};

// The contexts of all devices.
std::span<const OpContext> AllOf(const OpContext& context, const LoadOptions& options) {
  return options.devices != nullptr ? options.devices->all() : std::span(&context, 1);
}

class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const OpContext& context, const LoadOptions& options)
      : checkpoint_(checkpoint),
        context_(context),
        options_(options),
        all_(AllOf(context, options)),
        gguf_(checkpoint.format() == CheckpointFormat::kGguf) {}

  // Finds every tensor of the plan and checks it; those of a block that predicts further tokens in
  // `mtp`. Both must outlive this.
  Status Resolve(const TensorPlan& plan, const Checkpoint* mtp = nullptr);
  // Where the layers go, and that everything fits there.
  Result<Placement> ChoosePlacement(const StateSpec& state, int64_t context_tokens);
  Status Load(Digest* digest);

  const std::vector<Resolved>& tensors() const { return tensors_; }

 private:
  const OpContext& On(int device) const { return all_[size_t(device)]; }
  Backend& BackendOf(const PlannedTensor& plan) const {
    return *On(plan.routed ? placement_.OfExperts(plan.layer) : placement_.OfLayer(plan.layer))
                .backend;
  }
  // Types in the memory of the devices.
  void SetTypes();
  void WidenWhatIsExact();
  size_t BytesOf(const Resolved& tensor) const;
  std::vector<DeviceRoom> Rooms() const;
  Status CheckMemory(const std::vector<LayerBytes>& layers, size_t home,
                     const std::vector<DeviceRoom>& rooms, size_t state, int64_t tokens) const;
  Status CheckNothingIsLeft() const;
  Status LoadMatrix(const Resolved& tensor);
  void LoadVector(const Resolved& tensor);

  const Checkpoint& checkpoint_;
  const OpContext& context_;
  const LoadOptions& options_;
  const std::span<const OpContext> all_;
  const bool gguf_;
  Placement placement_;
  std::vector<Resolved> tensors_;
};

Status WeightLoader::Resolve(const TensorPlan& plan, const Checkpoint* mtp) {
  std::optional<MixedTypes> types;
  if (options_.weights) types.emplace(*options_.weights, plan);
  for (const PlannedTensor& tensor : plan.tensors()) {
    if (tensor.optional && (!gguf_ || checkpoint_.Find(tensor.gguf) == nullptr)) continue;
    const Checkpoint& from = tensor.mtp && mtp != nullptr ? *mtp : checkpoint_;
    REPRISE_ASSIGN(const PlannedSource source, PlannedSource::Find(from, tensor));
    DType dtype = source.dtype();
    if (tensor.is_matrix() && types && !IsQuantised(dtype)) dtype = types->TypeOf(tensor);
    tensors_.push_back({&tensor, &from, source, dtype, dtype, dtype});
  }
  SetTypes();
  return CheckNothingIsLeft();
}

void WeightLoader::SetTypes() {
  for (Resolved& tensor : tensors_) {
    const bool matrix = tensor.plan->is_matrix();
    tensor.dtype = matrix ? BackendOf(*tensor.plan).HeldAs(tensor.wanted) : tensor.wanted;
    tensor.values = tensor.dtype;
  }
  WidenWhatIsExact();
}

// F32 in memory where the file has 16 bits: what decides, and, where other matrices are quantised,
// what could not be, as its rows are no whole blocks. Both are small.
void WeightLoader::WidenWhatIsExact() {
  const bool quantised = std::any_of(tensors_.begin(), tensors_.end(), [](const Resolved& tensor) {
    return tensor.plan->is_matrix() && IsQuantised(tensor.dtype);
  });
  constexpr int64_t kBlock = 32;
  for (Resolved& tensor : tensors_) {
    const bool half = tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16;
    const bool narrow = tensor.plan->is_matrix() && tensor.plan->cols % kBlock != 0;
    if (half && (tensor.plan->decides || (quantised && narrow))) tensor.dtype = DType::kF32;
  }
}

// A tensor of a GGUF file that nothing reads would be a part of the model that is not computed.
// Folders have more in them than their model (what sees images, what predicts further tokens).
Status WeightLoader::CheckNothingIsLeft() const {
  if (!gguf_) return OkStatus();
  std::set<const StoredTensor*> used;
  int64_t blocks = 0;
  const auto block_of = [](const StoredTensor& tensor) {
    int64_t block = -1;
    if (tensor.name.starts_with("blk.")) {
      std::from_chars(tensor.name.data() + 4, tensor.name.data() + tensor.name.size(), block);
    }
    return block;
  };
  for (const Resolved& tensor : tensors_) {
    for (const StoredTensor* stored : tensor.source.stored()) {
      used.insert(stored);
      blocks = std::max(blocks, block_of(*stored) + 1);
    }
  }
  for (const StoredTensor& tensor : checkpoint_.tensors()) {
    // Behind the last block come those that predict further tokens.
    if (used.contains(&tensor) || block_of(tensor) >= blocks) continue;
    if (tensor.name == kRankTensor) continue;  // ReadTextVectors takes it
    // What hears, in the file of what sees.
    const bool hears = tensor.name.starts_with("a.") || tensor.name.starts_with("mm.a.");
    if (hears && checkpoint_.architecture() == "clip") continue;
    return Unimplemented("tensor " + Quoted(tensor.name) +
                         " is not known for this family: the model would be computed without it; "
                         "take a newer reprise, or the model's Hugging Face folder");
  }
  return OkStatus();
}

size_t WeightLoader::BytesOf(const Resolved& tensor) const {
  const PlannedTensor& plan = *tensor.plan;
  return plan.is_matrix()
             ? BackendOf(plan).MatrixBytes({tensor.dtype, plan.slices, plan.rows, plan.cols})
             : tensor.memory_bytes();
}

std::vector<DeviceRoom> WeightLoader::Rooms() const {
  std::vector<DeviceRoom> rooms;
  for (int device = 0; device < int(all_.size()); ++device) {
    Backend& backend = *On(device).backend;
    DeviceRoom room;
    room.name = options_.devices != nullptr ? options_.devices->name(device) : backend.name();
    room.gpu = room.name.starts_with("cuda");
    while (room.shares_with < device && rooms[size_t(room.shares_with)].name != room.name) {
      ++room.shares_with;
    }
    // Virtual devices of the CPU have what the machine has.
    const bool virtual_cpu = options_.devices != nullptr && !room.gpu;
    const AvailableMemory available =
        FindAvailableMemory(virtual_cpu ? HostMemory() : backend.memory());
    room.free = available.bytes;
    room.limited_by = available.limited_by;
    room.working = backend.working_bytes();
    rooms.push_back(room);
  }
  return rooms;
}

Result<Placement> WeightLoader::ChoosePlacement(const StateSpec& state, int64_t context_tokens) {
  // One sequence as long as will be asked for, and the state that it leaves behind.
  const auto tokens = static_cast<size_t>(std::max<int64_t>(context_tokens, 1));
  const size_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  int layer_count = 0;
  for (const Resolved& tensor : tensors_)
    layer_count = std::max(layer_count, tensor.plan->layer + 1);
  const auto measure = [&](size_t* home) {
    std::vector<LayerBytes> layers(static_cast<size_t>(layer_count));
    for (const Resolved& tensor : tensors_) {
      const int layer = tensor.plan->layer;
      size_t& bytes = layer < 0             ? *home
                      : tensor.plan->routed ? layers[size_t(layer)].experts
                                            : layers[size_t(layer)].rest;
      bytes += BytesOf(tensor);
    }
    for (const LayerState& layer : state.layers) {
      StateSpec alone;
      alone.layers.push_back(layer);
      layers[size_t(layer.layer)].state +=
          blocks * alone.kv_block_bytes() + 2 * alone.state_bytes();
    }
    return layers;
  };
  const std::vector<DeviceRoom> rooms = Rooms();
  size_t home = 0;
  std::vector<LayerBytes> layers = measure(&home);
  if (int(all_.size()) > 1) {
    REPRISE_ASSIGN(placement_, Place(layers, home, rooms, options_.placement));
    SetTypes();
    home = 0;
    layers = measure(&home);
  }
  const size_t states = blocks * state.kv_block_bytes() + 2 * state.state_bytes();
  REPRISE_TRY(CheckMemory(layers, home, rooms, states, int64_t(tokens)));
  return placement_;
}

// Everything that goes into one memory fits into it.
Status WeightLoader::CheckMemory(const std::vector<LayerBytes>& layers, size_t home,
                                 const std::vector<DeviceRoom>& rooms, size_t state,
                                 int64_t tokens) const {
  const std::vector<uint64_t> bytes = BytesByDevice(layers, home, rooms, placement_);
  for (size_t first = 0; first < rooms.size(); ++first) {
    if (size_t(rooms[first].shares_with) != first) continue;
    uint64_t needed = 0, working = 0;
    for (size_t i = 0; i < rooms.size(); ++i) {
      if (size_t(rooms[i].shares_with) != first) continue;
      needed += bytes[i];
      working += rooms[i].working;
    }
    AvailableMemory available = {rooms[first].free, rooms[first].limited_by};
    if (options_.memory_max != 0) available = {options_.memory_max, "the option --memory"};
    const bool alone = rooms.size() == 1;
    const std::string purpose =
        (alone ? "the weights (" + FormatBytes(needed - working - state) + "), the state of "
               : "what lies on " + rooms[first].name + ", with the state there of ") +
        std::to_string(tokens) + " tokens" + (alone ? " (" + FormatBytes(state) + ")" : "") +
        " and what a step computes in (" + FormatBytes(working) + ")";
    const Status fits = CheckFits(needed, purpose, available);
    if (!fits.ok()) return fits.Annotate(checkpoint_.path());
  }
  return OkStatus();
}

Status WeightLoader::Load(Digest* digest) {
  uint64_t total = 0;
  for (const Resolved& tensor : tensors_) total += tensor.source.bytes();
  Progress progress(total, options_.progress ? options_.progress : [](uint64_t, uint64_t) {});
  for (const Resolved& tensor : tensors_) {
    digest->Add(tensor.plan->gguf);
    digest->Add(NameOf(tensor.source.dtype()));
    digest->Add(NameOf(tensor.dtype));
    if (tensor.values != tensor.dtype) digest->Add(NameOf(tensor.values));
    for (const StoredTensor* stored : tensor.source.stored()) {
      if (stored->recipe == nullptr) {
        digest->AddBytes(context_.backend->host_threads(), stored->bytes);
        if (!stored->scales.empty()) {
          digest->AddBytes(context_.backend->host_threads(), stored->scales);
        }
        continue;
      }
      const Recipe& recipe = *stored->recipe;
      for (const int64_t number :
           {int64_t(recipe.kind), int64_t{recipe.bits}, int64_t{recipe.zero_shift},
            recipe.block_rows, recipe.block_cols}) {
        digest->Add(std::to_string(number));
      }
      for (const StoredPart* part : recipe.parts()) {
        digest->AddBytes(context_.backend->host_threads(), part->bytes);
      }
    }
    if (tensor.plan->is_matrix()) {
      REPRISE_TRY(LoadMatrix(tensor));
    } else {
      LoadVector(tensor);
    }
    for (const StoredTensor* stored : tensor.source.stored()) tensor.from->Release(*stored);
    progress.Advance(tensor.source.bytes());
  }
  return OkStatus();
}

// A row of the file as it lies in memory.
void ReadRow(const Resolved& tensor, int64_t row, std::byte* out) {
  if (tensor.values == tensor.dtype) return tensor.source.ReadRow(row, tensor.dtype, out);
  const int64_t cols = tensor.plan->cols;
  std::vector<std::byte> rounded(RowBytes(tensor.values, cols));
  tensor.source.ReadRow(row, tensor.values, rounded.data());
  DequantiseRow(tensor.values, rounded.data(), reinterpret_cast<float*>(out), cols);
}

Status WeightLoader::LoadMatrix(const Resolved& tensor) {
  const PlannedTensor& plan = *tensor.plan;
  Backend& backend = BackendOf(plan);
  const size_t row_bytes = RowBytes(tensor.dtype, plan.cols);
  const bool moved = plan.head_rows.order == HeadOrder::kQueryGate ||
                     plan.head_rows.order == HeadOrder::kPairs ||
                     (plan.head_rows.order == HeadOrder::kRotary && gguf_);
  const bool as_is =
      !moved && tensor.values == tensor.dtype && tensor.dtype == tensor.source.dtype();
  Buffer rearranged;
  const MatrixShape shape = {tensor.dtype, plan.slices, plan.rows, plan.cols};
  auto* const divides = dynamic_cast<DividesMatrices*>(&backend);
  const MatrixDivision division = {plan.slices > 1 && !plan.routed, plan.sections};
  REPRISE_ASSIGN(std::unique_ptr<PackedMatrix> packed,
                 divides != nullptr ? divides->MakeDivided(shape, division)
                                    : backend.MakeMatrix(shape));
  for (int64_t slice = 0; slice < plan.slices; ++slice) {
    const std::byte* source = as_is ? tensor.source.Contiguous(slice) : nullptr;
    if (source == nullptr) {
      if (slice == 0) {
        REPRISE_ASSIGN(rearranged, Buffer::Allocate(row_bytes * size_t(plan.rows)));
      }
      backend.host_threads().ParallelFor(plan.rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t from = FileRowOfMemoryRow(plan.head_rows, gguf_, slice * plan.rows + row);
          ReadRow(tensor, from, rearranged.data() + size_t(row) * row_bytes);
        }
      });
      source = rearranged.data();
    }
    REPRISE_TRY(backend.PackMatrix(packed.get(), slice, source, row_bytes));
  }
  *plan.matrix = Matrix(std::move(packed));
  return OkStatus();
}

void WeightLoader::LoadVector(const Resolved& tensor) {
  const PlannedTensor& plan = *tensor.plan;
  std::vector<float> values(size_t(plan.element_count()));
  for (int64_t row = 0; row < plan.row_count(); ++row) {
    tensor.source.ReadRow(row, DType::kF32,
                          reinterpret_cast<std::byte*>(values.data() + row * plan.cols));
  }
  std::vector<float>& out = *plan.vector;
  out.resize(values.size());
  const int64_t rows = plan.row_count();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < plan.cols; ++col) {
      const int64_t from =
          plan.head_rows.columns ? FileRowOfMemoryRow(plan.head_rows, gguf_, col) : col;
      const float value = values[size_t(row * plan.cols + from)];
      const int64_t to = plan.transposed ? col * rows + row : row * plan.cols + col;
      switch (plan.values) {
        case ValueForm::kPlain:
          out[size_t(to)] = value;
          break;
        case ValueForm::kOnePlus:
          out[size_t(to)] = gguf_ ? value : 1.0f + value;
          break;
        case ValueForm::kNegatedExp:
          out[size_t(to)] = gguf_ ? -value : float(reference::ExpDouble(double(value)));
          break;
      }
    }
  }
}

// Devices of one kind compute alike: then it does not matter on which a layer lies.
void AddDevices(std::span<const OpContext> all, const Placement& placement, Digest* digest) {
  const auto numerics = [&](int device) { return all[size_t(device)].backend->numerics(); };
  const std::string_view home = numerics(Placement::kHome);
  digest->Add(home);
  for (int layer = 0; layer < int(placement.layers.size()); ++layer) {
    const std::string_view of_layer = numerics(placement.OfLayer(layer));
    const std::string_view of_experts = numerics(placement.OfExperts(layer));
    if (of_layer == home && of_experts == home) continue;
    digest->Add("layer " + std::to_string(layer));
    digest->Add(of_layer);
    digest->Add(of_experts);
  }
}

// What a state depends on besides weights: the parameters of the model, the layout of the state
// and what the family says.
void AddNumerics(const FamilyModel& model, const ConfigReader& config, Digest* digest) {
  for (const auto& [key, value] : config.taken()) {
    digest->Add(key);
    digest->Add(value);
  }
  digest->Add(model.card().family);
  digest->Add(model.DescribeNumerics());
  for (const LayerState& layer : model.state_spec().layers) {
    std::string text = "layer";
    for (const int number : {layer.layer, int(layer.kind), layer.window}) {
      text.append(1, ' ').append(std::to_string(number));
    }
    for (const StateTensor& tensor : layer.tensors) {
      text.append(1, ' ').append(tensor.name).append(1, ' ').append(NameOf(tensor.dtype));
      for (const int64_t extent : tensor.shape) text.append(1, ' ').append(std::to_string(extent));
    }
    digest->Add(text);
  }
}

void CompleteCard(const std::vector<Resolved>& tensors, ModelCard* card) {
  size_t bytes_by_type[kDTypeCount] = {};
  for (const Resolved& tensor : tensors) {
    const PlannedTensor& plan = *tensor.plan;
    card->parameter_count += plan.element_count();
    if (!plan.is_matrix()) {
      card->weight_bytes += plan.vector->size() * sizeof(float);
      continue;
    }
    card->weight_bytes += plan.matrix->bytes();
    if (plan.role == TensorRole::kEmbedding) continue;
    const size_t active_bytes = size_t(double(tensor.memory_bytes()) * plan.active);
    card->step_bytes += active_bytes;
    size_t& of_type = bytes_by_type[size_t(tensor.dtype)];
    of_type += active_bytes;
    if (of_type >= bytes_by_type[size_t(card->main_type)]) card->main_type = tensor.dtype;
    (plan.role == TensorRole::kLayer ? card->layer_products : card->head_products) +=
        double(plan.element_count()) * plan.active;
  }
  card->state.token_cost += card->layer_products;
}

Status CheckKvType(const Backend& backend, DType kv) {
  if (backend.holds(kv)) return OkStatus();
  std::string others;
  for (const DType other : {DType::kF16, DType::kBF16, DType::kF32, DType::kQ8_0}) {
    if (!backend.holds(other)) continue;
    others += (others.empty() ? "" : ", ") + std::string(NameOf(other));
  }
  return FailedPrecondition("K/V of type " + std::string(NameOf(kv)) + " cannot be had on " +
                            std::string(backend.name()) + "; choose from: " + others);
}

// What the ops of a layer will be asked for, from the state that it declares.
StateSizes SizesOf(const LayerState& layer) {
  StateSizes sizes;
  for (const StateTensor& tensor : layer.tensors) {
    const std::vector<int64_t>& shape = tensor.shape;
    if (layer.kind != StateKind::kRecurrent) {
      (tensor.name == "v" ? sizes.value_dim : sizes.head_dim) = shape.back();
    } else if (tensor.name == "conv") {
      sizes.conv_reach = shape[0] + 1;
    } else if (shape.size() == 3) {
      sizes.matrix_keys = shape[1];
    } else if (shape.size() == 2) {
      sizes.channel_keys = shape[0];
    }
  }
  return sizes;
}

Status CheckSizes(const StateSpec& state, const StateSizes& most) {
  for (const LayerState& layer : state.layers) {
    const Status within = SizesOf(layer).Within(most);
    if (!within.ok()) return within.Annotate("layer " + std::to_string(layer.layer));
  }
  return OkStatus();
}

// Vectors go where what reads them computes.
Status UploadByDevice(std::span<const OpContext> all, const TensorPlan& plan, FamilyModel* model) {
  std::vector<std::vector<Vector*>> vectors(all.size());
  const Placement& placement = model->placement();
  for (const TensorPlan::OpVector& one : plan.vectors()) {
    const int device = one.routed ? placement.OfExperts(one.layer) : placement.OfLayer(one.layer);
    vectors[size_t(device)].push_back(one.vector);
  }
  for (size_t device = 0; device < all.size(); ++device) {
    REPRISE_ASSIGN(DeviceBuffer held,
                   UploadVectors(all[device].backend->memory(), vectors[device]));
    model->HoldVectors(std::move(held));
  }
  return OkStatus();
}

// How much of the state each memory has.
std::vector<double> ShareOut(const StateSpec& state, size_t memories) {
  const StateLayout layout(state);
  std::vector<double> shares;
  for (int memory = 0; memory < int(memories); ++memory) shares.push_back(layout.ShareOf(memory));
  return shares;
}

// Families that see.
constexpr std::string_view kSeeing[] = {"qwen3_5",      "qwen3_5_moe", "qwen3_vl",
                                        "qwen3_vl_moe", "gemma3",      "gemma4"};

// The tower at that place, if it is one for this model.
Result<std::shared_ptr<const VisionTower>> TowerOf(const Checkpoint& place, const Checkpoint& model,
                                                   const ModelCard& card,
                                                   std::span<const OpContext> all) {
  const OpContext& context = all.front();
  // Attention over whole pictures runs where the layers lie.
  const bool sees = std::all_of(all.begin(), all.end(), [&](const OpContext& one) {
    return one.backend->sees() || (&one != &context && !card.whole_pictures);
  });
  if (place.format() == CheckpointFormat::kGguf) {
    if (std::ranges::find(kSeeing, card.family) == std::end(kSeeing)) {
      return InvalidArgument("models of the family " + card.family + " do not see pictures here");
    }
    if (!sees) return Unimplemented("towers are not computed on this device; use --device cpu");
  }
  if (!sees) return std::shared_ptr<const VisionTower>();
  REPRISE_ASSIGN(std::shared_ptr<const VisionTower> tower, LoadTower(place, context));
  ConfigReader config(model);
  const int64_t taken = card.dim * (1 + ReadPictureLayers(&config));
  if (tower != nullptr && !card.family.starts_with(tower->card().family)) {
    return InvalidArgument("it is the tower of " + tower->card().family +
                           ", and the model's family is " + card.family);
  }
  if (tower != nullptr && tower->card().dim != taken) {
    return InvalidArgument(
        "its tower gives vectors of another width than the model's layers take (" +
        std::to_string(tower->card().dim) + ", not " + std::to_string(taken) + ")");
  }
  return tower;
}

}  // namespace

std::string HfTensorPrefix(const Checkpoint& checkpoint) {
  for (const std::string prefix :
       {"model.language_model.", "language_model.model.", "model.", "backbone."}) {
    for (const char* table : {"embed_tokens.weight", "embeddings.weight"}) {
      if (checkpoint.Find(prefix + table) != nullptr) return prefix;
    }
  }
  return "model.";
}

Result<DeviceBuffer> LoadPlan(const Checkpoint& checkpoint, const OpContext& context,
                              const TensorPlan& plan, Digest* digest, size_t* weight_bytes) {
  const LoadOptions options;
  WeightLoader loader(checkpoint, context, options);
  REPRISE_TRY(loader.Resolve(plan));
  const auto placement = loader.ChoosePlacement(StateSpec(), 0);
  if (!placement.ok()) return placement.status();
  REPRISE_TRY(loader.Load(digest));
  ModelCard card;
  CompleteCard(loader.tensors(), &card);
  *weight_bytes = card.weight_bytes;
  std::vector<Vector*> vectors;
  for (const TensorPlan::OpVector& one : plan.vectors()) vectors.push_back(one.vector);
  return UploadVectors(context.backend->memory(), vectors);
}

Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, const OpContext& context,
                                         const LoadOptions& options) {
  const std::span<const OpContext> all = AllOf(context, options);
  for (const OpContext& one : all) REPRISE_TRY(CheckKvType(*one.backend, options.kv));
  const bool gguf = checkpoint.format() == CheckpointFormat::kGguf;
  REPRISE_ASSIGN(const Family* family, FindFamily(gguf, checkpoint.architecture()));
  // What lies on several devices has no block that predicts further tokens: nobody asks it there.
  const bool mtp = options.mtp && options.devices == nullptr;
  auto made = MakeModel(checkpoint, {family, options.kv, options.context_tokens, mtp,
                                     mtp ? options.mtp_file : nullptr});
  if (!made.ok()) return made.status().Annotate(checkpoint.path());
  std::unique_ptr<FamilyModel> model = std::move(made->model);
  for (const OpContext& one : all) {
    const Status fits = CheckSizes(model->state_spec(), one.backend->sizes_max());
    if (!fits.ok()) return fits.Annotate(checkpoint.path());
  }
  ModelCard* card = model->mutable_card();
  card->family = family->name;
  if (options.context_tokens > 0) {
    card->context_length = std::min(card->context_length, options.context_tokens);
  }
  TensorPlan plan(HfTensorPrefix(checkpoint));
  model->DeclareTensors(&plan);

  WeightLoader loader(checkpoint, context, options);
  if (Status status = loader.Resolve(plan, made->mtp); !status.ok()) {
    return status.Annotate(checkpoint.path());
  }
  REPRISE_ASSIGN(Placement placement,
                 loader.ChoosePlacement(model->state_spec(),
                                        options.context_tokens > 0 ? card->context_length : 0));
  if (options.placed) options.placed(placement);
  Digest digest;
  AddDevices(all, placement, &digest);
  AddNumerics(*model, *made->config, &digest);
  model->SetPlacement(options.devices, std::move(placement));
  REPRISE_TRY(loader.Load(&digest));
  model->CompleteWeights();
  CompleteCard(loader.tensors(), card);
  card->digest = digest.Hex();
  if (card->mtp_state && context.backend->projects_part()) {
    const auto common = std::max(kCommonTokensMin, card->vocab_size / kCommonPart);
    if (common < card->vocab_size) card->common_tokens = int32_t(common);
  }
  model->Describe(plan, gguf, family->gguf_types);
  REPRISE_TRY(UploadByDevice(all, plan, model.get()));
  if (options.devices != nullptr) {
    JoinedMemory& memory = options.devices->memory();
    memory.SetShares(ShareOut(model->state_spec(), memory.count()));
  }
  if (options.tower) {
    const Checkpoint* place = gguf ? options.mmproj : &checkpoint;
    auto tower = place != nullptr ? TowerOf(*place, checkpoint, *card, all)
                                  : std::shared_ptr<const VisionTower>();
    if (!tower.ok()) {
      const Status status = tower.status().Annotate(place->path());
      if (!gguf || options.mmproj_needed) return status;
      Log(LogLevel::kWarning, "no pictures: " + status.message());
      tower = std::shared_ptr<const VisionTower>();
    }
    if (*tower != nullptr) card->weight_bytes += (*tower)->card().weight_bytes;
    model->HoldTower(std::move(*tower));
  }
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace reprise
