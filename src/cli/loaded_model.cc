// SPDX-License-Identifier: Apache-2.0
#include "cli/loaded_model.h"

#include <algorithm>
#include <utility>

#include "cache/cache_options.h"
#include "cli/bundled_model.h"
#include "cli/terminal.h"
#include "kernels/make_backend.h"
#include "model/load.h"
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

void AddModelOptions(Flags* flags, ModelOptions* options) {
  flags->SetHeading(kModelHeading);
  flags->Add("MODEL,-m,--model", &options->path,
             "GGUF file, Hugging Face folder, or hf:ORG/REPO[:QUANTISATION] of the hub "
             "(default: the bundled model)");
  flags->Add("--threads", &options->threads, "threads that compute (default: one per CPU)",
             {.min = 1, .max = kThreadsMax});
  flags->Add("--device", &options->device, "what computes: auto, cpu, cuda or cuda:NUMBER");
  flags->Add("--vram-mib", &options->vram_mib,
             "maximum MiB of GPU memory to use (default: what is free)",
             {.min = 1, .max = 1 << 30});
  flags->Add("--kv", &options->kv, "type of K/V in memory: f16, bf16, f32 or q8_0",
             {.one_of = {"f16", "bf16", "f32", "q8_0"}});
  flags->Add("--weights", &options->weights,
             "convert 16- and 32-bit weights while loading to one of: " + WeightMixNames());
  flags->SetHeading(Flags::kOptions);
}

LoadedModel::LoadedModel(const ModelOptions& options, std::unique_ptr<Backend> backend)
    : options_(options), backend_(std::move(backend)), scratch_(backend_->memory()) {}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(const ModelOptions& options) {
  REPRISE_ASSIGN(const std::string path, FindModel(options.path));
  REPRISE_ASSIGN(std::unique_ptr<Backend> backend,
                 MakeBackend({options.device, options.threads,
                              static_cast<size_t>(options.vram_mib.value_or(0)) << 20}));
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(options, std::move(backend)));
  loaded->path_ = path;
  REPRISE_ASSIGN(Checkpoint checkpoint, OpenCheckpoint(path));
  loaded->checkpoint_.emplace(std::move(checkpoint));
  REPRISE_TRY(loaded->Read());
  loaded->card_ = loaded->model_->card();
  loaded->adaptable_ = loaded->model_->adaptable();
  return loaded;
}

Status LoadedModel::Read() {
  LoadOptions load;
  load.kv = KvType(options_.kv);
  load.context_tokens = options_.context_tokens;
  load.tower = options_.tower;
  if (!options_.weights.empty()) {
    REPRISE_ASSIGN(load.weights, FindWeightMix(options_.weights));
  }
  ProgressBar bar("loading " + path_);
  load.progress = [&bar](uint64_t done, uint64_t total) { bar.Show(done, total); };
  REPRISE_ASSIGN(model_, LoadModel(*checkpoint_, context(), load));
  return OkStatus();
}

void LoadedModel::Sleep() {
  model_.reset();
  scratch_ = ScratchArena(backend_->memory());
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
  return wanted > 0 ? wanted : &backend_->memory() == &HostMemory() ? 16 : 256;
}

SchedulerOptions LoadedModel::Steps(int parallel, int gap_ms) {
  const bool host = &backend().memory() == &HostMemory();
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
