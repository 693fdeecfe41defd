// SPDX-License-Identifier: Apache-2.0
#include "api/served_model.h"

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

}  // namespace

bool ServedModel::Answers(std::string_view name) const {
  if (name.empty() || name == id) return true;
  for (const std::string& alias : aliases) {
    if (Matches(alias, name)) return true;
  }
  return false;
}

std::vector<std::string> ServedModel::Names() const {
  std::vector<std::string> names = {id};
  for (const std::string& alias : aliases) {
    if (alias.find('*') == std::string::npos) names.push_back(alias);
  }
  return names;
}

}  // namespace reprise::api
