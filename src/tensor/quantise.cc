// SPDX-License-Identifier: Apache-2.0
// Plain types and small blocks: one scale from the largest value, then rounding. The bits are those
// of llama.cpp's reference quantisers, including where they round half up by adding and truncating.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/codec.h"
#include "tensor/encode.h"
#include "tensor/half.h"

namespace reprise {
namespace {

constexpr int kSmall = 32;

// The largest magnitude. A maximum does not depend on the order, so lanes are free to share it.
float Largest(const float* in) {
  float lane[16];
  for (int j = 0; j < 16; ++j) lane[j] = std::max(std::fabs(in[j]), std::fabs(in[j + 16]));
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lane[j] = std::max(lane[j], lane[j + width]);
  }
  return lane[0];
}

// The value of largest magnitude; the first of equals.
float Extreme(const float* in) {
  const float largest = Largest(in);
  for (int e = 0; e < kSmall; ++e) {
    if (std::fabs(in[e]) == largest) return in[e];
  }
  return 0.0f;
}

struct Range {
  float min;
  float max;
};

Range RangeOf(const float* in) {
  Range range{in[0], in[0]};
  for (int e = 1; e < kSmall; ++e) {
    range.min = in[e] < range.min ? in[e] : range.min;
    range.max = in[e] > range.max ? in[e] : range.max;
  }
  return range;
}

float Inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

// floor(value + 0.5) within [0, top].
int RoundUp(float value, int top) { return int(Clamp(value + 0.5f, 0.0f, float(top))); }

// Half away from zero, as roundf: the largest float below one half, added and cut off, rounds like
// that for every float of this size.
int RoundAway(float value) { return int(value + std::copysign(0.49999997f, value)); }

void PackNibbles(const int* q, uint8_t* qs) {
  for (int j = 0; j < 16; ++j) qs[j] = uint8_t((q[j] & 15) | (q[j + 16] & 15) << 4);
}

void PackFifthBits(const int* q, uint8_t* qh) {
  std::memset(qh, 0, 4);
  for (int e = 0; e < kSmall; ++e) qh[e / 8] = uint8_t(qh[e / 8] | (q[e] >> 4 & 1) << (e % 8));
}

bool AllFinite(const float* in, int count) {
  uint32_t largest = 0;  // exponent: 255 for infinity and NaN
  for (int e = 0; e < count; ++e) {
    const uint32_t exponent = std::bit_cast<uint32_t>(in[e]) >> 23 & 255;
    largest = exponent > largest ? exponent : largest;
  }
  return largest != 255;
}

// What decodes to no finite number throughout.
template <typename Block>
void EncodeNotFinite(Block* block) {
  std::memset(block, 0, sizeof *block);
  block->d = F32ToF16(NAN);
}
void EncodeNotFinite(BlockMXFP4* block) {
  block->e = 255;
  std::memset(block->qs, 0x77, sizeof block->qs);  // 12 * 2^127
}

template <typename Block>
void EncodeRow(const float* in, void* blocks, int64_t n, int block_elements) {
  Block* block = static_cast<Block*>(blocks);
  for (int64_t done = 0; done < n; done += block_elements, ++block) {
    if (AllFinite(in + done, block_elements)) {
      Encode(in + done, block);
    } else {
      EncodeNotFinite(block);
    }
  }
}

template <uint16_t (*kFromF32)(float)>
void NarrowRow(const float* in, void* halves, int64_t n) {
  char* bytes = static_cast<char*>(halves);
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = kFromF32(in[i]);
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
}

}  // namespace

void Encode(const float* in, BlockQ8_0* block) {
  const float d = Largest(in) / 127.0f;
  const float inverse = Inverse(d);
  int q[kSmall];
  for (int e = 0; e < kSmall; ++e) q[e] = RoundAway(Clamp(in[e] * inverse, -127.0f, 127.0f));
  block->d = F32ToF16(d);
  for (int e = 0; e < kSmall; ++e) block->qs[e] = int8_t(q[e]);
}

void Encode(const float* in, BlockQ4_0* block) {
  const float d = Extreme(in) / -8.0f;  // so that the extreme itself is -8 exactly
  const float inverse = Inverse(d);
  int q[kSmall];
  for (int e = 0; e < kSmall; ++e) q[e] = int(Clamp(in[e] * inverse + 8.5f, 0.0f, 15.0f));
  block->d = F32ToF16(d);
  PackNibbles(q, block->qs);
}

void Encode(const float* in, BlockQ4_1* block) {
  const Range range = RangeOf(in);
  const float d = (range.max - range.min) / 15.0f;
  const float inverse = Inverse(d);
  int q[kSmall];
  for (int e = 0; e < kSmall; ++e) q[e] = RoundUp((in[e] - range.min) * inverse, 15);
  block->d = F32ToF16(d);
  block->m = F32ToF16(range.min);
  PackNibbles(q, block->qs);
}

