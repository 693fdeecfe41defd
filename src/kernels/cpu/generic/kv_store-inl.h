// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/lanes-inl.h"

// Keys into their transposed block (store_keys_* of KernelTable), and values out of one.
namespace reprise::cpu {
namespace {

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

void StoreKeysF16(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                  uint16_t* k) {
  if (tokens >= 4) return StoreKeys(x, x_stride, tokens, head_dim, slot, k);
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < head_dim; i += 16) {
      const int channels = head_dim - i < 16 ? head_dim - i : 16;
      uint16_t part[16];
      Store(part, LoadPartial(x + t * x_stride + i, channels));
      for (int c = 0; c < channels; ++c) k[(i + c) * kKeys + slot + t] = part[c];
    }
  }
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
