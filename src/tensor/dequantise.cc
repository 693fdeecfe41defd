// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"
#include "tensor/factored.h"
#include "tensor/half.h"

namespace reprise {
namespace {

uint32_t LoadWord(const uint8_t* bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
         uint32_t{bytes[3]} << 24;
}

void Decode(const BlockQ8_0& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int e = 0; e < 32; ++e) out[e] = float(block.qs[e]) * d;
}

void Decode(const BlockQ4_0& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = float((block.qs[j] & 15) - 8) * d;
    out[j + 16] = float((block.qs[j] >> 4) - 8) * d;
  }
}

void Decode(const BlockQ4_1& block, float* out) {
  const float d = F16ToF32(block.d);
  const float m = F16ToF32(block.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = float(block.qs[j] & 15) * d + m;
    out[j + 16] = float(block.qs[j] >> 4) * d + m;
  }
}

// Value e of a five-bit block, in [0, 32).
int FiveBits(const uint8_t* qs, uint32_t high, int e) {
  const int low = e < 16 ? qs[e] & 15 : qs[e - 16] >> 4;
  return low | static_cast<int>(high >> e & 1) << 4;
}

void Decode(const BlockQ5_0& block, float* out) {
  const float d = F16ToF32(block.d);
  const uint32_t high = LoadWord(block.qh);
  for (int e = 0; e < 32; ++e) out[e] = float(FiveBits(block.qs, high, e) - 16) * d;
}

void Decode(const BlockQ5_1& block, float* out) {
  const float d = F16ToF32(block.d);
  const float m = F16ToF32(block.m);
  const uint32_t high = LoadWord(block.qh);
  for (int e = 0; e < 32; ++e) out[e] = float(FiveBits(block.qs, high, e)) * d + m;
}

void Decode(const BlockQ2_K& block, float* out) {
  const float d = F16ToF32(block.d);
  const float dmin = F16ToF32(block.dmin);
  for (int s = 0; s < 16; ++s) {
    const uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    const int shift = s % 8 / 2 * 2;
    const float scale = d * float(block.scales[s] & 15);
    const float min = dmin * float(block.scales[s] >> 4);
    for (int l = 0; l < 16; ++l) out[16 * s + l] = scale * float(qs[l] >> shift & 3) - min;
  }
}

int ScaleQ3(const uint8_t* scales, int s) {
  const int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
  const int high = scales[8 + s % 4] >> (s / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

void Decode(const BlockQ3_K& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int s = 0; s < 16; ++s) {
    const uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    const uint8_t* hmask = block.hmask + 16 * (s % 2);
    const int shift = s % 8 / 2 * 2;
    const float scale = d * float(ScaleQ3(block.scales, s));
    for (int l = 0; l < 16; ++l) {
      const int q = (qs[l] >> shift & 3) | (hmask[l] >> (s / 2) & 1) << 2;
      out[16 * s + l] = scale * float(q - 4);
    }
  }
}

struct ScaleAndMin {
  float scale;
  float min;
};

// Of sub-block s of Q4_K and Q5_K.
ScaleAndMin ScaleQ4(const uint8_t* scales, int s, float d, float dmin) {
  int scale, min;
  if (s < 4) {
    scale = scales[s] & 63;
    min = scales[s + 4] & 63;
  } else {
    scale = (scales[s + 4] & 15) | scales[s - 4] >> 6 << 4;
    min = scales[s + 4] >> 4 | scales[s] >> 6 << 4;
  }
  return {d * float(scale), dmin * float(min)};
}

void Decode(const BlockQ4_K& block, float* out) {
  const float d = F16ToF32(block.d);
  const float dmin = F16ToF32(block.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleAndMin sub = ScaleQ4(block.scales, s, d, dmin);
    const uint8_t* qs = block.qs + 32 * (s / 2);
    for (int l = 0; l < 32; ++l) {
      const int q = s % 2 == 0 ? qs[l] & 15 : qs[l] >> 4;
      out[32 * s + l] = sub.scale * float(q) - sub.min;
    }
  }
}

void Decode(const BlockQ5_K& block, float* out) {
  const float d = F16ToF32(block.d);
  const float dmin = F16ToF32(block.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleAndMin sub = ScaleQ4(block.scales, s, d, dmin);
    const uint8_t* qs = block.qs + 32 * (s / 2);
    for (int l = 0; l < 32; ++l) {
      const int low = s % 2 == 0 ? qs[l] & 15 : qs[l] >> 4;
      const int q = low | (block.qh[l] >> s & 1) << 4;
      out[32 * s + l] = sub.scale * float(q) - sub.min;
    }
  }
}

void Decode(const BlockQ6_K& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int s = 0; s < 16; ++s) {
    const int half = s / 8, k = s % 8 / 2, l0 = 16 * (s % 2);
    const uint8_t* ql = block.ql + 64 * half + 32 * (k & 1) + l0;
    const uint8_t* qh = block.qh + 32 * half + l0;
    const int low_shift = k < 2 ? 0 : 4;
    const float scale = d * float(block.scales[s]);
    for (int l = 0; l < 16; ++l) {
      const int q = (ql[l] >> low_shift & 15) | (qh[l] >> (2 * k) & 3) << 4;
      out[16 * s + l] = scale * float(q - 32);
    }
  }
}

