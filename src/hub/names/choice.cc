// SPDX-License-Identifier: Apache-2.0
#include "hub/names/choice.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

namespace reprise::hub {
namespace {

constexpr uint64_t kTextBytesMax = uint64_t{256} << 20;  // a tokenizer's, at most
constexpr size_t kChoicesShown = 24;
constexpr int kPartsMax = 4096;

std::string Lowered(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return lower;
}

std::string_view NameOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// "-00002-of-00005" before the extension.
struct Part {
  std::string_view stem;  // what stands before it
  int number = 0;
  int count = 0;
};

std::optional<int> FiveDigits(std::string_view text) {
  int value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || error != std::errc() || at != text.data() + 5) return std::nullopt;
  return value;
}

std::optional<Part> FindPart(std::string_view stem) {
  constexpr size_t kSuffix = std::string_view("-00001-of-00001").size();
  if (stem.size() <= kSuffix) return std::nullopt;
  const std::string_view suffix = stem.substr(stem.size() - kSuffix);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-") return std::nullopt;
  const auto number = FiveDigits(suffix.substr(1, 5));
  const auto count = FiveDigits(suffix.substr(10, 5));
  if (!number || !count || *number < 1 || *number > *count || *count > kPartsMax) {
    return std::nullopt;
  }
  return Part{stem.substr(0, stem.size() - kSuffix), *number, *count};
}

bool IsCompanion(std::string_view name) {
  const std::string lower = Lowered(name);
  return lower.find("mmproj") != std::string::npos || lower.starts_with("mtp-");
}

bool IsQuantisation(std::string_view token) {
  const std::string lower = Lowered(token);
  for (const char* whole : {"f16", "f32", "bf16", "fp16", "fp32", "mxfp4", "nvfp4"}) {
    if (lower == whole || lower.starts_with(std::string(whole) + "_")) return true;
  }
  std::string_view rest = lower;
  if (rest.starts_with("i") || rest.starts_with("t")) rest.remove_prefix(1);
  return rest.size() >= 2 && rest[0] == 'q' && rest[1] >= '1' && rest[1] <= '9' &&
         std::all_of(rest.begin() + 2, rest.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_';
         });
}

// GGUF files by what stands before the number of a part.
void AddGgufs(const std::vector<HubFile>& files, Offer* offer) {
  struct Parts {
    std::map<int, HubFile> by_number;
    int count = 1;
  };
  std::map<std::string, Parts> sets;
  for (const HubFile& file : files) {
    const std::string lower = Lowered(file.path);
    if (!lower.ends_with(".gguf")) continue;
    const std::string_view name = NameOf(file.path);
    if (IsCompanion(name)) {
      offer->companions.push_back(file);
      continue;
    }
    if (lower.find("imatrix") != std::string::npos) continue;
    const std::string_view stem = std::string_view(file.path).substr(0, file.path.size() - 5);
    const std::optional<Part> part = FindPart(stem);
    const std::string key =
        part ? std::string(part->stem) + "*" + std::to_string(part->count) : std::string(stem);
    Parts& set = sets[key];
    set.count = part ? part->count : 1;
    set.by_number.emplace(part ? part->number : 1, file);
  }
  std::vector<ModelFiles> ggufs;
  for (auto& [key, set] : sets) {
    ModelFiles model;
    for (auto& [number, file] : set.by_number) model.files.push_back(std::move(file));
    model.complete = int(model.files.size()) == set.count;
    model.entry = model.files[0].path;
    model.label = FindQuantisation(model.entry);
    if (model.label.empty()) model.label = model.entry;
    ggufs.push_back(std::move(model));
  }
  // Two of one quantisation are told apart by their files.
  std::map<std::string, int> uses;
  for (const ModelFiles& model : ggufs) ++uses[model.label];
  for (ModelFiles& model : ggufs) {
    if (uses[model.label] > 1) model.label = model.entry;
  }
  std::stable_sort(ggufs.begin(), ggufs.end(),
                   [](const ModelFiles& a, const ModelFiles& b) { return a.bytes() < b.bytes(); });
  for (ModelFiles& model : ggufs) offer->models.push_back(std::move(model));
}

bool IsTextOfFolder(const HubFile& file) {
  if (file.bytes > kTextBytesMax) return false;
  const std::string lower = Lowered(file.path);
  const size_t slash = lower.find('/');
  if (slash != std::string::npos) {
    // Of models that give vectors: "1_Pooling/config.json".
    return lower.find('/', slash + 1) == std::string::npos && lower[0] >= '0' && lower[0] <= '9' &&
           lower.ends_with("/config.json");
  }
  if (lower.ends_with(".index.json")) return lower == "model.safetensors.index.json";
  return lower.ends_with(".json") || lower.ends_with(".jinja") || lower.ends_with(".txt") ||
         lower == "tokenizer.model";
}

