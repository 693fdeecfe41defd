// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "text/template/library/attributes.h"

namespace reprise::jinja {

// All methods of the value's type.
std::span<const Method> MethodsOf(const Value& value);

std::span<const Method> StringMethods();

}  // namespace reprise::jinja
