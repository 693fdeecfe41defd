// SPDX-License-Identifier: Apache-2.0
#include "text/template/library/filters.h"

namespace reprise::jinja {

SubjectFunction FindFilter(std::string_view name) {
  for (const auto& filters : {TextFilters(), SequenceFilters(), LazyFilters()}) {
    for (const Filter& filter : filters) {
      if (filter.name == name) return filter.function;
    }
  }
  return nullptr;
}

}  // namespace reprise::jinja
