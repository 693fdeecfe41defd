// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/neon/product-inl.h"
#include "kernels/cpu/neon/weights_coded-inl.h"

// Products of 256-blocks.
namespace reprise::cpu {
namespace {

template <class F>
struct Direct256 {
  const typename F::Packed* blocks;

  // One block, its scales unpacked.
  struct Block {
    const typename F::Packed& packed;
    typename F::Scales scales;

    inline int8x16_t Weight(int run, int step, int pair) const {
      return F::Weight(packed, scales, run, step, pair);
    }
    inline float32x4x2_t Scale() const { return LoadScale<F>(packed); }
    inline float32x4x2_t Minimum() const {
      if constexpr (F::kMinima > 0) return LoadHalves(packed.dmin);
      return {};
    }
  };
  inline Block At(int b) const {
    PrefetchAfter(blocks + b);
    return {blocks[b], F::Unpack(blocks[b])};
  }
};

template <class F>
struct Panel256 {
  struct Block {
    alignas(64) int8_t w[8][4][4][16];
    typename F::Scales scales;
    float d[8];
    float dmin[8];

    inline int8x16_t Weight(int run, int step, int pair) const {
      return vld1q_s8(w[run][step][pair]);
    }
    inline float32x4x2_t Scale() const { return vld1q_f32_x2(d); }
    inline float32x4x2_t Minimum() const { return vld1q_f32_x2(dmin); }
  };
  Block block[kPanelCols / 256];

  void Fill(const typename F::Packed* blocks, int count) {
    for (int b = 0; b < count; ++b) {
      block[b].scales = F::Unpack(blocks[b]);
#pragma GCC unroll 8
      for (int run = 0; run < 8; ++run) {
        for (int i = 0; i < 16; ++i) {
          vst1q_s8(block[b].w[run][i / 4][i % 4],
                   F::Weight(blocks[b], block[b].scales, run, i / 4, i % 4));
        }
      }
      vst1q_f32_x2(block[b].d, LoadScale<F>(blocks[b]));
      if constexpr (F::kMinima > 0) vst1q_f32_x2(block[b].dmin, LoadHalves(blocks[b].dmin));
    }
  }
  inline const Block& At(int b) const { return block[b]; }
};

inline int32x4x2_t MultiplyAdd(int32x4x2_t acc, int32x4x2_t a, const int8_t* eight) {
  const int16x8_t scale = vmovl_s8(vld1_s8(eight));
  return {{vmlaq_s32(acc.val[0], a.val[0], vmovl_s16(vget_low_s16(scale))),
           vmlaq_s32(acc.val[1], a.val[1], vmovl_high_s16(scale))}};
}

// Sum over sub-blocks of scale * dot, for each row and token.
template <class F, class Dot, int kTokens, class Block>
inline void BlockSums(const Block& block, const int8_t* const* q, int32x4x2_t* total) {
  Dot dot[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) dot[t].Start(0);
#pragma GCC unroll 8
  for (int run = 0; run < 8; ++run) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      int8x16_t x0[kTokens], x1[kTokens];
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const int8x16_t values = vld1q_s8(q[t] + 32 * run + 16 * half);
        x0[t] = Twice(values, 0);
        x1[t] = Twice(values, 1);
      }
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; ++pair) {
        const int8x16_t w0 = block.Weight(run, 2 * half, pair);
        const int8x16_t w1 = block.Weight(run, 2 * half + 1, pair);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) dot[t].Add(pair, w0, w1, x0[t], x1[t]);
      }
      const int end = 32 * run + 16 * half + 16;
      if (F::kSubBlock == 256 || end % F::kSubBlock != 0) continue;
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        total[t] = MultiplyAdd(total[t], dot[t].Sum(), block.scales.scale[end / F::kSubBlock - 1]);
        dot[t].Start(0);
      }
    }
  }
  if constexpr (F::kSubBlock == 256) {
    for (int t = 0; t < kTokens; ++t) total[t] = dot[t].Sum();
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int32x4_t& v : total[t].val) {
      if constexpr (F::kShift > 0) v = vshrq_n_s32(v, F::kShift);  // exact
      if constexpr (F::kNegated) v = vnegq_s32(v);
    }
  }
}

