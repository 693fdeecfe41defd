// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/i8mm/tile-inl.h"
#include "kernels/cpu/neon/product256-inl.h"

// smmla products of 256-blocks.
namespace reprise::cpu {
namespace {

// A super-block unpacked for tiles.
template <class F>
struct TileBlock256 {
  static constexpr int kScales = F::kSubBlock == 256 ? 0 : 256 / F::kSubBlock;
  static constexpr int kMinSteps = F::kMinima / 8;

  alignas(64) int8_t w[8][4][4][16];
  int32_t scale[kScales > 0 ? kScales : 1][4][4];    // (r0, r1, r0, r1)
  int8_t min[kMinSteps > 0 ? kMinSteps : 1][4][16];  // weight registers of minima
  float d[4][4];
  float dmin[4][4];

  void Fill(const typename F::Packed& packed) {
    const typename F::Scales scales = F::Unpack(packed);
#pragma GCC unroll 8
    for (int run = 0; run < 8; ++run) {
      for (int i = 0; i < 16; ++i) {
        vst1q_s8(w[run][i / 4][i % 4], F::Weight(packed, scales, run, i / 4, i % 4));
      }
    }
    for (int i = 0; i < kScales; ++i) {
      const int16x8_t eight = vmovl_s8(vld1_s8(scales.scale[i]));
      const int32x4_t low = vmovl_s16(vget_low_s16(eight)), high = vmovl_high_s16(eight);
      const float32x4x2_t rows = {{vreinterpretq_f32_s32(low), vreinterpretq_f32_s32(high)}};
      const RowFactors factors = Repeated(rows);
      for (int pair = 0; pair < 4; ++pair) {
        vst1q_s32(scale[i][pair], vreinterpretq_s32_f32(factors.pair[pair]));
      }
    }
    StoreFactors(d, LoadScale<F>(packed));
    if constexpr (F::kMinima > 0) {
      FillMinima(scales.min);
      StoreFactors(dmin, LoadHalves(packed.dmin));
    }
  }

  // [sub-block][row] to [row][sub-block], eight sub-blocks at a time.
  void FillMinima(const int8_t (*minima)[8]) {
    alignas(16) static constexpr uint8_t kColumns[16] = {0, 8, 16, 24, 32, 40, 48, 56,
                                                         1, 9, 17, 25, 33, 41, 49, 57};
    for (int i = 0; i < kMinSteps; ++i) {
      const int8x16x4_t bytes = vld1q_s8_x4(minima[8 * i]);
      for (int pair = 0; pair < 4; ++pair) {
        const uint8x16_t index =
            vaddq_u8(vld1q_u8(kColumns), vdupq_n_u8(static_cast<uint8_t>(2 * pair)));
        vst1q_s8(min[i][pair], vqtbl4q_s8(bytes, index));
      }
    }
  }
};

// Sums of activations as two int8 vectors: sum = 64 high + low. |sum| <= 32 * 127.
struct SplitSums {
  int8x8_t high;
  int8x8_t low;
};
inline SplitSums Split(int16x8_t sums) {
  return {vshrn_n_s16(sums, 6), vmovn_s16(vandq_s16(sums, vdupq_n_s16(63)))};
}

// Sums of the minima's sub-blocks for two tokens: registers of smmla, eight sub-blocks each.
template <class F>
struct PairSums {
  static constexpr int kSteps = F::kMinima / 8;
  int8x16_t high[kSteps];
  int8x16_t low[kSteps];

