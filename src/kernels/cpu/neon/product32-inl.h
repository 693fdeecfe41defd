// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/neon/product-inl.h"
#include "kernels/cpu/neon/weights-inl.h"

// Products of 32-blocks.
namespace reprise::cpu {
namespace {

template <class F>
struct Direct32 {
  const typename F::Packed* blocks;

  inline int8x16_t Weight(int b, int step, int pair) const {
    return F::Weight(blocks[b], step, pair);
  }
  inline float32x4x2_t Scale(int b) const { return LoadScale<F>(blocks[b]); }
  inline float32x4x2_t Minimum(int b) const {
    if constexpr (F::kMinimum) return LoadHalves(blocks[b].m);
    return {};
  }
  inline void Prefetch(int b) const { PrefetchAfter(blocks + b); }
};

template <class F>
struct Panel32 {
  alignas(64) int8_t w[kPanelCols / 32][4][4][16];
  float d[kPanelCols / 32][8];
  float m[F::kMinimum ? kPanelCols / 32 : 1][8];

  void Fill(const typename F::Packed* blocks, int count) {
    for (int b = 0; b < count; ++b) {
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        vst1q_s8(w[b][i / 4][i % 4], F::Weight(blocks[b], i / 4, i % 4));
      }
      vst1q_f32_x2(d[b], LoadScale<F>(blocks[b]));
      if constexpr (F::kMinimum) vst1q_f32_x2(m[b], LoadHalves(blocks[b].m));
    }
  }
  inline int8x16_t Weight(int b, int step, int pair) const { return vld1q_s8(w[b][step][pair]); }
  inline float32x4x2_t Scale(int b) const { return vld1q_f32_x2(d[b]); }
  inline float32x4x2_t Minimum(int b) const { return vld1q_f32_x2(m[b]); }
  inline void Prefetch(int) const {}
};

template <class F, class Dot, int kTokens, class Source>
[[gnu::noinline]] void Tile32(const Source& source, int blocks, const Activations& x, float* y,
                              int64_t y_stride, int rows, bool first) {
  float32x4x2_t acc[kTokens] = {};
  if (!first) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[t] = LoadRows(y + t * y_stride, rows);
  }
  for (int b = 0; b < blocks; ++b) {
    source.Prefetch(b);
    Dot dot[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) dot[t].Start(MagicBits(F::kShift));
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      int8x16_t x0[kTokens], x1[kTokens];
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const int8x16_t values = vld1q_s8(x.q[t] + 32 * b + 16 * half);
        x0[t] = Twice(values, 0);
        x1[t] = Twice(values, 1);
      }
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; ++pair) {
        const int8x16_t w0 = source.Weight(b, 2 * half, pair);
        const int8x16_t w1 = source.Weight(b, 2 * half + 1, pair);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) dot[t].Add(pair, w0, w1, x0[t], x1[t]);
      }
    }
    const float32x4x2_t d = source.Scale(b);
    const float32x4x2_t m = source.Minimum(b);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const int32x4x2_t sum = dot[t].Sum();
      const float dx = x.scale[t][b];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        acc[t].val[i] = vfmaq_f32(acc[t].val[i], vmulq_n_f32(d.val[i], dx),
                                  MagicToFloat<F::kShift>(sum.val[i]));
        if constexpr (F::kMinimum) {
          acc[t].val[i] = vfmaq_n_f32(acc[t].val[i], vmulq_n_f32(m.val[i], dx),
                                      static_cast<float>(x.sum[t][b]));
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    StoreRows(y + t * y_stride, rows, acc[t].val[0], acc[t].val[1]);
  }
}

template <class F, class Dot>
void Run32(const void* group, int rows, int64_t cols, const float*, int64_t, const QuantisedRows* x,
           int tokens, float* y, int64_t y_stride) {
  const auto* packed = static_cast<const typename F::Packed*>(group);
  if (tokens == 1) {
    const Activations view(*x, 0, 1, 0, 32, 32);
    return Tile32<F, Dot, 1>(Direct32<F>{packed}, static_cast<int>(cols / 32), view, y, y_stride,
                             rows, true);
  }
  Panel32<F> panel;
  for (int64_t col = 0; col < cols; col += kPanelCols) {
    const int blocks = static_cast<int>((cols - col < kPanelCols ? cols - col : kPanelCols) / 32);
    panel.Fill(packed + col / 32, blocks);
    int t = 0;
    for (; t + Dot::kTokens <= tokens; t += Dot::kTokens) {
      const Activations view(*x, t, Dot::kTokens, col, 32, 32);
      Tile32<F, Dot, Dot::kTokens>(panel, blocks, view, y + t * y_stride, y_stride, rows, col == 0);
    }
    for (; t < tokens; ++t) {
      const Activations view(*x, t, 1, col, 32, 32);
      Tile32<F, Dot, 1>(panel, blocks, view, y + t * y_stride, y_stride, rows, col == 0);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu
