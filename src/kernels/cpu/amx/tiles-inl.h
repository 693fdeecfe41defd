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