  PairSums(const int16_t* a, const int16_t* b) {
    for (int i = 0; i < kSteps; ++i) {
      const SplitSums one = Split(Sums(a, i)), two = Split(Sums(b, i));
      high[i] = vcombine_s8(one.high, two.high);
      low[i] = vcombine_s8(one.low, two.low);
    }
  }
  // The file has a sum per 16 values; eight minima stand for 32 each.
  static inline int16x8_t Sums(const int16_t* sums, int i) {
    if constexpr (kSteps == 2) return vld1q_s16(sums + 8 * i);
    return vpaddq_s16(vld1q_s16(sums), vld1q_s16(sums + 8));
  }
};

template <class F, int kPairs>
inline void SubtractMinima(const TileBlock256<F>& block, const TileTokens& tokens, int b,
                           TileSums<kPairs>* acc) {
  for (int p = 0; p < kPairs; ++p) {
    const int t = 2 * p;
    const PairSums<F> sums(tokens.sum[t] + 16 * b, tokens.sum[t + 1] + 16 * b);
    const float32x4_t dx = Doubled(tokens.scale[t][b], tokens.scale[t + 1][b]);
    for (int pair = 0; pair < 4; ++pair) {
      int32x4_t total = vdupq_n_s32(0);
      for (int i = 0; i < PairSums<F>::kSteps; ++i) {
        total = vmmlaq_s32(total, sums.high[i], vld1q_s8(block.min[i][pair]));
      }
      total = vshlq_n_s32(total, 6);
      for (int i = 0; i < PairSums<F>::kSteps; ++i) {
        total = vmmlaq_s32(total, sums.low[i], vld1q_s8(block.min[i][pair]));
      }
      float32x4_t& a = acc->at[pair][p];
      a = vfmsq_f32(a, vmulq_f32(vld1q_f32(block.dmin[pair]), dx), vcvtq_f32_s32(total));
    }
  }
}

// Sum over sub-blocks of scale * dot.
template <class F, int kPairs>
inline void TileSums256(const TileBlock256<F>& block, const int8_t* const* q, int64_t offset,
                        int32x4_t (*total)[kPairs]) {
  const int32x4_t zero = vdupq_n_s32(0);
#pragma GCC unroll 8
  for (int i = 0; i < 4 * kPairs; ++i) total[i / kPairs][i % kPairs] = zero;
  for (int run = 0; run < 8; ++run) {
    int32x4_t sums[4][kPairs];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const auto weight = [&](int step, int pair) {
        return vld1q_s8(block.w[run][2 * half + step][pair]);
      };
      if constexpr (F::kSubBlock == 256) {
        AddSteps<kPairs>(q, offset + 32 * run + 16 * half, weight, total);
        continue;
      }
      if (F::kSubBlock == 16 || half == 0) {
#pragma GCC unroll 8
        for (int i = 0; i < 4 * kPairs; ++i) sums[i / kPairs][i % kPairs] = zero;
      }
      AddSteps<kPairs>(q, offset + 32 * run + 16 * half, weight, sums);
      if (F::kSubBlock == 32 && half == 0) continue;
      const int sub = F::kSubBlock == 16 ? 2 * run + half : run;
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; ++pair) {
        const int32x4_t scale = vld1q_s32(block.scale[sub][pair]);
#pragma GCC unroll 2
        for (int p = 0; p < kPairs; ++p) {
          total[pair][p] = vmlaq_s32(total[pair][p], sums[pair][p], scale);
        }
      }
    }
  }
}

template <class F, int kPairs>
[[gnu::noinline]] void MatrixTile256(const TileBlock256<F>* panel, int blocks,
                                     const TileTokens& tokens, int rows, bool first) {
  TileSums<kPairs> acc;
  if (!first) acc.Load(tokens, rows);
  for (int b = 0; b < blocks; ++b) {
    const TileBlock256<F>& block = panel[b];
    int32x4_t total[4][kPairs];
    TileSums256<F, kPairs>(block, tokens.q, 256 * b, total);
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) {
      const float32x4_t dx = Doubled(tokens.scale[2 * p][b], tokens.scale[2 * p + 1][b]);
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; ++pair) {
        int32x4_t sum = total[pair][p];
        if constexpr (F::kShift > 0) sum = vshrq_n_s32(sum, F::kShift);  // exact
        if constexpr (F::kNegated) sum = vnegq_s32(sum);
        float32x4_t& a = acc.at[pair][p];
        a = vfmaq_f32(a, vmulq_f32(vld1q_f32(block.d[pair]), dx), vcvtq_f32_s32(sum));
      }
    }
    if constexpr (F::kMinima > 0) SubtractMinima<F, kPairs>(block, tokens, b, &acc);
  }
  acc.Store(tokens, rows);
}

template <class F, class Dot>
void MatrixRun256(const void* group, int rows, int64_t cols, const float* floats, int64_t stride,
                  const QuantisedRows* x, int tokens, float* y, int64_t y_stride) {
  if (tokens == 1) {
    return Run256<F, Dot>(group, rows, cols, floats, stride, x, tokens, y, y_stride);
  }
  const auto* packed = static_cast<const typename F::Packed*>(group);
  constexpr int kBlocks = kPanelCols / 256;
  TileBlock256<F> panel[kBlocks];
  for (int64_t col = 0; col < cols; col += kPanelCols) {
    const int64_t left = (cols - col) / 256;
    const int blocks = static_cast<int>(left < kBlocks ? left : kBlocks);
    for (int b = 0; b < blocks; ++b) panel[b].Fill(packed[col / 256 + b]);
    int t = 0;
    for (; t + 2 < tokens; t += 4) {
      const TileTokens view(*x, y, y_stride, t, 4, tokens, col, 256, 16);
      MatrixTile256<F, 2>(panel, blocks, view, rows, col == 0);
    }
    if (t < tokens) {
      const TileTokens view(*x, y, y_stride, t, 2, tokens, col, 256, 16);
      MatrixTile256<F, 1>(panel, blocks, view, rows, col == 0);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu
