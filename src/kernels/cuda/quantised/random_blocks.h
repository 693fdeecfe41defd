// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace reprise::cuda {

inline constexpr DType kQuantisedTypes[] = {
    DType::kQ8_0,   DType::kQ4_0,   DType::kQ4_1,   DType::kQ5_0, DType::kQ5_1,
    DType::kIQ4_NL, DType::kQ2_K,   DType::kQ3_K,   DType::kQ4_K, DType::kQ5_K,
    DType::kQ6_K,   DType::kIQ4_XS, DType::kIQ2_XXS};

// Where the f16 scales of a block lie; -1: none.
inline int ScaleOffset(DType dtype) {
  switch (dtype) {
    case DType::kQ2_K:
      return 80;
    case DType::kQ3_K:
      return 108;
    case DType::kQ6_K:
      return 208;
    case DType::kIQ1_M:  // in parts
      return -1;
    case DType::kTQ1_0:
      return 52;
    case DType::kTQ2_0:
      return 64;
    default:
      return 0;
  }
}
inline int MinimumOffset(DType dtype) {
  switch (dtype) {
    case DType::kQ2_K:
      return 82;
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return 2;
    default:
      return -1;
  }
}

// Rows of blocks with every bit pattern, for tests and benchmarks: random bytes under scales of
// ordinary size, some of them zero or denormal.
inline std::vector<std::byte> RandomBlocks(Rng& rng, DType dtype, int64_t rows, int64_t cols) {
  const DTypeTraits& traits = TraitsOf(dtype);
  const int64_t count = rows * cols / traits.block_elements;
  std::vector<std::byte> blocks(size_t(count * traits.block_bytes));
  for (size_t i = 0; i < blocks.size(); i += 8) {
    const uint64_t bits = rng.Next();
    std::memcpy(blocks.data() + i, &bits, blocks.size() - i < 8 ? blocks.size() - i : 8);
  }
  for (int64_t b = 0; b < count; ++b) {
    if (dtype == DType::kIQ1_M) {  // the upper halves of four bytes: an f16 of ordinary size
      std::byte* const scales = blocks.data() + b * traits.block_bytes + 48;
      for (int i = 0; i < 4; ++i) {
        const std::byte part{uint8_t(i < 3 ? rng.Below(16) << 4 : 0x20)};
        scales[2 * i + 1] = (scales[2 * i + 1] & std::byte{15}) | part;
      }
    }
    for (const int offset : {ScaleOffset(dtype), MinimumOffset(dtype)}) {
      if (offset < 0) continue;
      const float value = (rng.Uniform() - 0.5f) * (rng.Below(20) == 0 ? 1e-5f : 0.1f);
      const uint16_t half = F32ToF16(rng.Below(50) == 0 ? 0.0f : value);
      std::memcpy(blocks.data() + b * traits.block_bytes + offset, &half, 2);
    }
  }
  return blocks;
}

}  // namespace reprise::cuda
