// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace reprise {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

}  // namespace reprise
