// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "kernels/reference/matrix.h"
#include "tensor/blocks.h"
#include "tensor/factored.h"
#include "tensor/half.h"

namespace reprise::reference {
namespace {

int Nibble(const uint8_t* qs, int e) { return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4; }

int FiveBits(const uint8_t* qh, const uint8_t* qs, int e) {
  return Nibble(qs, e) | (qh[e / 8] >> (e % 8) & 1) << 4;
}

void Expand(const BlockQ8_0& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  for (int e = 0; e < 32; ++e) out->w[e] = block.qs[e];
}

void Expand(const BlockQ4_0& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  for (int e = 0; e < 32; ++e) out->w[e] = int16_t(Nibble(block.qs, e) - 8);
}

void Expand(const BlockQ4_1& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  out->m = F16ToF32(block.m);
  for (int e = 0; e < 32; ++e) out->w[e] = int16_t(Nibble(block.qs, e));
}

void Expand(const BlockQ5_0& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  for (int e = 0; e < 32; ++e) out->w[e] = int16_t(FiveBits(block.qh, block.qs, e) - 16);
}

void Expand(const BlockQ5_1& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  out->m = F16ToF32(block.m);
  for (int e = 0; e < 32; ++e) out->w[e] = int16_t(FiveBits(block.qh, block.qs, e));
}

void Expand(const BlockIQ4_NL& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  for (int e = 0; e < 32; ++e) out->w[e] = kIQ4Values[Nibble(block.qs, e)];
}

void Expand(const BlockMXFP4& block, IntegerBlock* out) {
  out->d = MXFP4Scale(block.e);
  for (int e = 0; e < 32; ++e) out->w[e] = kMXFP4Values[Nibble(block.qs, e)];
}

// The two low bits of value e of Q2_K and Q3_K.
int TwoBits(const uint8_t* qs, int e) {
  return qs[32 * (e / 128) + e % 32] >> e % 128 / 32 * 2 & 3;
}

void Expand(const BlockQ2_K& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  out->m = F16ToF32(block.dmin);
  for (int e = 0; e < 256; ++e) {
    out->w[e] = int16_t((block.scales[e / 16] & 15) * TwoBits(block.qs, e));
  }
  for (int s = 0; s < 16; ++s) out->min[s] = int16_t(block.scales[s] >> 4);
}

void Expand(const BlockQ3_K& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  for (int e = 0; e < 256; ++e) {
    const int s = e / 16;
    const int low = s < 8 ? block.scales[s] & 15 : block.scales[s - 8] >> 4;
    const int high = block.scales[8 + s % 4] >> (s / 4 * 2) & 3;
    const int third = block.hmask[e % 32] >> (e / 32) & 1;
    out->w[e] = int16_t(((low | high << 4) - 32) * ((TwoBits(block.qs, e) | third << 2) - 4));
  }
}

struct ScaleAndMin {
  int scale;
  int min;
};

// Of sub-block s of Q4_K and Q5_K.
ScaleAndMin SixBits(const uint8_t* scales, int s) {
  if (s < 4) return {scales[s] & 63, scales[s + 4] & 63};
  return {(scales[s + 4] & 15) | scales[s - 4] >> 6 << 4, scales[s + 4] >> 4 | scales[s] >> 6 << 4};
}

void Expand(const BlockQ4_K& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  out->m = F16ToF32(block.dmin);
  for (int e = 0; e < 256; ++e) {
    const int s = e / 32, byte = block.qs[32 * (s / 2) + e % 32];
    const ScaleAndMin sub = SixBits(block.scales, s);
    out->w[e] = int16_t(sub.scale * (s % 2 == 0 ? byte & 15 : byte >> 4));
    out->min[e / 16] = int16_t(sub.min);
  }
}

void Expand(const BlockQ5_K& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  out->m = F16ToF32(block.dmin);
  for (int e = 0; e < 256; ++e) {
    const int s = e / 32, l = e % 32, byte = block.qs[32 * (s / 2) + l];
    const ScaleAndMin sub = SixBits(block.scales, s);
    const int low = s % 2 == 0 ? byte & 15 : byte >> 4;
    out->w[e] = int16_t(sub.scale * (low | (block.qh[l] >> s & 1) << 4));
    out->min[e / 16] = int16_t(sub.min);
  }
}

void Expand(const BlockQ6_K& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  for (int e = 0; e < 256; ++e) {
    const int half = e / 128, k = e % 128 / 32, l = e % 32;
    const int byte = block.ql[64 * half + 32 * (k & 1) + l];
    const int low = k < 2 ? byte & 15 : byte >> 4;
    const int high = block.qh[32 * half + l] >> (2 * k) & 3;
    out->w[e] = int16_t(block.scales[e / 16] * ((low | high << 4) - 32));
  }
}

void Expand(const BlockIQ4_XS& block, IntegerBlock* out) {
  out->d = F16ToF32(block.d);
  for (int e = 0; e < 256; ++e) {
    const int s = e / 32;
    const int low = block.scales_l[s / 2] >> (s % 2 * 4) & 15;
    const int high = block.scales_h >> (2 * s) & 3;
    out->w[e] = int16_t(((low | high << 4) - 32) * kIQ4Values[Nibble(block.qs + 16 * s, e % 32)]);
  }
}

template <DType kType>
void ExpandFactored(const void* block, IntegerBlock* out) {
  FactoredBlock factored;
  TakeApart(kType, block, &factored);
  out->d = F16ToF32(factored.d) * factored.unit;
  for (int e = 0; e < 256; ++e) {
    out->w[e] = int16_t(int{factored.scale[e / 16]} * factored.value[e]);
  }
}
#define REPRISE_EXPAND(name, ...)                            \
  void Expand(const Block##name& block, IntegerBlock* out) { \
    ExpandFactored<DType::k##name>(&block, out);             \
  }
REPRISE_CODED_TYPES(REPRISE_EXPAND)
#undef REPRISE_EXPAND

}  // namespace

bool HasMinimum(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ2_K ||
         dtype == DType::kQ4_K || dtype == DType::kQ5_K;
}

void ExpandBlock(DType dtype, const void* block, IntegerBlock* out) {
  out->m = 0;
  switch (dtype) {
#define REPRISE_EXPAND(name, ...) \
  case DType::k##name:            \
    return Expand(*static_cast<const Block##name*>(block), out);
    REPRISE_QUANTISED_TYPES(REPRISE_EXPAND)
#undef REPRISE_EXPAND
    default:
      break;
  }
  CHECK(!"a quantised type");
}

}  // namespace reprise::reference
