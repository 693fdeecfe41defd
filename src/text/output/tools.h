// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace reprise {

// The definition of a tool, in the shape of either API (with "function" around it or not), or null.
// `tools`: an array, or null.
const JsonValue* FindTool(const JsonValue* tools, std::string_view name);

// The schema of a tool's parameter, or null if the tools do not tell.
const JsonValue* FindParameter(const JsonValue* tools, std::string_view tool,
                               std::string_view parameter);

// Whether a parameter takes nothing but strings, as far as its schema says. Without a schema: yes.
bool OnlyStrings(const JsonValue* schema);

// Whether a parameter may be such a value, as far as its types say.
bool MayBe(const JsonValue& schema, JsonValue::Kind kind);

// A value that a model wrote as plain text, as JSON: what the schema allows, if the text is that,
// in JSON or as Python prints it; otherwise a string.
std::string ValueToJson(std::string_view text, const JsonValue* schema);

}  // namespace reprise
