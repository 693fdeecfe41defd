// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/lanes-inl.h"

// Keys into their transposed block (store_keys_* of KernelTable), and values out of one.
namespace reprise::cpu {
namespace {

// An element that is bf16, where uint16_t is f16.
struct BF16 {
  uint16_t bits;
};

inline V16 Load(const BF16* p) { return LoadBF16(reinterpret_cast<const uint16_t*>(p)); }
inline V16 LoadPartial(const BF16* p, int n) {
  return LoadPartialBF16(reinterpret_cast<const uint16_t*>(p), n);
}
// To nearest even; NaN stays one. The compiler makes vectors of it.
inline void Store(BF16* p, V16 x) {
  float values[16];
  uint32_t bits[16];
  Store(values, x);
  __builtin_memcpy(bits, values, sizeof(bits));
  for (int i = 0; i < 16; ++i) {
    const uint32_t rounded = (bits[i] + 0x7FFF + (bits[i] >> 16 & 1)) >> 16;
    const uint32_t quiet = bits[i] >> 16 | 0x40;
    p[i].bits = static_cast<uint16_t>((bits[i] & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
  }
}
inline void StorePartial(BF16* p, V16 x, int n) {
  BF16 whole[16];
  Store(whole, x);
  for (int i = 0; i < n; ++i) p[i] = whole[i];
}

template <typename Element>
void StoreKeys(const float* x, int64_t x_stride, int tokens, int head_dim, int slot, Element* k) {
  for (int t = 0; t < tokens; t += 16) {
    const int n = tokens - t < 16 ? tokens - t : 16;
    for (int i = 0; i < head_dim; i += 16) {
      const int channels = head_dim - i < 16 ? head_dim - i : 16;
      V16 rows[16];
      for (int row = 0; row < 16; ++row) {
        rows[row] = row < n ? LoadPartial(x + (t + row) * x_stride + i, channels) : Zero();
      }
      Transpose(rows);
      for (int c = 0; c < channels; ++c) {
        Element* at = k + (i + c) * kKeys + slot + t;
        if (n == 16) {
          Store(at, rows[c]);
        } else {
          StorePartial(at, rows[c], n);
        }
      }
    }
  }
}

void StoreKeysF32(const float* x, int64_t x_stride, int tokens, int head_dim, int slot, float* k) {
  StoreKeys(x, x_stride, tokens, head_dim, slot, k);
}

// Elements of 16 bits: few tokens are not worth a transposition.
template <typename Element>
void StoreHalfKeys(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                   Element* k) {
  if (tokens >= 4) return StoreKeys(x, x_stride, tokens, head_dim, slot, k);
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < head_dim; i += 16) {
      const int channels = head_dim - i < 16 ? head_dim - i : 16;
      Element part[16];
      Store(part, LoadPartial(x + t * x_stride + i, channels));
      for (int c = 0; c < channels; ++c) k[(i + c) * kKeys + slot + t] = part[c];
    }
  }
}

void StoreKeysF16(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                  uint16_t* k) {
  StoreHalfKeys(x, x_stride, tokens, head_dim, slot, k);
}

void StoreKeysBF16(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                   uint16_t* k) {
  StoreHalfKeys(x, x_stride, tokens, head_dim, slot, reinterpret_cast<BF16*>(k));
}

// v[j][c] = k[c][j] for c in [0, value_dim).
template <typename Element>
inline void ValuesFromKeys(const Element* k, int value_dim, float* v) {
  for (int c = 0; c < value_dim; c += 16) {
    const int channels = value_dim - c < 16 ? value_dim - c : 16;
    for (int j = 0; j < kKeys; j += 16) {
      V16 rows[16];
      for (int i = 0; i < 16; ++i) {
        rows[i] = i < channels ? Load(k + (c + i) * kKeys + j) : Zero();
      }
      Transpose(rows);
      for (int i = 0; i < 16; ++i) StorePartial(v + (j + i) * value_dim + c, rows[i], channels);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu
