// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise {

// A picture as a model sees it: red, green, blue, 8 bits each, row by row from the top.
struct Pixels {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  friend bool operator==(const Pixels&, const Pixels&) = default;
};

}  // namespace reprise
