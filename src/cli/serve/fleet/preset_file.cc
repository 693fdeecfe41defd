// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/preset_file.h"

#include <algorithm>
#include <deque>

#include "base/mapped_file.h"

namespace reprise::cli {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr size_t kModelsMax = 1000;

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Their names of what a model here has.
struct Name {
  std::string_view theirs;
  std::string_view ours;
};
constexpr Name kNames[] = {
    {"model", "model"},
    {"m", "model"},
    {"hf-repo", "hf"},
    {"hf", "hf"},
    {"hfr", "hf"},
    {"ctx-size", "context"},
    {"c", "context"},
    {"threads", "threads"},
    {"t", "threads"},
    {"parallel", "parallel"},
    {"np", "parallel"},
    {"n-parallel", "parallel"},
    {"alias", "alias"},
    {"a", "alias"},
    {"load-on-startup", "preload"},
    {"cache-type-k", "kv"},
    {"ctk", "kv"},
    {"sleep-idle-seconds", "keep-alive"},
    {"pooling", "pooling"},
};

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// "LLAMA_ARG_CTX_SIZE" and "--ctx-size" are "ctx-size".
std::string Plain(std::string_view key) {
  constexpr std::string_view kEnvironment = "LLAMA_ARG_";
  if (key.starts_with(kEnvironment)) key.remove_prefix(kEnvironment.size());
  while (key.starts_with('-')) key.remove_prefix(1);
  std::string plain(key);
  for (char& c : plain) c = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return plain;
}

const Name* FindName(const std::string& theirs) {
  const auto found =
      std::ranges::find_if(kNames, [&](const Name& n) { return n.theirs == theirs; });
  return found != std::end(kNames) ? &*found : nullptr;
}

std::string SwitchOf(const std::string& value) {
  const bool on = value == "1" || value == "true" || value == "on" || value == "yes";
  return on ? "true" : "false";
}

// A later value of the same option goes before an earlier one: a section's before that of all.
void Set(Flags::Settings* settings, std::string_view option, std::string value) {
  for (auto& [name, values] : *settings) {
    if (name == option) {
      values = {std::move(value)};
      return;
    }
  }
  settings->push_back({std::string(option), {std::move(value)}});
}

void Translate(const std::string& section, const Pairs& pairs, Flags::Settings* settings,
               std::vector<std::string>* without_effect) {
  for (const auto& [key, value] : pairs) {
    const Name* name = FindName(key);
    if (name == nullptr) {
      without_effect->push_back("[" + section + "] " + key);
    } else if (name->ours == "hf") {
      Set(settings, "model", "hf:" + value);
    } else if (name->ours == "preload") {
      Set(settings, name->ours, SwitchOf(value));
    } else if (name->ours == "context" && value == "0") {
      continue;  // the model's own
    } else {
      Set(settings, name->ours, value);
    }
  }
}

}  // namespace

Result<Presets> ParsePresets(std::string_view text) {
  std::deque<std::pair<std::string, Pairs>> sections;  // whose places stay
  Pairs of_all;
  Pairs before;  // "version = 1"
  Pairs* pairs = &before;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = Trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.empty() || line.front() == ';' || line.front() == '#') continue;
    const std::string place = "line " + std::to_string(number) + ": ";
    if (line.front() == '[') {
      if (line.back() != ']' || line.size() < 3) {
        return InvalidArgument(place + "a section is [NAME]");
      }
      const std::string name(Trim(line.substr(1, line.size() - 2)));
      const auto same = [&](const auto& one) { return one.first == name; };
      if (std::ranges::any_of(sections, same)) {
        return InvalidArgument(place + "there are two sections [" + name + "]");
      }
      if (sections.size() == kModelsMax) {
        return InvalidArgument(place + "a file has at most " + std::to_string(kModelsMax) +
                               " models");
      }
      if (name == "*") {
        pairs = &of_all;
      } else {
        pairs = &sections.emplace_back(name, Pairs()).second;
      }
      continue;
    }
    const size_t equal = line.find('=');
    const std::string key = Plain(Trim(line.substr(0, equal)));
    if (equal == std::string_view::npos || key.empty()) {
      return InvalidArgument(place + "a setting is NAME = VALUE");
    }
    pairs->emplace_back(key, std::string(Trim(line.substr(equal + 1))));
  }
  Presets presets;
  Flags::Settings all;
  Translate("*", of_all, &all, &presets.without_effect);
  for (const auto& [name, own] : sections) {
    Flags::Settings settings = all;
    Translate(name, own, &settings, &presets.without_effect);
    const auto named = [](const auto& one) { return one.first == "model"; };
    if (std::ranges::none_of(settings, named)) settings.push_back({"model", {"hf:" + name}});
    presets.models.emplace_back(name, std::move(settings));
  }
  if (presets.models.empty()) return InvalidArgument("there is no section [NAME] of a model");
  return presets;
}

Result<Presets> ReadPresets(const std::string& path) {
  REPRISE_ASSIGN(const std::string text, ReadFile(path, kFileBytesMax));
  auto presets = ParsePresets(text);
  if (!presets.ok()) return presets.status().Annotate(path);
  return presets;
}

}  // namespace reprise::cli
