// SPDX-License-Identifier: Apache-2.0
#include "api/served_model.h"

#include <algorithm>
#include <utility>

namespace reprise::api {
namespace {

// Whether `name` is what `pattern` says, where '*' is any text. Costs: both lengths multiplied.
bool Matches(std::string_view pattern, std::string_view name) {
  size_t at = 0;  // in the pattern
  size_t star = std::string_view::npos;
  size_t resume = 0;  // where the last star's text ends, if it takes one more character
  for (size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      resume = i;
    } else if (at < pattern.size() && pattern[at] == name[i]) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

bool AnyAnswers(const std::string& id, const std::vector<std::string>& aliases,
                std::string_view name) {
  if (name.empty() || name == id) return true;
  for (const std::string& alias : aliases) {
    if (Matches(alias, name)) return true;
  }
  return false;
}

}  // namespace

bool ModelBrief::Answers(std::string_view name) const {
  return AnyAnswers(id, aliases, name) ||
         std::find(adapters.begin(), adapters.end(), name) != adapters.end();
}

bool ServedModel::Answers(std::string_view name) const {
  return AnyAnswers(id, aliases, name) || (adapters != nullptr && adapters->Has(name));
}

ModelBrief ServedModel::Brief() const {
  ModelBrief brief;
  brief.id = id;
  brief.aliases = aliases;
  brief.created = created;
  brief.family = family;
  brief.digest = digest;
  brief.context_tokens = context_tokens;
  brief.bytes = weight_bytes;
  if (adapters != nullptr) {
    for (AdapterShelf::Entry& one : adapters->List()) brief.adapters.push_back(std::move(one.name));
  }
  brief.parameter_count = parameter_count;
  brief.quantization = quantization;
  brief.capabilities = Capabilities();
  return brief;
}

std::vector<std::string> ServedModel::Capabilities() const {
  std::vector<std::string> can = {"completion"};
  if (!output.calls.empty()) can.push_back("tools");
  if (output.reasoning != nullptr) can.push_back("thinking");
  if (see != nullptr) can.push_back("vision");
  if (vectors.pooling != Pooling::kNone) can.push_back("embedding");
  return can;
}

std::vector<std::string> ModelBrief::Names() const {
  std::vector<std::string> names = {id};
  for (const std::string& alias : aliases) {
    if (alias.find('*') == std::string::npos) names.push_back(alias);
  }
  return names;
}

}  // namespace reprise::api
