// SPDX-License-Identifier: Apache-2.0
// Products of many tokens with 256-blocks. Scale times value of a sub-block is an integer of at
// most 14 bits; its low and high byte are two matrices of bytes, whose products over a whole block
// are summed by the tile unit alone: isum = low + 256 * high. So sub-blocks cost nothing, and the
// floats are touched once per block. A block is widened once for a chunk of tokens.
#include <immintrin.h>

#include "kernels/cpu/amx/matrix_many.h"
#include "kernels/cpu/amx/tiles-inl.h"
#include "kernels/cpu/avx512/integer-inl.h"
#include "kernels/cpu/generic/prefetch-inl.h"
#include "kernels/cpu/generic/weights_coded-inl.h"
#include "tensor/dtype.h"

namespace reprise::cpu {
namespace {

using V = IntegerAvx512;
constexpr int kChunkTokens = 256;  // a block is widened once for so many
constexpr int kDepth = 64;         // values that one tile multiplication covers

struct Widened {
  alignas(64) uint8_t low[64 * kUnit4];  // [64 steps][32 rows][4]
  alignas(64) uint8_t high[64 * kUnit4];
  alignas(64) float d[32];
  alignas(64) float dmin[32];
  alignas(64) int32_t min_pairs[8 * 32];      // [pairs][32 rows], 16 bits each
  alignas(64) int32_t sums[4 * kTileFloats];  // low and high of rows 0-15, then of 16-31
};

// All products of Q2_K fit in one byte without a sign.
template <typename W>
constexpr bool kOneByte = W::kBytes == 32 * 84;

// Sub-blocks of 32 have one minimum for two sums of the activations.
template <typename W>
constexpr int kMinPairs = W::kSub == 32 ? 4 : 8;

template <typename W>
inline void WidenStep(__m512i w, __m512i scales, uint8_t* low, uint8_t* high) {
  const __m512i bytes = _mm512_set1_epi16(0x00FF);
  __m512i even, odd;
  if (W::kSigned) {
    even = _mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8);
    odd = _mm512_srai_epi16(w, 8);
  } else {
    const __m512i offset = _mm512_set1_epi16(W::kOffset);
    even = _mm512_sub_epi16(_mm512_and_si512(w, bytes), offset);
    odd = _mm512_sub_epi16(_mm512_srli_epi16(w, 8), offset);
  }
  even = _mm512_mullo_epi16(even, scales);
  odd = _mm512_mullo_epi16(odd, scales);
  _mm512_store_si512(low,
                     _mm512_or_si512(_mm512_and_si512(even, bytes), _mm512_slli_epi16(odd, 8)));
  if (kOneByte<W>) return;
  _mm512_store_si512(high,
                     _mm512_or_si512(_mm512_srli_epi16(even, 8), _mm512_andnot_si512(bytes, odd)));
}

template <typename W>
void WidenMinima(const W& weights, const uint8_t* block, int row, Widened* out) {
  if constexpr (W::kMinimum) {
    _mm512_store_ps(out->dmin + row, V::LoadHalves(block + kUnit2 + row * 2));
    for (int j = 0; j < kMinPairs<W>; ++j) {
      __m512i pair = weights.MinPair(block, row, j);
      if (W::kSub == 32) {  // from (min 2j, min 2j) and (min 2j + 1, min 2j + 1)
        const __m512i second = weights.MinPair(block, row, 2 * j + 1);
        pair = _mm512_mask_blend_epi16(0xAAAAAAAA, weights.MinPair(block, row, 2 * j), second);
      }
      _mm512_store_si512(out->min_pairs + j * 32 + row, pair);
    }
  }
}

// Half of the weights that are asked for meanwhile.
template <typename W>
void Widen(const uint8_t* block, Asked* asked, Widened* out) {
  const W weights;
  constexpr int kAskBytes = W::kBytes / (4 * W::kChunks);
  for (int row = 0; row < 32; row += 16) {
    __m512 d = V::LoadHalves(block + row * 2);
    if (W::kUnit != 1) d = V::Mul(d, V::SetFloat(W::kUnit));
    _mm512_store_ps(out->d + row, d);
    WidenMinima(weights, block, row, out);
    for (int chunk = 0; chunk < W::kChunks; ++chunk) {
      asked->More<kAskBytes>(kAskBytes);
#pragma GCC unroll 8
      for (int sub = 0; sub < W::kSubs; ++sub) {
        const int s = chunk * W::kSubs + sub;
        const __m512i scale = weights.Scale(block, row, s);
        const __m512i scales = _mm512_mask_blend_epi16(0xAAAAAAAA, scale, V::ShiftLeft<16>(scale));
        for (int i = 0; i < W::kSub / 4; ++i) {
          const int at = (s * W::kSub / 4 + i) * kUnit4 + row * 4;
          WidenStep<W>(weights.Step(block, row, chunk, sub, i), scales, out->low + at,
                       out->high + at);
        }
      }
    }
  }
}

// sums = activations * weights over a whole block, for one half of the group's rows.
template <bool kHigh>
inline void MultiplyHalf(const Widened& w, int row, const int8_t* q, int64_t q_stride, Asked* asked,
                         int ask_bytes, int32_t* sums) {
  ZeroTile<0>();
  if (kHigh) ZeroTile<1>();
  for (int step = 0; step < 4; ++step) {
    asked->More<64>(ask_bytes);
    const int at = step * (kDepth / 4) * kUnit4 + row * 4;
    LoadTile<4>(q + step * kDepth, q_stride);
    LoadTile<6>(w.low + at, kUnit4);
    MultiplyUnsigned<0, 4, 6>();
    if (!kHigh) continue;
    LoadTile<7>(w.high + at, kUnit4);
    MultiplySigned<1, 4, 7>();
  }
  StoreTile<0>(sums, 64);
  if (kHigh) StoreTile<1>(sums + kTileFloats, 64);
}

// The same for both halves: activations are loaded once.
template <bool kHigh>
inline void MultiplyBoth(const Widened& w, const int8_t* q, int64_t q_stride, Asked* asked,
                         int ask_bytes, int32_t* sums) {
  ZeroTile<0>();
  ZeroTile<1>();
  ZeroTile<2>();
  ZeroTile<3>();
  for (int step = 0; step < 4; ++step) {
    asked->More<64>(ask_bytes);
    const int at = step * (kDepth / 4) * kUnit4;
    LoadTile<4>(q + step * kDepth, q_stride);
    LoadTile<6>(w.low + at, kUnit4);
    MultiplyUnsigned<0, 4, 6>();
    LoadTile<7>(w.low + at + 64, kUnit4);
    MultiplyUnsigned<2, 4, 7>();
    if (!kHigh) continue;
    LoadTile<6>(w.high + at, kUnit4);
    MultiplySigned<1, 4, 6>();
    LoadTile<7>(w.high + at + 64, kUnit4);
    MultiplySigned<3, 4, 7>();
  }
  StoreTile<0>(sums, 64);
  StoreTile<2>(sums + 2 * kTileFloats, 64);
  if (!kHigh) return;
  StoreTile<1>(sums + kTileFloats, 64);
  StoreTile<3>(sums + 3 * kTileFloats, 64);
}

struct Tile {
  const QuantisedRows* x;  // at the tile's first token and block
  int tokens;
  bool first;  // block of the row: y holds nothing yet
  float* y;
  int64_t y_stride;
  Asked* asked;  // weights that are asked for meanwhile,
  int ask_bytes;  // so many with every step
};

// Scales the integers of one half and adds them to y.
template <typename W>
inline void FoldHalf(const Widened& w, int row, const int32_t* sums, const int16_t* x_sums,
                     int64_t x_sums_stride, const Tile& tile, __mmask16 mask) {
  const __m512 d = _mm512_load_ps(w.d + row);
  const __m512 dmin = W::kMinimum ? _mm512_load_ps(w.dmin + row) : d;
  __m512i pairs[8];
  for (int j = 0; j < kMinPairs<W> && W::kMinimum; ++j) {
    pairs[j] = _mm512_load_si512(w.min_pairs + j * 32 + row);
  }
  for (int t = 0; t < tile.tokens; ++t) {
    __m512i isum = _mm512_load_si512(sums + t * 16);
    if (!kOneByte<W>) {
      const __m512i high = _mm512_load_si512(sums + kTileFloats + t * 16);
      isum = _mm512_add_epi32(isum, _mm512_slli_epi32(high, 8));
    }
    float* y = tile.y + t * tile.y_stride + row;
    __m512 acc = tile.first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, y);
    const __m512 dx = _mm512_set1_ps(tile.x->scale[t * tile.x->scale_stride]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(isum), acc);
    if (W::kMinimum) {
      __m512i minima[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      for (int j = 0; j < kMinPairs<W>; ++j) {
        const __m512i pair = V::Broadcast(x_sums + t * x_sums_stride + 2 * j);
        minima[j % 2] = _mm512_dpwssd_epi32(minima[j % 2], pairs[j], pair);
      }
      const __m512 total = _mm512_cvtepi32_ps(_mm512_add_epi32(minima[0], minima[1]));
      acc = _mm512_fnmadd_ps(_mm512_mul_ps(dmin, dx), total, acc);
    }
    _mm512_mask_storeu_ps(y, mask, acc);
  }
}

template <typename W>
void RunTile(Widened* w, int rows, const Tile& tile) {
  const QuantisedRows& x = *tile.x;
  const bool both = rows > 16;
  if (both) {
    MultiplyBoth<!kOneByte<W>>(*w, x.q, x.q_stride, tile.asked, tile.ask_bytes, w->sums);
  } else {
    MultiplyHalf<!kOneByte<W>>(*w, 0, x.q, x.q_stride, tile.asked, tile.ask_bytes, w->sums);
  }
  // Sums of 32 activations, where a minimum holds for 32.
  alignas(64) int16_t sums32[kTileRows * 8];
  const int16_t* x_sums = x.sum;
  int64_t x_sums_stride = x.sum_stride;
  if (W::kMinimum && W::kSub == 32) {
    for (int t = 0; t < tile.tokens; ++t) {
      const __m256i sums16 =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.sum + t * x.sum_stride));
      const __m256i added = _mm256_madd_epi16(sums16, _mm256_set1_epi16(1));
      _mm_store_si128(reinterpret_cast<__m128i*>(sums32 + 8 * t), _mm256_cvtepi32_epi16(added));
    }
    x_sums = sums32;
    x_sums_stride = 8;
  }
  const auto mask = [rows](int row) {
    return rows - row >= 16 ? __mmask16(0xFFFF) : __mmask16((1u << (rows - row)) - 1);
  };
  FoldHalf<W>(*w, 0, w->sums, x_sums, x_sums_stride, tile, mask(0));
  if (both) {
    FoldHalf<W>(*w, 16, w->sums + 2 * kTileFloats, x_sums, x_sums_stride, tile, mask(16));
  }
}