void AddFolder(const std::vector<HubFile>& files, Offer* offer) {
  const auto has = [&](std::string_view path) {
    return std::any_of(files.begin(), files.end(),
                       [&](const HubFile& file) { return file.path == path; });
  };
  const bool sharded = has("model.safetensors.index.json");
  if (!has("config.json") || (!sharded && !has("model.safetensors"))) return;
  ModelFiles folder;
  for (const HubFile& file : files) {
    // Which shards the index means is known when it is there; by name they are these.
    const bool safetensors =
        file.path.ends_with(".safetensors") && file.path.find('/') == std::string::npos;
    const std::string_view stem = safetensors
                                      ? std::string_view(file.path).substr(0, file.path.size() - 12)
                                      : std::string_view();
    const bool weights = safetensors && (sharded ? FindPart(stem) && stem.starts_with("model")
                                                 : file.path == "model.safetensors");
    if (weights || IsTextOfFolder(file)) folder.files.push_back(file);
  }
  offer->models.push_back(std::move(folder));
}

std::string Listed(const Offer& offer) {
  std::string text;
  size_t shown = 0;
  for (const ModelFiles& model : offer.models) {
    if (model.label.empty() || !model.complete) continue;
    if (shown++ == kChoicesShown) return text + ", ...";
    text += (text.empty() ? "" : ", ") + model.label;
  }
  return text;
}

bool IsNamed(const ModelFiles& model, const std::string& wanted) {
  return std::any_of(model.files.begin(), model.files.end(), [&](const HubFile& file) {
    const std::string path = Lowered(file.path);
    return path == wanted || NameOf(path) == wanted || path == wanted + ".gguf" ||
           NameOf(path) == wanted + ".gguf";
  });
}

}  // namespace

uint64_t ModelFiles::bytes() const {
  uint64_t sum = 0;
  for (const HubFile& file : files) sum += file.bytes;
  return sum;
}

Offer FindModels(const std::vector<HubFile>& files) {
  Offer offer;
  AddFolder(files, &offer);
  AddGgufs(files, &offer);
  offer.other_weights = std::any_of(files.begin(), files.end(), [](const HubFile& file) {
    return file.path.ends_with(".bin") || file.path.ends_with(".pth") ||
           file.path.ends_with(".safetensors");
  });
  return offer;
}

std::string FindQuantisation(std::string_view path) {
  std::string_view stem = NameOf(path);
  if (Lowered(stem).ends_with(".gguf")) stem.remove_suffix(5);
  if (const auto part = FindPart(stem)) stem = part->stem;
  std::string found;
  bool dynamic = false;
  while (!stem.empty()) {
    const size_t end = std::min(stem.find_first_of("-."), stem.size());
    const std::string_view token = stem.substr(0, end);
    if (IsQuantisation(token)) {
      found = (dynamic ? "UD-" : "") + std::string(token);
    }
    dynamic = Lowered(token) == "ud";
    stem.remove_prefix(std::min(end + 1, stem.size()));
  }
  for (char& c : found) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return found;
}

Result<ModelFiles> Choose(const Offer& offer, const std::string& wanted) {
  const std::string lower = Lowered(wanted);
  std::vector<const ModelFiles*> matches;
  for (const ModelFiles& model : offer.models) {
    if (wanted.empty() || Lowered(model.label) == lower || IsNamed(model, lower)) {
      matches.push_back(&model);
    }
  }
  if (wanted.empty() && !matches.empty() && matches[0]->label.empty()) return *matches[0];
  for (const HubFile& file : offer.companions) {
    if (lower == Lowered(file.path) || lower == Lowered(NameOf(file.path))) {
      return ModelFiles{file.path, file.path, {file}};
    }
  }
  const std::string choices = Listed(offer);
  if (matches.size() == 1) {
    if (matches[0]->complete) return *matches[0];
    return NotFound("parts of " + matches[0]->label + " are missing on the hub" +
                    (choices.empty() ? "" : "; there is " + choices));
  }
  if (matches.size() > 1 && !wanted.empty()) {
    std::string paths;
    for (const ModelFiles* model : matches) paths += (paths.empty() ? "" : ", ") + model->entry;
    return InvalidArgument("'" + wanted + "' is the name of several files: " + paths);
  }
  if (offer.models.empty()) {
    return NotFound(offer.other_weights
                        ? "its weights are in a format that Reprise does not read; look for a "
                          "repository with GGUF or safetensors files (model.safetensors)"
                        : "it holds no GGUF file and no model.safetensors");
  }
  if (wanted.empty())
    return InvalidArgument("say which one, as in ':" + offer.models.back().label + "'; there is " +
                           choices);
  if (choices.empty())
    return NotFound("there is no '" + wanted + "'; it is a folder of safetensors");
  return NotFound("there is no '" + wanted + "'; there is " + choices);
}

}  // namespace reprise::hub
