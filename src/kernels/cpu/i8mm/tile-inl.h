// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/neon/product-inl.h"

// Tiles of smmla: eight rows (four pairs) by 2 or 4 tokens (one or two pairs). An accumulator holds
// two tokens by two rows:
//
//   | token 0, row 0 | token 0, row 1 | token 1, row 0 | token 1, row 1 |
//
// so per-row factors are repeated (r0, r1, r0, r1) and per-token factors doubled (t0, t0, t1, t1).
// A tile whose tokens are fewer than its places repeats the last one: it is computed and stored
// again with the same result.
namespace reprise::cpu {
namespace {

constexpr int kTileTokens = 4;

inline float32x4_t LowHalves(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
inline float32x4_t HighHalves(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
inline int8x16_t LowHalves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}
inline int8x16_t HighHalves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

// What a tile reads of its activations from some column on, and where it writes.
struct TileTokens {
  const int8_t* q[kTileTokens];
  const float* scale[kTileTokens];
  const int16_t* sum[kTileTokens];
  float* y[kTileTokens];

  // Tokens [begin, begin + places) of `tokens`.
  TileTokens(const QuantisedRows& x, float* out, int64_t out_stride, int begin, int places,
             int tokens, int64_t col, int block, int sum_block) {
    for (int i = 0; i < places; ++i) {
      const int t = begin + i < tokens ? begin + i : tokens - 1;
      q[i] = x.q + t * x.q_stride + col;
      scale[i] = x.scale + t * x.scale_stride + col / block;
      sum[i] = x.sum + t * x.sum_stride + col / sum_block;
      y[i] = out + t * out_stride;
    }
  }
};

// Float accumulators of a tile: [row pair][token pair].
template <int kPairs>
struct TileSums {
  float32x4_t at[4][kPairs] = {};

  void Load(const TileTokens& tokens, int rows) {
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) {
      const float32x4x2_t a = LoadRows(tokens.y[2 * p], rows);
      const float32x4x2_t b = LoadRows(tokens.y[2 * p + 1], rows);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        at[2 * i][p] = LowHalves(a.val[i], b.val[i]);
        at[2 * i + 1][p] = HighHalves(a.val[i], b.val[i]);
      }
    }
  }
  void Store(const TileTokens& tokens, int rows) const {
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) {
      StoreRows(tokens.y[2 * p], rows, LowHalves(at[0][p], at[1][p]),
                LowHalves(at[2][p], at[3][p]));
      StoreRows(tokens.y[2 * p + 1], rows, HighHalves(at[0][p], at[1][p]),
                HighHalves(at[2][p], at[3][p]));
    }
  }
};

// (a, a, b, b)
inline float32x4_t Doubled(float a, float b) { return vcombine_f32(vdup_n_f32(a), vdup_n_f32(b)); }

// Row factors as accumulators need them: [row pair] of (r0, r1, r0, r1).
struct RowFactors {
  float32x4_t pair[4];
};
inline RowFactors Repeated(float32x4x2_t rows) {
  return {{LowHalves(rows.val[0], rows.val[0]), HighHalves(rows.val[0], rows.val[0]),
           LowHalves(rows.val[1], rows.val[1]), HighHalves(rows.val[1], rows.val[1])}};
}
inline void StoreFactors(float (*out)[4], float32x4x2_t rows) {
  const RowFactors factors = Repeated(rows);
  for (int pair = 0; pair < 4; ++pair) vst1q_f32(out[pair], factors.pair[pair]);
}
inline RowFactors LoadFactors(const float (*in)[4]) {
  return {{vld1q_f32(in[0]), vld1q_f32(in[1]), vld1q_f32(in[2]), vld1q_f32(in[3])}};
}

// Sixteen values (two steps) of a tile's tokens times eight rows, added to `sums`.
// weight(step, pair) gives weight registers.
template <int kPairs, class Weight>
inline void AddSteps(const int8_t* const* q, int64_t offset, const Weight& weight,
                     int32x4_t (*sums)[kPairs]) {
  int8x16_t x[2][kPairs];
#pragma GCC unroll 2
  for (int p = 0; p < kPairs; ++p) {
    const int8x16_t a = vld1q_s8(q[2 * p] + offset), b = vld1q_s8(q[2 * p + 1] + offset);
    x[0][p] = LowHalves(a, b);
    x[1][p] = HighHalves(a, b);
  }
#pragma GCC unroll 2
  for (int step = 0; step < 2; ++step) {
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      const int8x16_t w = weight(step, pair);
#pragma GCC unroll 2
      for (int p = 0; p < kPairs; ++p) {
        sums[pair][p] = vmmlaq_s32(sums[pair][p], x[step][p], w);
      }
    }
  }
}

}  // namespace
}  // namespace reprise::cpu
