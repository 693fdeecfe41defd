// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/lanes-inl.h"

// K and V of type q8_0 (KernelTable says what that is): into a block, and out of one as f32.
namespace reprise::cpu {
namespace {

inline int GroupsOf(int channels) { return (channels + kGroup - 1) / kGroup; }

// Quantises n <= 32 channels; returns the scale.
inline uint16_t QuantiseGroup(const float* x, int n, int8_t* codes) {
  float values[kGroup] = {};
  for (int i = 0; i < n; ++i) values[i] = x[i];
  uint32_t bits[kGroup];
  __builtin_memcpy(bits, values, sizeof(bits));
  uint32_t most = 0;  // NaN is larger than infinity is larger than any number
  for (int i = 0; i < kGroup; ++i) {
    const uint32_t magnitude = bits[i] & 0x7FFFFFFF;
    most = magnitude > most ? magnitude : most;
  }
  float max;
  __builtin_memcpy(&max, &most, sizeof(max));
  uint16_t scale[16];
  Store(scale, Set(max / 127.0f));
  const bool finite = most < 0x7F800000 && scale[0] < 0x7C00;
  if (!finite || scale[0] == 0) {
    __builtin_memset(codes, 0, size_t(n));
    return finite ? uint16_t{0} : uint16_t{0x7E00};
  }
  const V16 inverse = Div(Set(1), Load(scale));
  for (int i = 0; i < kGroup; i += 16) {
    const V16 q = Min(Max(Mul(Load(values + i), inverse), Set(-127)), Set(127));
    Store(values + i, Add(q, Set(0x1.8p23f)));  // the low bits are the integer, half to even
  }
  __builtin_memcpy(bits, values, sizeof(bits));
  for (int i = 0; i < n; ++i) codes[i] = static_cast<int8_t>(bits[i] & 0xFF);
  return scale[0];
}

void StoreKeysQ8(const float* x, int64_t x_stride, int tokens, int head_dim, int slot, void* k) {
  int8_t* const codes = static_cast<int8_t*>(k);
  uint16_t* const scales = reinterpret_cast<uint16_t*>(codes + kKeys * head_dim);
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < head_dim; c += kGroup) {
      const int n = head_dim - c < kGroup ? head_dim - c : kGroup;
      int8_t group[kGroup];
      scales[c / kGroup * kKeys + slot + t] = QuantiseGroup(x + t * x_stride + c, n, group);
      for (int i = 0; i < n; ++i) codes[(c + i) * kKeys + slot + t] = group[i];
    }
  }
}

void StoreValuesQ8(const float* x, int64_t x_stride, int tokens, int value_dim, int slot, void* v) {
  int8_t* const codes = static_cast<int8_t*>(v);
  uint16_t* const scales = reinterpret_cast<uint16_t*>(codes + kKeys * value_dim);
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < value_dim; c += kGroup) {
      const int n = value_dim - c < kGroup ? value_dim - c : kGroup;
      scales[(slot + t) * GroupsOf(value_dim) + c / kGroup] =
          QuantiseGroup(x + t * x_stride + c, n, codes + (slot + t) * value_dim + c);
    }
  }
}

// Columns [begin, end), whole vectors, of K [head_dim, 64].
inline void WidenKeysQ8(const void* k, int head_dim, int begin, int end, float* wide) {
  const int8_t* const codes = static_cast<const int8_t*>(k);
  const uint16_t* const scales = reinterpret_cast<const uint16_t*>(codes + kKeys * head_dim);
  for (int j = begin; j < end; j += 16) {
    V16 scale = Zero();
    for (int c = 0; c < head_dim; ++c) {
      if (c % kGroup == 0) scale = Load(scales + c / kGroup * kKeys + j);
      Store(wide + c * kKeys + j, RoundF16(Mul(scale, Load(codes + c * kKeys + j))));
    }
  }
}

// Rows [begin, end) of V [64, value_dim].
inline void WidenValuesQ8(const void* v, int value_dim, int begin, int end, float* wide) {
  const int8_t* const codes = static_cast<const int8_t*>(v);
  const uint16_t* const scales = reinterpret_cast<const uint16_t*>(codes + kKeys * value_dim);
  const int groups = GroupsOf(value_dim);
  for (int j = begin; j < end; ++j) {
    float scale[16];
    for (int c = 0; c < value_dim; c += 16) {
      const int group = c / kGroup;
      if (c % (16 * kGroup) == 0) {
        Store(scale,
              LoadPartial(scales + j * groups + group, groups - group < 16 ? groups - group : 16));
      }
      const int n = value_dim - c < 16 ? value_dim - c : 16;
      const V16 code = LoadPartial(codes + j * value_dim + c, n);
      StorePartial(wide + j * value_dim + c, RoundF16(Mul(Set(scale[group % 16]), code)), n);
    }
  }
}

}  // namespace
}  // namespace reprise::cpu
