// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/neon/product-inl.h"

// The accumulator of product-inl.h with sdot. Only for files compiled with dotprod.
namespace reprise::cpu {
namespace {

struct Sdot {
  static constexpr int kTokens = 4;
  int32x4_t pair_sum[4];  // | even row, values 0..3 | 4..7 | odd row, 0..3 | 4..7 |

  inline void Start(int32_t bias) {
    const int32x4_t start = vreinterpretq_s32_s64(vdupq_n_s64(static_cast<uint32_t>(bias)));
#pragma GCC unroll 4
    for (int32x4_t& sum : pair_sum) sum = start;
  }
  inline void Add(int pair, int8x16_t w0, int8x16_t w1, int8x16_t x0, int8x16_t x1) {
    pair_sum[pair] = vdotq_s32(vdotq_s32(pair_sum[pair], w0, x0), w1, x1);
  }
  inline int32x4x2_t Sum() const {
    return {{vpaddq_s32(pair_sum[0], pair_sum[1]), vpaddq_s32(pair_sum[2], pair_sum[3])}};
  }
};

}  // namespace
}  // namespace reprise::cpu
