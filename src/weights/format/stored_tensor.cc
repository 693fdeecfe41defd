// SPDX-License-Identifier: Apache-2.0
#include "weights/format/stored_tensor.h"

#include "base/json.h"

namespace reprise {

std::string Quoted(std::string_view name) {
  constexpr size_t kShown = 96;
  std::string text;
  AppendJsonString(name.substr(0, kShown), &text);
  if (name.size() > kShown) text += "...";
  return text;
}

}  // namespace reprise
