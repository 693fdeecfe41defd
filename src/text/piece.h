// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise {

// [begin, end) in bytes of a text: what the pre-tokenizer cuts and the model encodes on its own.
struct Piece {
  uint32_t begin;
  uint32_t end;
};

}  // namespace reprise
