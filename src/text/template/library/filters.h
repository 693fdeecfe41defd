// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "text/template/library/runtime.h"

namespace reprise::jinja {

struct Filter {
  std::string_view name;
  SubjectFunction function;
};

std::span<const Filter> TextFilters();      // strings and numbers
std::span<const Filter> SequenceFilters();  // lists, dicts and what they hold
std::span<const Filter> LazyFilters();      // map, select and their like

}  // namespace reprise::jinja
