// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/template/python/budget.h"
#include "text/template/python/value.h"

namespace reprise::jinja {

// Python's two ways to put values into a text, without the language of widths and precisions, which
// prompts have no use for: `format % arguments` with %s, %r, %d and %%, by position or %(name)s;
// and str.format() with {}, {0} and {name}, .attribute, [index], !r and !s. Anything else is
// kUnimplemented.

Result<Value> FormatPercent(Budget* budget, const Value& format, const Value& arguments);

// What str.format needs to know: the arguments, and how Jinja looks things up ("{0.name[key]}").
struct FormatFields {
  const std::vector<Value>* positional;
  const std::vector<std::pair<std::string_view, Value>>* named;
  std::function<Result<Value>(const Value& object, const Value& index)> item;
};
Result<Value> FormatBraces(Budget* budget, const Value& format, const FormatFields& fields);

}  // namespace reprise::jinja