// All blocks of a group for some tokens.
template <typename W>
void RunChunk(const uint8_t* block, int rows, int64_t blocks, const QuantisedRows& quantised,
              int tokens, Widened* widened, int* configured, float* y) {
  constexpr int kStride = TileResults<kChunkTokens>::kStride;
  const int ask_bytes = W::kBytes / (8 * ((tokens + kTileRows - 1) / kTileRows));
  for (int64_t b = 0; b < blocks; ++b, block += W::kBytes) {
    Asked asked(reinterpret_cast<uintptr_t>(block) + kPrefetchAhead);
    Widen<W>(block, &asked, widened);
    ForTokenTiles(tokens, kDepth, configured, [&](int t, int count) {
      QuantisedRows x = quantised;
      x.q += t * x.q_stride + 256 * b;
      x.scale += t * x.scale_stride + b;
      x.sum += t * x.sum_stride + 16 * b;
      RunTile<W>(widened, rows,
                 {&x, count, b == 0, y + t * kStride, kStride, &asked, ask_bytes});
    });
  }
}

template <typename W>
void RunMany(const void* group, int rows, int64_t cols, const float*, int64_t,
             const QuantisedRows* quantised, int tokens, float* y, int64_t y_stride) {
  Widened widened;
  TileResults<kChunkTokens> results;
  int configured = 0;
  for (int t = 0; t < tokens; t += kChunkTokens) {
    const int count = tokens - t < kChunkTokens ? tokens - t : kChunkTokens;
    QuantisedRows x = *quantised;
    x.q += t * x.q_stride;
    x.scale += t * x.scale_stride;
    x.sum += t * x.sum_stride;
    RunChunk<W>(static_cast<const uint8_t*>(group), rows, cols / 256, x, count, &widened,
                &configured, results.y);
    results.Store(rows, count, y + t * y_stride, y_stride);
  }
  ReleaseTiles();
}

template <typename W>
void Set(DType dtype, KernelTable* table) {
  MatrixKernel* kernel = &table->matrix[static_cast<int>(dtype)];
  kernel->isa = "amx";
  kernel->run_many = RunMany<W>;
  kernel->many = 20;
  // As kernels_bench tells: minima cost vectors as much as tiles save, offsets cost tiles nothing.
  if constexpr (requires { W::kMost; }) kernel->many = W::kMinimum ? 28 : 12;
}

}  // namespace

void OverlayAmxMany256(KernelTable* table) {
#define REPRISE_SET(name, ...) Set<Weights##name<V>>(DType::k##name, table);
  REPRISE_SUPER_TYPES(REPRISE_SET)
  REPRISE_CODED_TYPES(REPRISE_SET)
#undef REPRISE_SET
}

}  // namespace reprise::cpu
