// SPDX-License-Identifier: Apache-2.0
#include "model/load.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "device/buffer.h"
#include "kernels/backend.h"
#include "kernels/matrix.h"
#include "kernels/reference/math.h"
#include "model/config/text_vectors.h"
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

// One tensor of the plan with its place in the file and its type in memory.
struct Resolved {
  const PlannedTensor* plan = nullptr;
  PlannedSource source;
  DType dtype = DType::kF32;   // in memory
  DType values = DType::kF32;  // whose values these are: as they were in a file of that type

  size_t memory_bytes() const {
    return plan->is_matrix() ? RowBytes(dtype, plan->cols) * size_t(plan->row_count())
                             : size_t(plan->element_count()) * sizeof(float);
  }
};

class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const OpContext& context, const LoadOptions& options)
      : checkpoint_(checkpoint),
        context_(context),
        options_(options),
        gguf_(checkpoint.format() == CheckpointFormat::kGguf) {}

  // Finds every tensor of the plan and checks it. `plan` must outlive this.
  Status Resolve(const TensorPlan& plan);
  Status CheckMemory(const StateSpec& state, int64_t context_tokens) const;
  Status Load(Digest* digest);

  const std::vector<Resolved>& tensors() const { return tensors_; }

 private:
  void WidenWhatIsExact();
  Status CheckNothingIsLeft() const;
  Status LoadMatrix(const Resolved& tensor);
  void LoadVector(const Resolved& tensor);

  const Checkpoint& checkpoint_;
  const OpContext& context_;
  const LoadOptions& options_;
  const bool gguf_;
  std::vector<Resolved> tensors_;
};

Status WeightLoader::Resolve(const TensorPlan& plan) {
  std::optional<MixedTypes> types;
  if (options_.weights) types.emplace(*options_.weights, plan);
  for (const PlannedTensor& tensor : plan.tensors()) {
    if (tensor.optional && (!gguf_ || checkpoint_.Find(tensor.gguf) == nullptr)) continue;
    REPRISE_ASSIGN(const PlannedSource source, PlannedSource::Find(checkpoint_, tensor));
    DType dtype = source.dtype();
    if (tensor.is_matrix() && types && !IsQuantised(dtype)) dtype = types->TypeOf(tensor);
    if (tensor.is_matrix()) dtype = context_.backend->HeldAs(dtype);
    tensors_.push_back({&tensor, source, dtype, dtype});
  }
  WidenWhatIsExact();
  return CheckNothingIsLeft();
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
    return Unimplemented("tensor " + Quoted(tensor.name) +
                         " is not known for this family: the model would be computed without it; "
                         "take a newer reprise, or the model's Hugging Face folder");
  }
  return OkStatus();
}

Status WeightLoader::CheckMemory(const StateSpec& state, int64_t context_tokens) const {
  size_t weights = 0;
  for (const Resolved& tensor : tensors_) {
    const PlannedTensor& plan = *tensor.plan;
    weights +=
        plan.is_matrix()
            ? context_.backend->MatrixBytes({tensor.dtype, plan.slices, plan.rows, plan.cols})
            : tensor.memory_bytes();
  }
  // One sequence as long as will be asked for, and the state that it leaves behind.
  const auto tokens = static_cast<size_t>(std::max<int64_t>(context_tokens, 1));
  const size_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  const size_t states = blocks * state.kv_block_bytes() + 2 * state.state_bytes();
  const size_t working = context_.backend->working_bytes();
  const size_t needed = weights + states + working;
  AvailableMemory available = FindAvailableMemory(context_.backend->memory());
  if (options_.memory_max != 0) available = {options_.memory_max, "the option --memory"};
  const Status fits = CheckFits(needed,
                                "the weights (" + FormatBytes(weights) + "), the state of " +
                                    std::to_string(tokens) + " tokens (" + FormatBytes(states) +
                                    ") and what a step computes in (" + FormatBytes(working) + ")",
                                available);
  return fits.ok() ? fits : fits.Annotate(checkpoint_.path());
}

