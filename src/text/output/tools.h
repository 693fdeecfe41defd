// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/json.h"

namespace reprise {

// The definition of a tool, in the shape of either API (with "function" around it or not), or null.
// `tools`: an array, or null.
const JsonValue* FindTool(const JsonValue* tools, std::string_view name);

}  // namespace reprise