void DecodeLevels(const uint8_t* qs, float scale, float* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * float(kIQ4Values[qs[j] & 15]);
    out[j + 16] = scale * float(kIQ4Values[qs[j] >> 4]);
  }
}

void Decode(const BlockIQ4_NL& block, float* out) {
  DecodeLevels(block.qs, F16ToF32(block.d), out);
}

void Decode(const BlockIQ4_XS& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int s = 0; s < 8; ++s) {
    const int low = block.scales_l[s / 2] >> (s % 2 * 4) & 15;
    const int high = block.scales_h >> (2 * s) & 3;
    DecodeLevels(block.qs + 16 * s, d * float((low | high << 4) - 32), out + 32 * s);
  }
}

template <DType kType>
void DecodeFactored(const void* block, float* out) {
  FactoredBlock factored;
  TakeApart(kType, block, &factored);
  const float d = F16ToF32(factored.d) * factored.unit;
  for (int e = 0; e < 256; ++e) {
    out[e] = d * float(int{factored.scale[e / 16]} * factored.value[e]);
  }
}
#define REPRISE_DECODE(name, ...) \
  void Decode(const Block##name& block, float* out) { DecodeFactored<DType::k##name>(&block, out); }
REPRISE_CODED_TYPES(REPRISE_DECODE)
#undef REPRISE_DECODE

void Decode(const BlockMXFP4& block, float* out) {
  const float d = MXFP4Scale(block.e);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * float(kMXFP4Values[block.qs[j] & 15]);
    out[j + 16] = d * float(kMXFP4Values[block.qs[j] >> 4]);
  }
}

template <typename Block>
void DecodeRow(const void* blocks, float* out, int64_t n, int block_elements) {
  const Block* block = static_cast<const Block*>(blocks);
  for (int64_t done = 0; done < n; done += block_elements) Decode(*block++, out + done);
}

template <float (*kToF32)(uint16_t)>
void WidenRow(const void* halves, float* out, int64_t n) {
  const char* bytes = static_cast<const char*>(halves);
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    out[i] = kToF32(bits);
  }
}

}  // namespace

void DequantiseRow(DType dtype, const void* blocks, float* out, int64_t n) {
  const int block = TraitsOf(dtype).block_elements;
  CHECK(dtype != DType::kI32);
  CHECK(n >= 0 && n % block == 0);
  if (n == 0) return;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, blocks, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return WidenRow<F16ToF32>(blocks, out, n);
    case DType::kBF16:
      return WidenRow<BF16ToF32>(blocks, out, n);
#define REPRISE_DECODE(name, ...) \
  case DType::k##name:            \
    return DecodeRow<Block##name>(blocks, out, n, block);
      REPRISE_QUANTISED_TYPES(REPRISE_DECODE)
#undef REPRISE_DECODE
    case DType::kI32:
      break;
  }
}

}  // namespace reprise
