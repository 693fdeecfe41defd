// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "text/template/python/budget.h"
#include "text/template/python/value.h"

namespace reprise::jinja {

// json.dumps with the arguments that the tojson filter of chat templates takes.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // for each level; without it everything is on one line
  std::string item_separator = ", ";  // "," with an indent, unless given
  std::string key_separator = ": ";
  Origin origin = Origin::kTemplate;  // of indent and separators
};

Result<TracedText> ToJson(Budget* budget, const Value& value, const JsonStyle& style);

// A client's JSON as a value: data. Its strings are viewed: the document must outlive the value.
Value FromJson(const JsonValue& json);

// json.loads: the value of a JSON text, with its own copies of the strings. They are data.
Result<Value> ParseJson(Budget* budget, std::string_view text);

}  // namespace reprise::jinja