// Sum over sub-blocks of min * sum of activations. sums: one per 16 values.
template <class F>
inline int32x4x2_t BlockMinima(const int8_t (*min)[8], const int16_t* sums) {
  int32x4x2_t total = {};
#pragma GCC unroll 16
  for (int i = 0; i < F::kMinima; ++i) {
    const int16x8_t eight = vmovl_s8(vld1_s8(min[i]));
    const int sum = F::kMinima == 16 ? sums[i] : sums[2 * i] + sums[2 * i + 1];
    total.val[0] = vmlal_n_s16(total.val[0], vget_low_s16(eight), static_cast<int16_t>(sum));
    total.val[1] = vmlal_high_n_s16(total.val[1], eight, static_cast<int16_t>(sum));
  }
  return total;
}

template <class F, class Dot, int kTokens, class Source>
[[gnu::noinline]] void Tile256(const Source& source, int blocks, const Activations& x, float* y,
                               int64_t y_stride, int rows, bool first) {
  float32x4x2_t acc[kTokens] = {};
  if (!first) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[t] = LoadRows(y + t * y_stride, rows);
  }
  for (int b = 0; b < blocks; ++b) {
    const auto& block = source.At(b);
    const int8_t* q[kTokens];
    int32x4x2_t total[kTokens] = {};
    for (int t = 0; t < kTokens; ++t) q[t] = x.q[t] + 256 * b;
    BlockSums<F, Dot, kTokens>(block, q, total);
    const float32x4x2_t d = block.Scale();
    const float32x4x2_t dmin = block.Minimum();
    for (int t = 0; t < kTokens; ++t) {
      const float dx = x.scale[t][b];
      for (int i = 0; i < 2; ++i) {
        acc[t].val[i] =
            vfmaq_f32(acc[t].val[i], vmulq_n_f32(d.val[i], dx), vcvtq_f32_s32(total[t].val[i]));
      }
      if constexpr (F::kMinima > 0) {
        const int32x4x2_t minima = BlockMinima<F>(block.scales.min, x.sum[t] + 16 * b);
        for (int i = 0; i < 2; ++i) {
          acc[t].val[i] =
              vfmsq_f32(acc[t].val[i], vmulq_n_f32(dmin.val[i], dx), vcvtq_f32_s32(minima.val[i]));
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
void Run256(const void* group, int rows, int64_t cols, const float*, int64_t,
            const QuantisedRows* x, int tokens, float* y, int64_t y_stride) {
  const auto* packed = static_cast<const typename F::Packed*>(group);
  if (tokens == 1) {
    const Activations view(*x, 0, 1, 0, 256, 16);
    return Tile256<F, Dot, 1>(Direct256<F>{packed}, static_cast<int>(cols / 256), view, y, y_stride,
                              rows, true);
  }
  Panel256<F> panel;
  for (int64_t col = 0; col < cols; col += kPanelCols) {
    const int blocks = static_cast<int>((cols - col < kPanelCols ? cols - col : kPanelCols) / 256);
    panel.Fill(packed + col / 256, blocks);
    int t = 0;
    for (; t + Dot::kTokens <= tokens; t += Dot::kTokens) {
      const Activations view(*x, t, Dot::kTokens, col, 256, 16);
      Tile256<F, Dot, Dot::kTokens>(panel, blocks, view, y + t * y_stride, y_stride, rows,
                                    col == 0);
    }
    for (; t < tokens; ++t) {
      const Activations view(*x, t, 1, col, 256, 16);
      Tile256<F, Dot, 1>(panel, blocks, view, y + t * y_stride, y_stride, rows, col == 0);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu
