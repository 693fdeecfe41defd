// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/i8mm/tile-inl.h"
#include "kernels/cpu/neon/product32-inl.h"

// smmla products of 32-blocks.
namespace reprise::cpu {
namespace {

// Weights straight from the packed blocks.
template <class F>
struct PackedTile32 {
  const typename F::Packed* blocks;

  inline int8x16_t Weight(int b, int step, int pair) const {
    return F::Weight(blocks[b], step, pair);
  }
  inline RowFactors Scale(int b) const { return Repeated(LoadScale<F>(blocks[b])); }
  inline RowFactors Minimum(int b) const {
    if constexpr (F::kMinimum) return Repeated(LoadHalves(blocks[b].m));
    return {};
  }
  inline void Prefetch(int b) const { PrefetchAfter(blocks + b); }
};

// A stretch of columns unpacked for many tiles. Eight-bit weights stay where they are.
template <class F>
struct TilePanel32 {
  static constexpr bool kInPlace = __is_same(F, Q8_0);
  const typename F::Packed* packed;
  alignas(64) int8_t w[kInPlace ? 1 : kPanelCols / 32][4][4][16];
  float d[kPanelCols / 32][4][4];
  float m[F::kMinimum ? kPanelCols / 32 : 1][4][4];

  void Fill(const typename F::Packed* blocks, int count) {
    packed = blocks;
    for (int b = 0; b < count; ++b) {
      if constexpr (!kInPlace) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          vst1q_s8(w[b][i / 4][i % 4], F::Weight(blocks[b], i / 4, i % 4));
        }
      }
      StoreFactors(d[b], LoadScale<F>(blocks[b]));
      if constexpr (F::kMinimum) StoreFactors(m[b], LoadHalves(blocks[b].m));
    }
  }
  inline int8x16_t Weight(int b, int step, int pair) const {
    if constexpr (kInPlace) return F::Weight(packed[b], step, pair);
    return vld1q_s8(w[b][step][pair]);
  }
  inline RowFactors Scale(int b) const { return LoadFactors(d[b]); }
  inline RowFactors Minimum(int b) const {
    if constexpr (F::kMinimum) return LoadFactors(m[b]);
    return {};
  }
  inline void Prefetch(int) const {}
};

template <class F, int kPairs, class Source>
[[gnu::noinline]] void MatrixTile32(const Source& source, int blocks, const TileTokens& tokens,
                                    int rows, bool first) {
  TileSums<kPairs> acc;
  if (!first) acc.Load(tokens, rows);
  const int32x4_t start = vdupq_n_s32(MagicBits(F::kShift));
  for (int b = 0; b < blocks; ++b) {
    source.Prefetch(b);
    int32x4_t sums[4][kPairs];
#pragma GCC unroll 8
    for (int i = 0; i < 4 * kPairs; ++i) sums[i / kPairs][i % kPairs] = start;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const auto weight = [&](int step, int pair) {
        return source.Weight(b, 2 * half + step, pair);
      };
      AddSteps<kPairs>(tokens.q, 32 * b + 16 * half, weight, sums);
    }
    const RowFactors d = source.Scale(b);
    const RowFactors m = source.Minimum(b);
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) {
      const int t = 2 * p;
      const float32x4_t dx = Doubled(tokens.scale[t][b], tokens.scale[t + 1][b]);
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; ++pair) {
        float32x4_t& a = acc.at[pair][p];
        a = vfmaq_f32(a, vmulq_f32(d.pair[pair], dx), MagicToFloat<F::kShift>(sums[pair][p]));
      }
      if constexpr (F::kMinimum) {
        const float32x4_t sum = Doubled(tokens.sum[t][b], tokens.sum[t + 1][b]);
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; ++pair) {
          float32x4_t& a = acc.at[pair][p];
          a = vfmaq_f32(a, vmulq_f32(m.pair[pair], dx), sum);
        }
      }
    }
  }
  acc.Store(tokens, rows);
}

template <class F, class Dot>
void MatrixRun32(const void* group, int rows, int64_t cols, const float* floats, int64_t stride,
                 const QuantisedRows* x, int tokens, float* y, int64_t y_stride) {
  if (tokens == 1) {
    return Run32<F, Dot>(group, rows, cols, floats, stride, x, tokens, y, y_stride);
  }
  const auto* packed = static_cast<const typename F::Packed*>(group);
  if (tokens == 2) {
    const TileTokens view(*x, y, y_stride, 0, 2, tokens, 0, 32, 32);
    return MatrixTile32<F, 1>(PackedTile32<F>{packed}, static_cast<int>(cols / 32), view, rows,
                              true);
  }
  if (tokens <= 4) {
    const TileTokens view(*x, y, y_stride, 0, 4, tokens, 0, 32, 32);
    return MatrixTile32<F, 2>(PackedTile32<F>{packed}, static_cast<int>(cols / 32), view, rows,
                              true);
  }
  TilePanel32<F> panel;
  for (int64_t col = 0; col < cols; col += kPanelCols) {
    const int blocks = static_cast<int>((cols - col < kPanelCols ? cols - col : kPanelCols) / 32);
    panel.Fill(packed + col / 32, blocks);
    int t = 0;
    for (; t + 2 < tokens; t += 4) {
      const TileTokens view(*x, y, y_stride, t, 4, tokens, col, 32, 32);
      MatrixTile32<F, 2>(panel, blocks, view, rows, col == 0);
    }
    if (t < tokens) {
      const TileTokens view(*x, y, y_stride, t, 2, tokens, col, 32, 32);
      MatrixTile32<F, 1>(panel, blocks, view, rows, col == 0);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu
