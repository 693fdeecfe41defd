// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>

#include "text/template/library/attributes.h"

namespace reprise::jinja {

// All methods of the value's type, sorted by name.
std::span<const Method> MethodsOf(const Value& value);

std::span<const Method> StringMethods();

constexpr bool IsSorted(std::span<const Method> methods) {
  return std::is_sorted(methods.begin(), methods.end(),
                        [](const Method& a, const Method& b) { return a.name < b.name; });
}

}  // namespace reprise::jinja
