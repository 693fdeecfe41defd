// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/model_list.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/mapped_file.h"
#include "cli/hub/named_model.h"

namespace reprise::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kModelsMax = 1000;
constexpr char kHubFile[] = ".hf";
constexpr size_t kHubFileBytesMax = 4096;

// "x-00002-of-00003.gguf": a part that another file begins.
bool IsLaterPart(const std::string& stem) {
  const size_t of = stem.rfind("-of-");
  return of != std::string::npos && of >= 6 && stem.compare(of - 6, 6, "-00001") != 0 &&
         stem[of - 6] == '-' && stem.find_first_not_of("0123456789", of - 5) == of;
}

bool IsModel(const fs::directory_entry& entry) {
  std::error_code error;
  if (entry.path().extension() == kHubFile) return entry.is_regular_file(error);
  if (entry.is_directory(error)) return fs::exists(entry.path() / "config.json", error);
  const std::string stem = entry.path().stem().string();
  return entry.is_regular_file(error) && entry.path().extension() == ".gguf" &&
         !stem.starts_with("mmproj") && !stem.starts_with("mtp-") && !IsLaterPart(stem);
}

// A model of the hub, by the first line of a file that names it.
Result<FoundModel> ReadHubFile(const std::string& path) {
  REPRISE_ASSIGN(std::string text, ReadFile(path, kHubFileBytesMax));
  text.resize(std::min(text.find_first_of("\r\n"), text.size()));
  REPRISE_ASSIGN(const hub::ModelName name, hub::ModelName::Parse(text));
  FoundModel found;
  REPRISE_ASSIGN(found.path, FindFetchedModel(text));
  found.names = NamesOf(name);
  return found;
}

}  // namespace

std::string HubFilePath(const std::string& folder, const hub::ModelName& name) {
  std::string file = name.ToString();
  for (char& c : file) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) c = '+';
  }
  return folder + "/" + file + kHubFile;
}

std::vector<std::string> NamesOf(const hub::ModelName& name) {
  return {name.ToString(), "hf.co/" + name.ToString()};
}

Result<std::vector<FoundModel>> FindModels(const std::string& folder) {
  std::error_code error;
  std::vector<FoundModel> models;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (IsModel(*entry)) models.push_back({entry->path().string(), {}});
    if (models.size() > kModelsMax) {
      return InvalidArgument(folder + " has more than " + std::to_string(kModelsMax) + " models");
    }
  }
  if (error) return InvalidArgument("--models-dir " + folder + ": " + error.message());
  // The folder's own first: the first one answers requests that name no model, and what was pulled
  // can be deleted.
  std::sort(models.begin(), models.end(), [](const FoundModel& a, const FoundModel& b) {
    const bool a_pulled = a.path.ends_with(kHubFile);
    const bool b_pulled = b.path.ends_with(kHubFile);
    return a_pulled != b_pulled ? b_pulled : a.path < b.path;
  });
  std::erase_if(models, [](FoundModel& model) {
    if (!model.path.ends_with(kHubFile)) return false;
    auto read = ReadHubFile(model.path);
    if (!read.ok()) Log(LogLevel::kWarning, model.path + ": " + read.status().message());
    if (read.ok()) model = std::move(*read);
    return !read.ok();
  });
  if (models.empty()) {
    return NotFound("--models-dir " + folder +
                    " has no GGUF file and no folder with a config.json");
  }
  return models;
}

