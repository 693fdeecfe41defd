// SPDX-License-Identifier: Apache-2.0
// Products of many tokens with 32-blocks. A tile multiplication covers one block of 16 rows and 16
// tokens; its integers go through memory to be scaled and added to the result, which is what
// bounds the speed. Eight blocks at a time are widened to signed bytes (Q8_0 is used as it lies)
// and go over all tokens, so weights come from the first-level cache; the results so far wait in y.
#include <immintrin.h>

#include "kernels/cpu/amx/matrix_many.h"
#include "kernels/cpu/amx/tiles-inl.h"
#include "kernels/cpu/avx512/integer-inl.h"
#include "kernels/cpu/generic/weights32-inl.h"
#include "tensor/dtype.h"

namespace reprise::cpu {
namespace {

using V = IntegerAvx512;
constexpr int kBlocks = 8;               // widened at a time
constexpr int kAhead = 2;                // blocks multiplied before they are folded
constexpr int kSlots = 4;                // of integers on their way
constexpr int kBlockBytes = 8 * kUnit4;  // of signed bytes: [8 steps][32 rows][4]

struct Widened {
  const uint8_t* q;     // of the first block
  int64_t block_bytes;  // to the next
  const float* d;       // [blocks][32 rows]
  const float* m;       // the same, for types with a minimum
};

struct Buffers {
  alignas(64) uint8_t q[kBlocks * kBlockBytes];
  alignas(64) float d[kBlocks * 32];
  alignas(64) float m[kBlocks * 32];
  alignas(64) int32_t sums[kSlots * kTileFloats];
};

// Bytes of W as the signed values they stand for.
template <typename W>
Widened Widen(const uint8_t* block, int blocks, Buffers* buffers) {
  constexpr bool kAsTheyAre = W::kSigned && W::kBytes == 32 * 34;
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* from = block + b * W::kBytes;
    for (int row = 0; row < 32; row += 16) {
      _mm512_store_ps(buffers->d + b * 32 + row, V::LoadHalves(from + row * 2));
      if (W::kMinimum) {
        _mm512_store_ps(buffers->m + b * 32 + row, V::LoadHalves(from + kUnit2 + row * 2));
      }
      for (int i = 0; i < 8 && !kAsTheyAre; ++i) {
        const __m512i w = W::Step(from, row, i);
        _mm512_store_si512(buffers->q + b * kBlockBytes + i * kUnit4 + row * 4,
                           _mm512_sub_epi8(w, _mm512_set1_epi8(W::kOffset)));
      }
    }
  }
  if (kAsTheyAre) return {block + kUnit2, W::kBytes, buffers->d, buffers->m};
  return {buffers->q, kBlockBytes, buffers->d, buffers->m};
}

// The dot products of block b of 16 rows: sums[token][row]. Tiles of even and odd blocks differ, so
// that one can be multiplied while the other is stored.
inline void MultiplyBlock(const Widened& w, int row, int b, const int8_t* q, int64_t q_stride,
                          int32_t* sums) {
  const uint8_t* weights = w.q + b * w.block_bytes + row * 4;
  if (b % 2 == 0) {
    LoadTile<6>(weights, kUnit4);
    LoadTile<4>(q + 32 * b, q_stride);
    ZeroTile<0>();
    MultiplySigned<0, 4, 6>();
    StoreTile<0>(sums, 64);
  } else {
    LoadTile<7>(weights, kUnit4);
    LoadTile<5>(q + 32 * b, q_stride);
    ZeroTile<1>();
    MultiplySigned<1, 5, 7>();
    StoreTile<1>(sums, 64);
  }
}

// acc of one token and 16 rows, one block further.
template <bool kMinimum>
inline __m512 FoldBlock(__m512 acc, const int32_t* sums, __m512 d, __m512 m, float scale,
                        int16_t sum) {
  const __m512 dx = _mm512_set1_ps(scale);
  acc = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(_mm512_load_si512(sums)), acc);
  if (kMinimum) {
    acc = _mm512_fmadd_ps(_mm512_mul_ps(m, dx), _mm512_set1_ps(float(sum)), acc);
  }
  return acc;
}

