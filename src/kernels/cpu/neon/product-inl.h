// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arm_neon.h>

#include "kernels/cpu/table.h"

// Products of packed groups, row by row: eight rows in two vectors of four. neon and dotprod differ
// only in Dot, the accumulator of a block's integer products:
//
//   static constexpr int kTokens      tokens of a tile: as many as the registers hold
//   void Start(int32_t bias)          sums begin at `bias`
//   void Add(pair, w0, w1, x0, x1)    two steps of a row pair; x: eight values, twice
//   int32x4x2_t Sum()                 rows 0..3 and 4..7
//
// One token reads packed weights straight into registers. With more, a stretch of columns is
// unpacked once (Panel) and then read by every tile of tokens.
namespace reprise::cpu {
namespace {

constexpr int kPanelCols = 2048;  // a panel is 16 KiB, which stays in the first-level cache

// |sum| < 2^22: sum * 2^shift, added to the bits of 1.5 * 2^(23 - shift), makes that float plus
// `sum`, exactly. Subtracting is cheaper than converting.
constexpr int32_t MagicBits(int shift) { return 0x4B400000 - (shift << 23); }
template <int kShift>
inline float32x4_t MagicToFloat(int32x4_t biased) {
  const float32x4_t magic = vreinterpretq_f32_s32(vdupq_n_s32(MagicBits(kShift)));
  return vsubq_f32(vreinterpretq_f32_s32(biased), magic);
}

inline int8x16_t Twice(int8x16_t x, int half) {
  const int64x2_t words = vreinterpretq_s64_s8(x);
  return vreinterpretq_s8_s64(half == 0 ? vdupq_laneq_s64(words, 0) : vdupq_laneq_s64(words, 1));
}

// Packed weights are read once and in order. Asking for them this far ahead also crosses pages,
// where hardware prefetchers stop.
template <class Packed>
inline void PrefetchAfter(const Packed* block) {
  constexpr int kAhead = 3072;
  const uintptr_t at = reinterpret_cast<uintptr_t>(block) + kAhead;  // perhaps nowhere: no fault
#pragma GCC unroll 32
  for (unsigned i = 0; i < sizeof(Packed); i += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(at + i));
  }
}

// Outputs of one token so far: in y between stretches of columns.
inline float32x4x2_t LoadRows(const float* y, int rows) {
  if (rows == 8) return {{vld1q_f32(y), vld1q_f32(y + 4)}};
  float padded[8] = {};
  for (int r = 0; r < rows; ++r) padded[r] = y[r];
  return {{vld1q_f32(padded), vld1q_f32(padded + 4)}};
}

inline void StoreRows(float* y, int rows, float32x4_t a, float32x4_t b) {
  if (rows == 8) {
    vst1q_f32(y, a);
    vst1q_f32(y + 4, b);
    return;
  }
  float padded[8];
  vst1q_f32(padded, a);
  vst1q_f32(padded + 4, b);
  for (int r = 0; r < rows; ++r) y[r] = padded[r];
}

// What a product reads of its activations, from some column on.
struct Activations {
  const int8_t* q[8];
  const float* scale[8];
  const int16_t* sum[8];

  Activations(const QuantisedRows& x, int token, int tokens, int64_t col, int block,
              int sum_block) {
    for (int t = 0; t < tokens; ++t) {
      q[t] = x.q + (token + t) * x.q_stride + col;
      scale[t] = x.scale + (token + t) * x.scale_stride + col / block;
      sum[t] = x.sum + (token + t) * x.sum_stride + col / sum_block;
    }
  }
};

}  // namespace
}  // namespace reprise::cpu
