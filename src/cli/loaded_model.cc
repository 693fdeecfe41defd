// SPDX-License-Identifier: Apache-2.0
#include "cli/loaded_model.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "cache/cache_options.h"
#include "cli/bundled_model.h"
#include "cli/terminal.h"
#include "kernels/devices/step_keeper.h"
#include "kernels/make_backend.h"
#include "model/config/reader.h"
#include "model/load.h"
#include "model/vision/tower.h"
#include "model/weight_mix.h"

namespace reprise::cli {
namespace {

constexpr int kThreadsMax = 1024;

}  // namespace

DType KvType(std::string_view name) { return FindDType(name).value_or(DType::kF16); }

int32_t DefaultSnapshotGap(const StateSpec& state) {
  constexpr size_t kSmallStateBytes = size_t{2} << 20;
  constexpr int32_t kSmallStateGap = 16;
  return state.state_bytes() <= kSmallStateBytes ? kSmallStateGap : CacheOptions().snapshot_gap;
}

void AddModelOptions(Flags* flags, ModelOptions* options, std::vector<std::string>* paths) {
  flags->SetHeading(kModelHeading);
  const std::string help =
      "GGUF file, Hugging Face folder, or hf:ORG/REPO[:QUANTISATION] of the hub (default: the "
      "bundled model)";
  if (paths != nullptr) {
    flags->Add("MODEL,-m,--model", paths, help + "; several share the memory");
  } else {
    flags->Add("MODEL,-m,--model", &options->path, help);
  }
  flags->Add("--threads", &options->threads, "threads that compute (default: one per core)",
             {.min = 1, .max = kThreadsMax});
  flags->Add("--device", &options->device, "what computes: auto, cpu, cuda or cuda:NUMBER");
  flags->Add("--vram-mib", &options->vram_mib,
             "maximum MiB of GPU memory to use (default: what is free)",
             {.min = 1, .max = 1 << 30});
  flags->Add("--kv", &options->kv, "type of K/V in memory: f16, bf16, f32 or q8_0",
             {.one_of = {"f16", "bf16", "f32", "q8_0"}});
  flags->Add("--weights", &options->weights,
             "convert 16- and 32-bit weights while loading to one of: " + WeightMixNames());
  flags->SetHeading("Several devices (docs/devices.md)");
  flags->Add("--devices", &options->devices,
             "several devices, as in cuda:0,cuda:1,cpu: the layers of the model are divided among "
             "them, in this order; auto: all GPUs, and the CPU for what does not fit there");
  flags->Add("--tensor-parallel", &options->tensor_parallel,
             "with --devices of one kind: all of them compute every layer together");
  flags->Add("--layers", &options->layers,
             "with --devices: how many layers lie on each (default: as memory allows)");
  flags->Add("--gpu-layers", &options->gpu_layers,
             "with --devices: how many layers lie on GPUs; the others on the CPU (default: all "
             "that fit)",
             {.min = 0, .max = 4096});
  flags->Add("--cpu-experts", &options->cpu_experts,
             "with --devices: routed experts lie in the memory of the CPU: of so many layers, "
             "all or none of them, or auto, as many as must");
  flags->SetHeading(Flags::kOptions);
}

namespace {

Result<int> CpuExperts(const std::string& text) {
  if (text.empty() || text == "none") return 0;
  if (text == "auto") return PlacementOptions::kAllThatMustBe;
  if (text == "all") return PlacementOptions::kAll;
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count >= 0) return count;
  return InvalidArgument("--cpu-experts is auto, all or a number of layers, not '" + text + "'");
}

// What lies where: "layers 0 to 19 on cuda:0, 20 to 35 on cpu; the experts of ...".
std::string DescribePlacement(const Placement& placement, const Devices& devices) {
  std::string text;
  const int count = static_cast<int>(placement.layers.size());
  const auto name = [&](int device) {
    return "device " + std::to_string(device) + " (" + std::string(devices.name(device)) + ")";
  };
  for (int begin = 0, end = 0; begin < count; begin = end) {
    const int device = placement.OfLayer(begin);
    while (end < count && placement.OfLayer(end) == device) ++end;
    text += (text.empty() ? "layers " : ", ") + std::to_string(begin) + " to " +
            std::to_string(end - 1) + " on " + name(device);
  }
  int apart = 0, there = 0;
  for (int layer = 0; layer < count; ++layer) {
    if (placement.OfExperts(layer) == placement.OfLayer(layer)) continue;
    ++apart;
    there = placement.OfExperts(layer);
  }
  if (apart > 0) {
    text += "; the routed experts of " + std::to_string(apart) + " layers on " + name(there);
  }
  return text + "; the vocabulary on " + name(Placement::kHome);
}

// GGUF files of towers in the folder of a model, by their names.
std::vector<std::string> FindMmprojs(const std::string& model) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  std::error_code error;
  const fs::path parent = fs::path(model).parent_path();
  fs::directory_iterator entry(parent.empty() ? fs::path(".") : parent, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    if (name.find("mmproj") == name.npos || !name.ends_with(".gguf")) continue;
    found.push_back(entry->path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Status LoadedModel::OpenDevices() {
  DeviceOptions options{options_.device, options_.threads,
                        static_cast<size_t>(options_.vram_mib.value_or(0)) << 20};
  const bool placed =
      !options_.layers.empty() || options_.gpu_layers || !options_.cpu_experts.empty();
  if (options_.tensor_parallel && placed) {
    return InvalidArgument(
        "--layers, --gpu-layers and --cpu-experts divide layers, and --tensor-parallel what is in "
        "each of them: leave one out");
  }
  if (options_.tensor_parallel) options.split = Devices::Split::kRows;
  if (!options_.devices.empty()) {
    REPRISE_ASSIGN(devices_, MakeDevices(options_.devices, options));
    context_ = devices_->at(0);
    return OkStatus();
  }
  if (placed || options_.tensor_parallel) {
    return InvalidArgument(
        "--layers, --gpu-layers, --cpu-experts and --tensor-parallel say what lies on which of "
        "several devices: name them with --devices, as in --devices cuda:0,cpu");
  }
  REPRISE_ASSIGN(backend_, MakeBackend(options));
  scratch_ = ScratchArena(backend_->memory());
  context_ = {backend_.get(), &scratch_};
  return OkStatus();
}

// Of a GGUF model: the file that was named, or the one beside it.
Status LoadedModel::OpenMmproj() {
  if (checkpoint_->format() != CheckpointFormat::kGguf) {
    if (options_.mmproj.empty()) return OkStatus();
    return InvalidArgument("--mmproj is for GGUF models: a folder has its tower in it");
  }
  std::string path;
  if (!options_.mmproj.empty()) {
    REPRISE_ASSIGN(path, FindModel(options_.mmproj));
  } else if (const std::vector<std::string> found = FindMmprojs(path_); found.size() == 1) {
    path = found[0];
  } else if (found.size() > 1) {
    Log(LogLevel::kWarning, "no pictures: " + std::to_string(found.size()) +
                                " towers lie beside the model; name one with --mmproj, as in "
                                "--mmproj " +
                                found[0]);
  }
  if (path.empty()) return OkStatus();
  auto opened = OpenCheckpoint(path);
  if (!opened.ok()) {
    if (!options_.mmproj.empty()) return opened.status();
    Log(LogLevel::kWarning, "no pictures: " + opened.status().message());
    return OkStatus();
  }
  mmproj_.emplace(std::move(*opened));
  return OkStatus();
}

// llama.cpp's converter names a file that holds this block alone after the model's.
Status LoadedModel::OpenMtp() {
  const std::filesystem::path file(path_);
  const std::filesystem::path beside = file.parent_path() / ("mtp-" + file.filename().string());
  std::error_code absent;
  if (!path_.ends_with(".gguf") || !std::filesystem::exists(beside, absent)) return OkStatus();
  REPRISE_ASSIGN(Checkpoint block, OpenCheckpoint(beside.string()));
  mtp_.emplace(std::move(block));
  return OkStatus();
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(const ModelOptions& options) {
  REPRISE_ASSIGN(const std::string path, FindModel(options.path));
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(options));
  REPRISE_TRY(loaded->OpenDevices());
  loaded->path_ = path;
  REPRISE_ASSIGN(Checkpoint checkpoint, OpenCheckpoint(path));
  loaded->checkpoint_.emplace(std::move(checkpoint));
  if (options.tower) REPRISE_TRY(loaded->OpenMmproj());
  if (loaded->takes_mtp()) REPRISE_TRY(loaded->OpenMtp());
  REPRISE_TRY(loaded->Read());
  loaded->card_ = loaded->model_->card();
  loaded->adaptable_ = loaded->model_->adaptable();
  return loaded;
}

// A GPU has no drafts by default (cli/draft/draft_model.h).
bool LoadedModel::takes_mtp() const {
  if (options_.mtp != ModelOptions::Mtp::kByDefault) {
    return options_.mtp == ModelOptions::Mtp::kAlways;
  }
  return !context_.backend->chooses();
}

Result<TokenId> LoadedModel::FindPictureToken(const Tokenizer& tokenizer) const {
  const VisionTower* tower = model().tower();
  if (tower == nullptr) return -1;
  const std::string name(tower->card().token);
  int64_t token = tokenizer.FindToken(name);
  if (checkpoint().format() == CheckpointFormat::kHuggingFace) {
    ConfigReader config(checkpoint());
    const bool index = config.Has({"image_token_index", ""});
    token =
        config.Int({index ? "image_token_index" : "image_token_id", ""}, {0, card_.vocab_size - 1});
    REPRISE_TRY(config.status());
  }
  if (token < 0) {
    return InvalidArgument("the vocabulary has no " + name +
                           ", which stands for pictures; --ignore-images leaves the tower out");
  }
  return static_cast<TokenId>(token);
}

Status LoadedModel::Read() {
  LoadOptions load;
  // Weights that come back find their state there, which is not to be counted twice; whoever brings
  // them has made room, and a device that has none after all says so.
  const bool again = !card_.digest.empty();
  if (again && &memory() != &HostMemory()) load.memory_max = SIZE_MAX;
  load.kv = KvType(options_.kv);
  load.context_tokens = options_.context_tokens;
  load.tower = options_.tower;
  load.mmproj = mmproj_ ? &*mmproj_ : nullptr;
  load.mmproj_needed = !options_.mmproj.empty();
  load.mtp = takes_mtp();
  load.mtp_file = mtp_ ? &*mtp_ : nullptr;
  if (!options_.weights.empty()) {
    REPRISE_ASSIGN(load.weights, FindWeightMix(options_.weights));
  }
  load.devices = devices_.get();
  load.placement.layers = options_.layers;
  load.placement.gpu_layers = options_.gpu_layers.value_or(-1);
  REPRISE_ASSIGN(load.placement.cpu_experts,
                 CpuExperts(options_.cpu_experts.empty() && options_.devices == "auto" &&
                                    !options_.tensor_parallel
                                ? "auto"
                                : options_.cpu_experts));
  if (devices_ != nullptr && devices_->split()) {
    Log(LogLevel::kInfo, "every layer on " + std::string(context_.backend->name()));
  } else if (devices_ != nullptr) {
    load.placed = [this](const Placement& placement) {
      Log(LogLevel::kInfo, DescribePlacement(placement, *devices_));
    };
  }
  ProgressBar bar("loading " + path_);
  load.progress = [&](uint64_t done, uint64_t total) {
    bar.Show(done, total);
    if (options_.progress) options_.progress(done, total);
  };
  REPRISE_ASSIGN(model_, LoadModel(*checkpoint_, context(), load));
  return OkStatus();
}

void LoadedModel::Sleep() {
  model_.reset();
  if (devices_ != nullptr) {
    devices_->DropScratch();
  } else {
    ForgetSteps(*backend_);
    scratch_ = ScratchArena(backend_->memory());
  }
}

Status LoadedModel::Wake() {
  REPRISE_TRY(Read());
  if (model_->card().digest == card_.digest) return OkStatus();
  Sleep();
  return FailedPrecondition(path_ + " was changed while it was served; start the server again");
}

SamplingParams DefaultSampling() {
  SamplingParams params;
  params.temperature = 0.7f;
  params.top_p = 0.95f;
  return params;
}

void Apply(const GenerationDefaults& defaults, SamplingParams* params) {
  params->temperature = defaults.temperature.value_or(params->temperature);
  params->top_k = defaults.top_k.value_or(params->top_k);
  params->top_p = defaults.top_p.value_or(params->top_p);
  params->min_p = defaults.min_p.value_or(params->min_p);
  params->repetition_penalty = defaults.repetition_penalty.value_or(params->repetition_penalty);
}

int LoadedModel::Parallel(int wanted) const {
  // A GPU's step of 64 sequences takes hardly three times as long as one of a single one.
  return wanted > 0 ? wanted : &context_.backend->memory() == &HostMemory() ? 16 : 256;
}

SchedulerOptions LoadedModel::Steps(int parallel, int gap_ms) {
  const bool host = &memory() == &HostMemory();
  SchedulerOptions steps;
  // Every stream has its row in every step, with room for prompts beside them.
  steps.rows_max = std::max(backend().step_rows(), parallel + 256);
  steps.gap_ms_max = gap_ms > 0 ? gap_ms : host ? 200 : 50;
  if (host) return steps;
  // A GPU's step hardly grows with a few hundred rows: the gap alone bounds what streams wait for.
  steps.slow_down_max = 0;
  steps.rows_alone = 512;
  steps.idle_rows_max = 1024;
  return steps;
}

}  // namespace reprise::cli
