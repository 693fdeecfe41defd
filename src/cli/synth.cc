// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_writer.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "device/thread_pool.h"
#include "model/export/gguf_export.h"
#include "model/export/gguf_vocabulary.h"
#include "model/family.h"
#include "model/weight_mix.h"
#include "text/vocab/file.h"

namespace reprise::cli {
namespace {

struct Options {
  std::string family;
  std::string like;
  std::vector<std::string> changes;  // "name=value"
  std::string type = "q8_0";
  std::string output;
  std::string tokenizer;
  uint64_t seed = 1;
  int threads = 0;
  bool repeated = false;
  bool mtp = false;
};

struct Geometry {
  const Family* family = nullptr;
  const PublishedSize* size = nullptr;
};

// "Qwen3-0.6B", "qwen3-0.6b" and, with the family given, "0.6B" name the same size.
bool NamesSize(std::string_view asked, std::string_view name) {
  const auto equal = [](std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
      return std::tolower(static_cast<unsigned char>(x)) ==
             std::tolower(static_cast<unsigned char>(y));
    });
  };
  return equal(asked, name) || equal(asked, name.substr(name.rfind('-') + 1));
}

Result<Geometry> FindGeometry(const Options& options) {
  const Family* only = nullptr;
  if (!options.family.empty()) {
    REPRISE_ASSIGN(only, FindFamilyByName(options.family));
  }
  std::string known;
  for (const Family* const* family = kFamilies; *family != nullptr; ++family) {
    if (only != nullptr && *family != only) continue;
    for (const PublishedSize& size : (*family)->published) {
      if (NamesSize(options.like, size.name)) return Geometry{*family, &size};
      if (!known.empty()) known += ", ";
      known += size.name;
    }
  }
  return NotFound("there is no geometry '" + options.like + "' (known: " + known + ")");
}

// `config` with its members replaced, or new ones added, as `changes` says.
Result<std::string> ChangeConfig(std::string_view config, const std::vector<std::string>& changes) {
  REPRISE_ASSIGN(const JsonDocument document, JsonDocument::Parse(config));
  const auto name_of = [](std::string_view change) { return change.substr(0, change.find('=')); };
  std::string changed;
  JsonWriter json(&changed);
  json.BeginObject();
  for (const JsonValue::Member& member : document.root().members()) {
    const bool kept = std::none_of(changes.begin(), changes.end(), [&](const std::string& change) {
      return name_of(change) == member.key;
    });
    if (kept) json.Key(member.key).Value(member.value);
  }
  for (const std::string& change : changes) {
    const std::string_view name = name_of(change);
    if (name.empty() || name.size() == change.size()) {
      return InvalidArgument("--set needs NAME=VALUE, not '" + change + "'");
    }
    const Result<JsonDocument> value = JsonDocument::Parse(change.substr(name.size() + 1));
    if (!value.ok()) {
      return InvalidArgument("--set: the value of '" + change + "' is not JSON");
    }
    json.Key(name).Value(value->root());
  }
  json.EndObject();
  return changed;
}

// The real tokenizer if one was given, else one of bytes.
Status PutTokenizer(const Options& options, int64_t size, GgufWriter* writer) {
  if (options.tokenizer.empty()) {
    if (size < kByteVocabularyMin) {
      return InvalidArgument("a vocabulary of " + std::to_string(size) +
                             " has no room for every byte (at least " +
                             std::to_string(kByteVocabularyMin) + ")");
    }
    PutByteVocabulary(size, writer);
    return OkStatus();
  }
  std::error_code error;
  if (!std::filesystem::is_directory(options.tokenizer, error)) {
    REPRISE_ASSIGN(const VocabSpec vocab, ReadVocabFile(options.tokenizer));
    return PutVocabulary(vocab, "", size, writer);
  }
  REPRISE_ASSIGN(const TokenizerFolder folder, ReadTokenizerFolder(options.tokenizer));
  return PutVocabulary(folder.vocab,
                       folder.chat_templates.empty() ? "" : folder.chat_templates[0].source, size,
                       writer);
}

Status Run(const Options& options) {
  REPRISE_ASSIGN(const Geometry geometry, FindGeometry(options));
  REPRISE_ASSIGN(const WeightMix mix, FindWeightMix(options.type));
  REPRISE_ASSIGN(const std::string changed, ChangeConfig(geometry.size->config, options.changes));
  REPRISE_ASSIGN(const JsonDocument document, JsonDocument::Parse(changed));
  ConfigReader config(document.root());
  config.set_mtp(options.mtp);
  REPRISE_ASSIGN(const std::unique_ptr<FamilyModel> model,
                 geometry.family->make(&config, DType::kF16));
  GgufWriter writer;
  REPRISE_TRY(PutTokenizer(options, model->vocab_size(), &writer));
  RandomSource source(options.seed);
  ThreadPool pool(options.threads);
  ProgressBar bar("writing " + options.output);
  GgufExport request;
  request.family = geometry.family;
  request.model = model.get();
  request.source = &source;
  request.mix = mix;
  request.name = std::string(geometry.size->name) + " with random weights";
  for (const std::string& change : options.changes) request.name += ", " + change;
  request.path = options.output;
  request.repeated = options.repeated;
  request.progress = [&bar](uint64_t done, uint64_t total) { bar.Show(done, total); };
  return ExportGguf(request, &writer, &pool);
}

}  // namespace

void DefineSynth(Flags* flags) {
  auto options = std::make_shared<Options>();
  flags->Add("--family", &options->family, "family of the model, for example qwen3_5");
  flags->Add("--like", &options->like, "published model, for example Qwen3.5-0.8B",
             {.required = true});
  flags->Add("--set", &options->changes,
             "NAME=VALUE: a parameter of config.json to change, for example "
             "num_hidden_layers=4; may be used several times");
  flags->Add("--type", &options->type, "type of the weights: " + WeightMixNames());
  flags->Add("-o,--out", &options->output, "GGUF file to write", {.required = true});
  flags->Add("--tokenizer", &options->tokenizer,
             "tokenizer.json or a folder that has one (default: every byte is a token)");
  flags->Add("--seed", &options->seed, "of the random weights");
  flags->Add("--repeat", &options->repeated,
             "the first few megabytes of each matrix again and again: quicker, for benchmarks");
  flags->Add("--mtp", &options->mtp,
             "with its block that predicts further tokens, if its config.json has one");
  flags->Add("--threads", &options->threads, "default: one per core", {.min = 1, .max = 1024});
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
