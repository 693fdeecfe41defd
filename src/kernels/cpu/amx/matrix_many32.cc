// SPDX-License-Identifier: Apache-2.0
// Products of many tokens with 32-blocks. A tile multiplication covers one block of 16 rows and 16
// tokens; its integers go through memory to be scaled and added to the result, which is what
// bounds the speed. Eight blocks at a time are widened to signed bytes (Q8_0 is used as it lies)
// and go over a chunk of tokens, so weights come from the first-level cache, as the results so far
// do.
#include <immintrin.h>

#include "kernels/cpu/amx/matrix_many.h"
#include "kernels/cpu/amx/tiles-inl.h"
#include "kernels/cpu/avx512/integer-inl.h"
#include "kernels/cpu/generic/prefetch-inl.h"
#include "kernels/cpu/generic/weights32-inl.h"
#include "tensor/dtype.h"

namespace reprise::cpu {
namespace {

using V = IntegerAvx512;
constexpr int kBlocks = 8;               // widened at a time
constexpr int kChunkTokens = 128;        // whose results stay in the first-level cache
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
  alignas(64) int32_t sums[2 * kBlocks * kTileFloats];
};

// Bytes of W as the signed values they stand for.
template <typename W>
Widened Widen(const uint8_t* block, int blocks, Buffers* buffers) {
  constexpr bool kAsTheyAre = W::kSigned && W::kBytes == 32 * 34;
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* from = block + b * W::kBytes;
    for (int row = 0; row < 32; row += 16) {
      _mm512_store_ps(buffers->d + b * 32 + row, ScaleOf<V, W>(from, row));
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

// What one tile of tokens needs of its activations, at constant distances.
struct TokenScales {
  alignas(64) float scale[kTileRows * kBlocks];  // [tokens][blocks]
  alignas(64) float sum[kTileRows * kBlocks];    // for types with a minimum
};

template <bool kMinimum>
inline void LoadScales(const QuantisedRows& x, int tokens, int blocks, TokenScales* out) {
  const __mmask8 mask = static_cast<__mmask8>((1u << blocks) - 1);
  for (int t = 0; t < tokens; ++t) {
    const __m256 scale = _mm256_maskz_loadu_ps(mask, x.scale + t * x.scale_stride);
    _mm256_store_ps(out->scale + t * kBlocks, scale);
    if (!kMinimum) continue;
    const __m128i sum = _mm_maskz_loadu_epi16(mask, x.sum + t * x.sum_stride);
    _mm256_store_ps(out->sum + t * kBlocks, _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(sum)));
  }
}

// One tile of tokens over some blocks of the group.
struct Job {
  const Widened* w;
  const int8_t* q;  // of the first token and block
  int64_t q_stride;
  int blocks;
  bool both;  // halves of the group's rows
  const TokenScales* scales;
  int32_t* sums;  // [halves][kBlocks][tokens][16 rows]
  // Weights that are asked for meanwhile: so many bytes for a block, by each of three passes.
  Asked* asked;
  int ask_bytes;

  int32_t* Sums(int b, int half) const { return sums + (half * kBlocks + b) * kTileFloats; }
};

// Multiplies one half of block b, after storing what the tile held: that of block b - 2. A store
// right after the multiplication would wait for it.
template <int kSums, int kActivations, int kWeights, int kHalf>
inline void MultiplyHalf(const Job& job, int b) {
  LoadTile<kWeights>(job.w->q + b * job.w->block_bytes + kHalf * 64, kUnit4);
  if (b >= 2) StoreTile<kSums>(job.Sums(b - 2, kHalf), 64);
  ZeroTile<kSums>();
  MultiplySigned<kSums, kActivations, kWeights>();
}

template <int kParity>
inline void MultiplyBlock(const Job& job, int b) {
  LoadTile<4 + kParity>(job.q + 32 * b, job.q_stride);
  job.asked->More<64>(job.ask_bytes);
  MultiplyHalf<2 * kParity, 4 + kParity, 6, 0>(job, b);
  if (job.both) MultiplyHalf<2 * kParity + 1, 4 + kParity, 7, 1>(job, b);
}

template <int kParity>
inline void StoreBlock(const Job& job, int b) {
  if (b < 0) return;
  StoreTile<2 * kParity>(job.Sums(b, 0), 64);
  if (job.both) StoreTile<2 * kParity + 1>(job.Sums(b, 1), 64);
}

// All integers of the tile. Apart from the floats: the vector unit runs at half its speed while the
// tile unit has work.
inline void MultiplyBlocks(const Job& job) {
  int b = 0;
  for (; b + 2 <= job.blocks; b += 2) {
    MultiplyBlock<0>(job, b);
    MultiplyBlock<1>(job, b + 1);
  }
  if (b < job.blocks) {
    MultiplyBlock<0>(job, b);
    StoreBlock<1>(job, b - 1);
    StoreBlock<0>(job, b);
  } else {
    StoreBlock<0>(job, b - 2);
    StoreBlock<1>(job, b - 1);
  }
}

// Scales the integers of one half and adds them to y[kTokens][16 rows of mask]; y holds nothing yet
// if `first`.
template <bool kMinimum, int kTokens>
inline void FoldHalf(const Job& job, int half, bool first, float* y, int64_t y_stride,
                     __mmask16 mask) {
  __m512 acc[kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    acc[t] = first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, y + t * y_stride);
  }
  const int32_t* sums = job.Sums(0, half);
  for (int b = 0; b < job.blocks; ++b, sums += kTileFloats) {
    const __m512 d = _mm512_load_ps(job.w->d + b * 32 + half * 16);
    const __m512 m = kMinimum ? _mm512_load_ps(job.w->m + b * 32 + half * 16) : d;
    const TokenScales& scales = *job.scales;
    job.asked->More<64>(job.ask_bytes);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const __m512 dx = _mm512_set1_ps(scales.scale[t * kBlocks + b]);
      const __m512 isum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + t * 16));
      acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), isum, acc[t]);
      if (kMinimum) {
        const __m512 sum = _mm512_set1_ps(scales.sum[t * kBlocks + b]);
        acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(m, dx), sum, acc[t]);
      }
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