Status WeightLoader::Load(Digest* digest) {
  uint64_t total = 0;
  for (const Resolved& tensor : tensors_) total += tensor.source.bytes();
  Progress progress(
      total, options_.progress ? options_.progress : [](uint64_t, uint64_t) {});
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
    for (const StoredTensor* stored : tensor.source.stored()) checkpoint_.Release(*stored);
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
  const size_t row_bytes = RowBytes(tensor.dtype, plan.cols);
  const bool moved = plan.head_rows.order == HeadOrder::kQueryGate ||
                     plan.head_rows.order == HeadOrder::kPairs ||
                     (plan.head_rows.order == HeadOrder::kRotary && gguf_);
  const bool as_is =
      !moved && tensor.values == tensor.dtype && tensor.dtype == tensor.source.dtype();
  Buffer rearranged;
  REPRISE_ASSIGN(std::unique_ptr<PackedMatrix> packed,
                 context_.backend->MakeMatrix({tensor.dtype, plan.slices, plan.rows, plan.cols}));
  for (int64_t slice = 0; slice < plan.slices; ++slice) {
    const std::byte* source = as_is ? tensor.source.Contiguous(slice) : nullptr;
    if (source == nullptr) {
      if (slice == 0) {
        REPRISE_ASSIGN(rearranged, Buffer::Allocate(row_bytes * size_t(plan.rows)));
      }
      context_.backend->host_threads().ParallelFor(plan.rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t from = FileRowOfMemoryRow(plan.head_rows, gguf_, slice * plan.rows + row);
          ReadRow(tensor, from, rearranged.data() + size_t(row) * row_bytes);
        }
      });
      source = rearranged.data();
    }
    REPRISE_TRY(context_.backend->PackMatrix(packed.get(), slice, source, row_bytes));
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

// What a state depends on besides weights: the parameters of the model, the layout of the state
// and what the family says.
void AddNumerics(const Backend& backend, const FamilyModel& model, const ConfigReader& config,
                 Digest* digest) {
  digest->Add(backend.numerics());
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
  REPRISE_TRY(loader.CheckMemory(StateSpec(), 0));
  REPRISE_TRY(loader.Load(digest));
  ModelCard card;
  CompleteCard(loader.tensors(), &card);
  *weight_bytes = card.weight_bytes;
  return UploadVectors(context.backend->memory(), plan.vectors());
}

Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, const OpContext& context,
                                         const LoadOptions& options) {
  REPRISE_TRY(CheckKvType(*context.backend, options.kv));
  const bool gguf = checkpoint.format() == CheckpointFormat::kGguf;
  REPRISE_ASSIGN(const Family* family, FindFamily(gguf, checkpoint.architecture()));
  ConfigReader config(checkpoint);
  config.set_context_tokens(options.context_tokens);
  auto made = family->make(&config, options.kv);
  if (!made.ok()) return made.status().Annotate(checkpoint.path());
  std::unique_ptr<FamilyModel> model = std::move(*made);
  if (Status fits = CheckSizes(model->state_spec(), context.backend->sizes_max()); !fits.ok()) {
    return fits.Annotate(checkpoint.path());
  }
  ModelCard* card = model->mutable_card();
  card->family = family->name;
  if (options.context_tokens > 0) {
    card->context_length = std::min(card->context_length, options.context_tokens);
  }
  TensorPlan plan(HfTensorPrefix(checkpoint));
  model->DeclareTensors(&plan);

  WeightLoader loader(checkpoint, context, options);
  if (Status status = loader.Resolve(plan); !status.ok()) {
    return status.Annotate(checkpoint.path());
  }
  REPRISE_TRY(loader.CheckMemory(model->state_spec(),
                                 options.context_tokens > 0 ? card->context_length : 0));
  Digest digest;
  AddNumerics(*context.backend, *model, config, &digest);
  REPRISE_TRY(loader.Load(&digest));
  model->CompleteWeights();
  CompleteCard(loader.tensors(), card);
  card->digest = digest.Hex();
  model->Describe(plan, gguf, family->gguf_types);
  REPRISE_ASSIGN(DeviceBuffer vectors, UploadVectors(context.backend->memory(), plan.vectors()));
  model->HoldVectors(std::move(vectors));
  if (options.tower) {
    auto tower = LoadTower(checkpoint, context);
    if (!tower.ok()) return tower.status().Annotate(checkpoint.path());
    if (*tower != nullptr && (*tower)->card().dim != card->dim) {
      return InvalidArgument(checkpoint.path() +
                             ": its tower gives vectors of another width than its layers take");
    }
    if (*tower != nullptr) card->weight_bytes += (*tower)->card().weight_bytes;
    model->HoldTower(std::move(*tower));
  }
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace reprise
