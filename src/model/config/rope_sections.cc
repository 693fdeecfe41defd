// SPDX-License-Identifier: Apache-2.0
#include "model/config/rope_sections.h"

#include <numeric>

namespace reprise {

std::vector<int64_t> ReadRopeSections(ConfigReader* reader, RopeConfig* rope) {
  // Since Transformers 5 in another member than before.
  const bool newer = reader->Has({"rope_parameters.mrope_section", ""});
  std::vector<int64_t> sections =
      reader->Ints({newer ? "rope_parameters.mrope_section" : "rope_scaling.mrope_section",
                    "rope.dimension_sections"},
                   4, {0, 1024});
  const int64_t half = rope->rotary_dim / 2;
  if (sections.empty()) sections = {half - 2 * (half / 3), half / 3, half / 3};
  sections.resize(4);
  if (std::accumulate(sections.begin(), sections.end(), int64_t{0}) != half) {
    reader->Refuse("mrope_section does not cover the rotary width");
    return sections;
  }
  // Angles take turns: time, row, column, time...; rows and columns as far as their sections go.
  rope->axes.assign(size_t(half), 0);
  for (size_t f = 0; f < rope->axes.size(); ++f) {
    const size_t axis = f % 3;
    if (axis != 0 && int64_t(f) < 3 * sections[axis]) rope->axes[f] = uint8_t(axis);
  }
  return sections;
}

}  // namespace reprise