// Where a tile of tokens goes over some blocks of the group.
struct Pass {
  const Widened& w;
  int rows;
  int blocks;
  bool first;
  int32_t* sums;
  Asked* asked;
  int ask_bytes;
};

// A tile of kTokens tokens: both halves of the group.
template <bool kMinimum, int kTokens>
void RunTokens(const Pass& pass, const QuantisedRows& x, float* y, int64_t y_stride) {
  TokenScales scales;
  LoadScales<kMinimum>(x, kTokens, pass.blocks, &scales);
  const Job job = {&pass.w,       x.q,     x.q_stride, pass.blocks,
                   pass.rows > 16, &scales, pass.sums,  pass.asked, pass.ask_bytes};
  MultiplyBlocks(job);
  for (int half = 0; half * 16 < pass.rows; ++half) {
    const int left = pass.rows - half * 16;
    const __mmask16 mask = left >= 16 ? __mmask16(0xFFFF) : __mmask16((1u << left) - 1);
    FoldHalf<kMinimum, kTokens>(job, half, pass.first, y + half * 16, y_stride, mask);
  }
}

// So many tokens, at most kTokens.
template <bool kMinimum, int kTokens>
void RunTile(const Pass& pass, const QuantisedRows& x, int tokens, float* y, int64_t y_stride) {
  if constexpr (kTokens > 0) {
    if (tokens == kTokens) return RunTokens<kMinimum, kTokens>(pass, x, y, y_stride);
    RunTile<kMinimum, kTokens - 1>(pass, x, tokens, y, y_stride);
  }
}

// All blocks of a group for some tokens.
template <typename W>
void RunChunk(const uint8_t* group, int rows, int64_t blocks, const QuantisedRows& quantised,
              int tokens, Buffers* buffers, int* configured, float* y) {
  constexpr int kStride = TileResults<kChunkTokens>::kStride;
  const int tiles = (tokens + kTileRows - 1) / kTileRows;
  for (int64_t b = 0; b < blocks; b += kBlocks) {
    const uint8_t* const block = group + b * W::kBytes;
    const int count = static_cast<int>(blocks - b < kBlocks ? blocks - b : kBlocks);
    const Widened w = Widen<W>(block, count, buffers);
    Asked asked(reinterpret_cast<uintptr_t>(block) + kPrefetchAhead);
    const Pass pass = {w, rows, count, b == 0, buffers->sums, &asked, W::kBytes / (3 * tiles)};
    ForTokenTiles(tokens, 32, configured, [&](int t, int of_tile) {
      const QuantisedRows x = At(quantised, t, b);
      RunTile<W::kMinimum, kTileRows>(pass, x, of_tile, y + t * kStride, kStride);
    });
  }
}

template <typename W>
void RunMany(const void* group, int rows, int64_t cols, const float*, int64_t,
             const QuantisedRows* quantised, int tokens, float* y, int64_t y_stride) {
  Buffers buffers;
  TileResults<kChunkTokens> results;
  int configured = 0;
  for (int t = 0; t < tokens; t += kChunkTokens) {
    const int count = tokens - t < kChunkTokens ? tokens - t : kChunkTokens;
    RunChunk<W>(static_cast<const uint8_t*>(group), rows, cols / 32, At(*quantised, t, 0), count,
                &buffers, &configured, results.y);
    results.Store(rows, count, y + t * y_stride, y_stride);
  }
  ReleaseTiles();
}

template <typename W>
void Set(DType dtype, KernelTable* table) {
  MatrixKernel* kernel = &table->matrix[static_cast<int>(dtype)];
  kernel->isa = "amx";
  kernel->run_many = RunMany<W>;
  kernel->many = W::kBytes == 32 * 34 ? 32 : 24;  // kernels_bench tells
}

}  // namespace

void OverlayAmxMany32(KernelTable* table) {
#define REPRISE_SET(name, ...) Set<Weights##name<V>>(DType::k##name, table);
  REPRISE_SMALL_TYPES(REPRISE_SET)
#undef REPRISE_SET
}

}  // namespace reprise::cpu