void Encode(const float* in, BlockQ5_0* block) {
  const float d = Extreme(in) / -16.0f;
  const float inverse = Inverse(d);
  int q[kSmall];
  for (int e = 0; e < kSmall; ++e) q[e] = int(Clamp(in[e] * inverse + 16.5f, 0.0f, 31.0f));
  block->d = F32ToF16(d);
  PackFifthBits(q, block->qh);
  PackNibbles(q, block->qs);
}

void Encode(const float* in, BlockQ5_1* block) {
  const Range range = RangeOf(in);
  const float d = (range.max - range.min) / 31.0f;
  const float inverse = Inverse(d);
  int q[kSmall];
  for (int e = 0; e < kSmall; ++e) q[e] = RoundUp((in[e] - range.min) * inverse, 31);
  block->d = F32ToF16(d);
  block->m = F32ToF16(range.min);
  PackFifthBits(q, block->qh);
  PackNibbles(q, block->qs);
}

// The scale that makes the largest magnitude a level of the top binade; the nearest levels, the
// first of equals.
void Encode(const float* in, BlockMXFP4* block) {
  const float largest = Largest(in);
  block->e = largest == 0 ? 0 : uint8_t(std::clamp(std::ilogb(largest) - 2 + 127, 0, 255));
  const float d = MXFP4Scale(block->e);
  int q[kSmall];
  for (int e = 0; e < kSmall; ++e) {
    q[e] = 0;
    float least = std::fabs(in[e]);
    for (int level = 1; level < 16; ++level) {
      const float error = std::fabs(d * float(kMXFP4Values[level]) - in[e]);
      if (error < least) {
        least = error;
        q[e] = level;
      }
    }
  }
  PackNibbles(q, block->qs);
}

namespace {

// The nearest of -1, 0, 1 times the largest magnitude, as 0, 1, 2; with the largest value's bits in
// f16 for a scale.
uint16_t Ternary(const float* in, uint8_t* digits) {
  float largest = 0;
  for (int e = 0; e < 256; ++e) largest = std::max(largest, std::fabs(in[e]));
  const float inverse = Inverse(largest);
  for (int e = 0; e < 256; ++e) {
    digits[e] = uint8_t(RoundAway(Clamp(in[e] * inverse, -1.0f, 1.0f)) + 1);
  }
  return F32ToF16(largest);
}

// Digits `first`, first + step, ... as one byte of TQ1_0.
uint8_t PackDigits(const uint8_t* digits, int first, int step, int count) {
  constexpr int kPowers[] = {81, 27, 9, 3, 1};
  int number = 0;
  for (int k = 0; k < count; ++k) number += digits[first + k * step] * kPowers[k];
  return uint8_t((number * 256 + 242) / 243);
}

}  // namespace

void Encode(const float* in, BlockTQ1_0* block) {
  uint8_t digits[256];
  block->d = Ternary(in, digits);
  for (int l = 0; l < 32; ++l) block->qs[l] = PackDigits(digits, l, 32, 5);
  for (int l = 0; l < 16; ++l) block->qs[32 + l] = PackDigits(digits, 160 + l, 16, 5);
  for (int l = 0; l < 4; ++l) block->qh[l] = PackDigits(digits, 240 + l, 4, 4);
}

void Encode(const float* in, BlockTQ2_0* block) {
  uint8_t digits[256];
  block->d = Ternary(in, digits);
  for (int l = 0; l < 64; ++l) {
    const uint8_t* first = digits + 128 * (l / 32) + l % 32;
    block->qs[l] = uint8_t(first[0] | first[32] << 2 | first[64] << 4 | first[96] << 6);
  }
}

bool CanQuantise(DType dtype) {
  switch (dtype) {
#define REPRISE_GRID(name, ...) case DType::k##name:
    REPRISE_GRID_TYPES(REPRISE_GRID)
#undef REPRISE_GRID
    case DType::kI32:
      return false;
    default:
      return true;
  }
}

void QuantiseRow(DType dtype, const float* in, void* blocks, int64_t n) {
  const int block = TraitsOf(dtype).block_elements;
  CHECK(CanQuantise(dtype));
  CHECK(n >= 0 && n % block == 0);
  if (n == 0) return;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(blocks, in, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return NarrowRow<F32ToF16>(in, blocks, n);
    case DType::kBF16:
      return NarrowRow<F32ToBF16>(in, blocks, n);
#define REPRISE_ENCODE(name, ...) \
  case DType::k##name:            \
    return EncodeRow<Block##name>(in, blocks, n, block);
      REPRISE_SMALL_TYPES(REPRISE_ENCODE)
      REPRISE_SUPER_TYPES(REPRISE_ENCODE)
      REPRISE_TERNARY_TYPES(REPRISE_ENCODE)
#undef REPRISE_ENCODE
    default:
      break;
  }
}

}  // namespace reprise