// Adds `blocks` blocks to y[kTokens][16 rows of mask]. The multiplication of a block runs ahead of
// its folding by kAhead.
template <bool kMinimum, int kTokens>
inline void RunTile(const Widened& w, int row, int blocks, bool first, const QuantisedRows& x,
                    int32_t* sums, float* y, int64_t y_stride, __mmask16 mask) {
  __m512 acc[kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    acc[t] = first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, y + t * y_stride);
  }
  for (int next = 0; next < blocks + kAhead; ++next) {
    if (next < blocks) {
      MultiplyBlock(w, row, next, x.q, x.q_stride, sums + next % kSlots * kTileFloats);
    }
    const int b = next - kAhead;
    if (b < 0) continue;
    const int32_t* from = sums + b % kSlots * kTileFloats;
    const __m512 d = _mm512_load_ps(w.d + b * 32 + row);
    const __m512 m = kMinimum ? _mm512_load_ps(w.m + b * 32 + row) : d;
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      acc[t] = FoldBlock<kMinimum>(acc[t], from + t * 16, d, m, x.scale[t * x.scale_stride + b],
                                   kMinimum ? x.sum[t * x.sum_stride + b] : int16_t{0});
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) _mm512_mask_storeu_ps(y + t * y_stride, mask, acc[t]);
}

QuantisedRows At(const QuantisedRows& x, int64_t token, int64_t block) {
  QuantisedRows moved = x;
  moved.q += token * x.q_stride + 32 * block;
  moved.scale += token * x.scale_stride + block;
  moved.sum += token * x.sum_stride + block;
  return moved;
}

// A tile of kTokens tokens, or of fewer than 16: both halves of the group.
template <bool kMinimum, int kTokens>
void RunTokens(const Widened& w, int rows, int blocks, bool first, const QuantisedRows& x,
               int32_t* sums, float* y, int64_t y_stride) {
  for (int row = 0; row < rows; row += 16) {
    const int left = rows - row;
    const __mmask16 mask = left >= 16 ? __mmask16(0xFFFF) : __mmask16((1u << left) - 1);
    RunTile<kMinimum, kTokens>(w, row, blocks, first, x, sums, y + row, y_stride, mask);
  }
}

// The last tokens, fewer than 16.
template <bool kMinimum, int kTokens>
void RunRest(const Widened& w, int rows, int blocks, bool first, const QuantisedRows& x, int tokens,
             int32_t* sums, float* y, int64_t y_stride) {
  if constexpr (kTokens > 0) {
    if (tokens == kTokens) {
      return RunTokens<kMinimum, kTokens>(w, rows, blocks, first, x, sums, y, y_stride);
    }
    RunRest<kMinimum, kTokens - 1>(w, rows, blocks, first, x, tokens, sums, y, y_stride);
  }
}

template <typename W>
void RunMany(const void* group, int rows, int64_t cols, const float*, int64_t,
             const QuantisedRows* quantised, int tokens, float* y, int64_t y_stride) {
  Buffers buffers;
  const int64_t blocks = cols / 32;
  const uint8_t* block = static_cast<const uint8_t*>(group);
  const int whole = tokens / kTileRows * kTileRows;
  for (int64_t b = 0; b < blocks; b += kBlocks) {
    const int count = static_cast<int>(blocks - b < kBlocks ? blocks - b : kBlocks);
    const Widened w = Widen<W>(block + b * W::kBytes, count, &buffers);
    if (whole > 0) ConfigureTiles(kTileRows, 32);
    for (int t = 0; t < tokens; t += kTileRows) {
      if (t == whole) ConfigureTiles(tokens - whole, 32);
      const QuantisedRows x = At(*quantised, t, b);
      float* out = y + t * y_stride;
      if (t < whole) {
        RunTokens<W::kMinimum, kTileRows>(w, rows, count, b == 0, x, buffers.sums, out, y_stride);
      } else {
        RunRest<W::kMinimum, kTileRows - 1>(w, rows, count, b == 0, x, tokens - t, buffers.sums,
                                            out, y_stride);
      }
    }
  }
  ReleaseTiles();
}

template <typename W>
void Set(DType dtype, KernelTable* table) {
  MatrixKernel* kernel = &table->matrix[static_cast<int>(dtype)];
  kernel->isa = "amx";
  kernel->run_many = RunMany<W>;
  kernel->many = 12;
}

}  // namespace

void OverlayAmxMany32(KernelTable* table) {
  Set<WeightsQ8_0<V>>(DType::kQ8_0, table);
  Set<WeightsQ4_0<V>>(DType::kQ4_0, table);
  Set<WeightsQ4_1<V>>(DType::kQ4_1, table);
  Set<WeightsQ5_0<V>>(DType::kQ5_0, table);
  Set<WeightsQ5_1<V>>(DType::kQ5_1, table);
  Set<WeightsIQ4_NL<V>>(DType::kIQ4_NL, table);
}

}  // namespace reprise::cpu