void DefineOneModel(Flags* flags, ServeOptions* model, std::vector<std::string>* aliases) {
  flags->SetHeading(kModelHeading);
  flags->Add("--tokenizer", &model->tokenizer,
             "tokenizer.json, or a folder with one, for a model without a tokenizer");
  flags->Add("--mmproj", &model->model.mmproj,
             "GGUF file of the tower of a GGUF model that sees pictures (default: the one beside "
             "the model, mmproj*.gguf)");
  flags->Add("--pooling", &model->pooling,
             "how /v1/embeddings makes a vector of a text, for a model that does not say: mean or "
             "last",
             {.one_of = {"mean", "last"}});
  flags->Add("--alias", aliases,
             "name of the model for clients (default: the name of the file); repeat it for several "
             "names; 'claude-*' stands for all names that begin so, '*' for all");
  flags->Add("-c,--context", &model->context_tokens,
             "maximum tokens of a request, prompt and reply (default: the model's, at most 32768)",
             {.min = 64, .max = 1 << 24});
  flags->Add("--parallel", &model->parallel,
             "maximum requests computed at the same time (default: 16, on a GPU 256)",
             {.min = 1, .max = 4096});
  flags->Add("--stream-gap-ms", &model->stream_gap_ms,
             "maximum milliseconds between two tokens of a stream while other prompts are computed "
             "(default: 200, on a GPU 50)",
             {.min = 0, .max = 600000});
  flags->Add("--cache-mib", &model->cache_mib,
             "MiB of memory for state, running and remembered (default: from the machine)",
             {.min = 0, .max = 1 << 30});
  flags->Add("--snapshot-gap", &model->snapshot_gap,
             "minimum tokens between snapshots of one prompt (default: from the model)",
             {.min = 1, .max = 1 << 20});
  flags->SetHeading("Several models");
  flags->Add("--pin", &model->pin, "of several models: keep its weights in memory");
  flags->Add("--preload", &model->preload, "of several models: load it at the start");
  flags->Add(
      "--keep-alive", &model->keep_alive_s,
      "of several models: seconds without a request after which its weights leave memory; 0: "
      "they stay until their room is wanted",
      {.min = 0, .max = 1 << 30});
  flags->SetHeading("SnapKV, lossy (docs/snapkv.md)");
  flags->Add("--snapkv-budget", &model->snapkv_budget,
             "tokens of a long prompt (below 1: the share of it) whose K/V is kept while the reply "
             "is decoded; 0: all",
             {.min = 0, .max = 1 << 24});
  flags->Add("--snapkv-window", &model->snapkv_window,
             "last tokens of the prompt, which choose what is kept",
             {.min = 1, .max = kSnapKvWindowMax});
  flags->Add("--snapkv-redecode", &model->snapkv_redecode,
             "choose again after this many tokens of the reply; 0: never",
             {.min = 0, .max = 1 << 24});
  AddSpeculateOptions(flags, &model->speculate);
  flags->SetHeading("Adapters (docs/adapters.md)");
  flags->Add("--lora", &model->loras,
             "NAME=PATH[:SCALE]: also serve the model with this LoRA adapter, a PEFT folder or a "
             "GGUF file, under that name; repeat it for several");
  flags->Add("--lora-mib", &model->lora_mib,
             "MiB of memory for the weights of adapters; those unused longest are read again when "
             "they are wanted",
             {.min = 1, .max = 1 << 30});
}

Result<ServeOptions> ReadModel(const ServeOptions& server, const std::string& name,
                               const Flags::Settings& settings) {
  ServeOptions model = server;
  model.aliases = {name};
  model.model.path.clear();
  model.model.mmproj.clear();
  model.loras.clear();
  std::vector<std::string> aliases;
  Flags flags("[models." + name + "]", "");
  AddModelOptions(&flags, &model.model);
  DefineOneModel(&flags, &model, &aliases);
  std::vector<std::string> words = {"reprise"};
  for (const auto& [option, values] : settings) {
    const bool off = values.size() == 1 && values.front() == "false";
    if (off) continue;  // every switch of a model is off by itself
    for (const std::string& value : values) {
      words.push_back("--" + option);
      if (value != "true") words.push_back(value);
    }
  }
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  flags.SetAction([] { return OkStatus(); });
  REPRISE_TRY(flags.Run(static_cast<int>(argv.size()), argv.data()).Annotate("models." + name));
  if (model.model.path.empty()) {
    return InvalidArgument("[models." + name + "] names no file: give it model = \"PATH\"");
  }
  model.aliases.insert(model.aliases.end(), aliases.begin(), aliases.end());
  return model;
}

}  // namespace reprise::cli
