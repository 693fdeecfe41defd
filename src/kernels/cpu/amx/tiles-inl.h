// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>

// The tile registers. Written as assembly because GCC's own macros do not tell the compiler that
// they read memory.
namespace reprise::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileFloats = kTileRows * 16;

// Shapes of the eight tiles: 0-3 are sums [tokens][16 rows], 4-5 activations [tokens][depth bytes],
// 6-7 weights [depth / 4][16 rows][4].
struct TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t column_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

inline void ConfigureTiles(int tokens, int depth) {
  alignas(64) TileConfig config;
  __builtin_memset(&config, 0, sizeof config);
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    const bool weights = tile >= 6, activations = tile == 4 || tile == 5;
    config.rows[tile] = static_cast<uint8_t>(weights ? depth / 4 : tokens);
    config.column_bytes[tile] = static_cast<uint16_t>(activations ? depth : 64);
  }
  asm volatile("ldtilecfg %0" : : "m"(config));
}
inline void ReleaseTiles() { asm volatile("tilerelease"); }

// Calls run(first token, tokens) for tiles of 16 tokens and the last ones, with tiles configured
// for them. `configured` is the number of tokens that they are configured for, at first 0.
template <typename Run>
inline void ForTokenTiles(int tokens, int depth, int* configured, const Run& run) {
  for (int t = 0; t < tokens; t += kTileRows) {
    const int count = tokens - t < kTileRows ? tokens - t : kTileRows;
    if (count != *configured) ConfigureTiles(count, depth);
    *configured = count;
    run(t, count);
  }
}

// Results of some tokens, [tokens][32 rows], while the blocks of a row are added to them. In their
// rows, often a power of two apart, they would share cache sets with each other.
template <int kTokens>
struct TileResults {
  static constexpr int kStride = 32;
  alignas(64) float y[kTokens * kStride];

  void Store(int rows, int tokens, float* to, int64_t stride) const {
    for (int half = 0; half * 16 < rows; ++half) {
      const int left = rows - half * 16;
      const __mmask16 mask = left >= 16 ? __mmask16(0xFFFF) : __mmask16((1u << left) - 1);
      for (int t = 0; t < tokens; ++t) {
        const __m512 of_token = _mm512_load_ps(y + t * kStride + half * 16);
        _mm512_mask_storeu_ps(to + t * stride + half * 16, mask, of_token);
      }
    }
  }
};

template <int kTile>
inline void LoadTile(const void* base, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(base), "r"(stride), "n"(kTile) : "memory");
}
template <int kTile>
inline void StoreTile(void* base, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(base), "r"(stride), "n"(kTile) : "memory");
}
template <int kTile>
inline void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "n"(kTile));
}
// sums += activations * weights; activations are signed, weights signed or not.
template <int kSums, int kActivations, int kWeights>
inline void MultiplySigned() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0"
               :
               : "n"(kSums), "n"(kActivations), "n"(kWeights));
}
template <int kSums, int kActivations, int kWeights>
inline void MultiplyUnsigned() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0"
               :
               : "n"(kSums), "n"(kActivations), "n"(kWeights));
}

}  // namespace
}  // namespace reprise::cpu
