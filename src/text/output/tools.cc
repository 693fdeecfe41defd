// SPDX-License-Identifier: Apache-2.0
#include "text/output/tools.h"

namespace reprise {

const JsonValue* FindTool(const JsonValue* tools, std::string_view name) {
  if (tools == nullptr || !tools->is_array()) return nullptr;
  for (const JsonValue& tool : tools->items()) {
    const JsonValue* function = tool.Find("function");
    if (function == nullptr) function = &tool;
    const JsonValue* found = function->Find("name");
    if (found != nullptr && found->is_string() && found->as_string() == name) return function;
  }
  return nullptr;
}

}  // namespace reprise
