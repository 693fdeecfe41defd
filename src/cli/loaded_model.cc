// SPDX-License-Identifier: Apache-2.0
#include "cli/loaded_model.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "cli/terminal.h"
#include "kernels/cpu/dispatch.h"
#include "model/load.h"
#include "model/weight_mix.h"

namespace reprise::cli {
namespace {

constexpr int kThreadsMax = 1024;

}  // namespace

void AddModelOptions(CLI::App* app, ModelOptions* options) {
  app->add_option("-m,--model", options->path, "GGUF file or Hugging Face folder")->required();
  app->add_option("--threads", options->threads, "threads to compute with (default: one per CPU)")
      ->check(CLI::Range(1, kThreadsMax));
  app->add_option("--kv", options->kv, "type of K/V in memory: f16 (default) or f32")
      ->check(CLI::IsMember({"f16", "f32"}));
  app->add_option("--weights", options->weights,
                  "convert 16- and 32-bit weights while loading to one of: " + WeightMixNames());
}

LoadedModel::LoadedModel(Checkpoint checkpoint, int threads)
    : checkpoint_(std::move(checkpoint)), pool_(threads), table_(&cpu::ActiveTable()) {}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(const ModelOptions& options) {
  LoadOptions load;
  load.kv = options.kv == "f32" ? DType::kF32 : DType::kF16;
  if (!options.weights.empty()) {
    REPRISE_ASSIGN(load.weights, FindWeightMix(options.weights));
  }
  REPRISE_ASSIGN(Checkpoint checkpoint, OpenCheckpoint(options.path));
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(std::move(checkpoint), options.threads));
  ProgressBar bar("loading " + options.path);
  load.progress = [&bar](uint64_t done, uint64_t total) { bar.Show(done, total); };
  REPRISE_ASSIGN(loaded->model_, LoadModel(loaded->checkpoint_, loaded->context(), load));
  return loaded;
}

}  // namespace reprise::cli
