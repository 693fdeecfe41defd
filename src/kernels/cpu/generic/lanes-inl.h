// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whole or partial vectors, and tiles of a state that stay in the first-level cache.
namespace reprise::cpu {
namespace {

// Loads and stores of a vector of which only the first n lanes exist where kPartial.
template <bool kPartial>
inline V16 LoadLanes(const float* p, int n) {
  if constexpr (kPartial) return LoadPartial(p, n);
  return Load(p);
}
template <bool kPartial>
inline void StoreLanes(float* p, V16 x, int n) {
  if constexpr (kPartial) {
    StorePartial(p, x, n);
  } else {
    Store(p, x);
  }
}

// Moves `columns` columns of a matrix of `rows` rows.
inline void CopyColumns(const float* from, int64_t from_stride, int rows, int columns, float* to,
                        int64_t to_stride) {
  for (int i = 0; i < rows; ++i) {
    int c = 0;
    for (; c + 16 <= columns; c += 16) {
      Store(to + i * to_stride + c, Load(from + i * from_stride + c));
    }
    if (c < columns) {
      const int n = columns - c;
      StorePartial(to + i * to_stride + c, LoadPartial(from + i * from_stride + c, n), n);
    }
  }
}

// Calls scan(state) for a matrix state that tokens are about to run over. The rows of a range of
// columns share cache sets (they are a power of two apart), so that even a small range does not
// stay in the first-level cache: over several tokens a packed copy pays.
template <typename Scan>
inline void OnTile(const MatrixState& state, int tokens, const Scan& scan) {
  constexpr int kColumns = 64;
  constexpr int kKeyMax = 128;
  constexpr int kTokensMin = 4;
  if (tokens < kTokensMin || state.keys > kKeyMax || state.columns > kColumns ||
      state.stride <= kColumns) {
    scan(state);
    return;
  }
  alignas(64) float tile[kKeyMax * kColumns];
  CopyColumns(state.data, state.stride, state.keys, state.columns, tile, kColumns);
  scan(MatrixState{tile, kColumns, state.keys, state.columns});
  CopyColumns(tile, kColumns, state.keys, state.columns, state.data, state.stride);
}

// Calls step(Vectors<n>, column, lanes, Partial<bool>) over the columns: tiles of kTile vectors,
// then single vectors, then the last lanes.
template <int kValue>
struct Vectors {
  static constexpr int value = kValue;
};
template <bool kValue>
struct Partial {
  static constexpr bool value = kValue;
};
template <int kTile, typename Step>
inline void ForColumns(int columns, const Step& step) {
  int c = 0;
  for (; c + 16 * kTile <= columns; c += 16 * kTile)
    step(Vectors<kTile>(), c, 16, Partial<false>());
  for (; c + 16 <= columns; c += 16) step(Vectors<1>(), c, 16, Partial<false>());
  if (c < columns) step(Vectors<1>(), c, columns - c, Partial<true>());
}

}  // namespace
}  // namespace reprise::cpu
