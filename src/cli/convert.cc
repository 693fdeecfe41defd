// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>
#include <string>

#include "cli/bundled_model.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "device/thread_pool.h"
#include "model/config/generation_defaults.h"
#include "model/config/text_vectors.h"
#include "model/export/gguf_export.h"
#include "model/export/gguf_vocabulary.h"
#include "model/family.h"
#include "model/weight_mix.h"
#include "text/vocab/file.h"
#include "weights/checkpoint.h"

namespace reprise::cli {
namespace {

struct Options {
  std::string model;
  std::string type = "bf16";
  std::string output;
  int threads = 0;
};

Status Run(const Options& options) {
  REPRISE_ASSIGN(const WeightMix mix, FindWeightMix(options.type));
  REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(options.model));
  if (checkpoint.format() != CheckpointFormat::kHuggingFace) {
    return InvalidArgument(options.model + " is not a Hugging Face folder");
  }
  REPRISE_ASSIGN(const Family* family, FindFamily(false, checkpoint.architecture()));
  REPRISE_ASSIGN(const MadeModel made,
                 MakeModel(checkpoint, {family, DType::kF16, 0, /*mtp=*/true}));
  FamilyModel* const model = made.model.get();
  CheckpointSource source(checkpoint);
  ThreadPool pool(options.threads);
  ProgressBar bar("writing " + options.output);
  GgufWriter writer;
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(options.model) / "tokenizer.json", error)) {
    REPRISE_ASSIGN(const TokenizerFolder folder, ReadTokenizerFolder(options.model));
    REPRISE_TRY(PutVocabulary(folder.vocab,
                              folder.chat_templates.empty() ? "" : folder.chat_templates[0].source,
                              model->vocab_size(), &writer));
  }
  REPRISE_ASSIGN(const GenerationDefaults defaults, ReadGenerationDefaults(checkpoint));
  PutGenerationDefaults(defaults, &writer);
  REPRISE_ASSIGN(const TextVectors vectors, ReadTextVectors(checkpoint, model->card().dim));
  const std::string_view architecture = model->gguf_architecture();
  PutPooling(vectors.pooling, architecture.empty() ? family->gguf_types[0] : architecture, &writer);
  GgufExport request;
  request.family = family;
  request.model = model;
  request.source = &source;
  request.mix = mix;
  request.name = std::filesystem::path(options.model).lexically_normal().filename().string();
  request.path = options.output;
  request.progress = [&bar](uint64_t done, uint64_t total) { bar.Show(done, total); };
  return ExportGguf(request, &writer, &pool);
}

}  // namespace

void DefineConvert(Flags* flags) {
  auto options = std::make_shared<Options>();
  flags->Add("MODEL,-m,--model", &options->model, "Hugging Face folder to convert",
             {.required = true});
  flags->Add("--type", &options->type, "type of the weights: " + WeightMixNames());
  flags->Add("-o,--out", &options->output, "GGUF file to write", {.required = true});
  flags->Add("--threads", &options->threads, "default: one per core", {.min = 1, .max = 1024});
  flags->SetAction([options]() -> Status {
    REPRISE_ASSIGN(options->model, FindModel(options->model));
    return Run(*options);
  });
}

}  // namespace reprise::cli
