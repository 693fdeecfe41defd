// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace reprise {

// 16-bit floats as bit patterns. Conversions are exact where possible and round to nearest even
// otherwise; they equal the hardware's (F16C, NEON), which the kernel tests check for all patterns.

inline float BF16ToF32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);  // quiet NaN
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline float F16ToF32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= 0x7C00) {  // infinity, NaN (made quiet)
    const uint32_t quiet = magnitude > 0x7C00 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000 | (magnitude & 0x3FF) << 13 | quiet);
  }
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  // Subnormal: an integer multiple of 2^-24, exact in f32.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return sign != 0 ? -value : value;
}

inline uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000)
    return static_cast<uint16_t>(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // rounds to infinity
  if (magnitude >= 0x38800000) {
    const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | (rounded - (112u << 23)) >> 13);
  }
  // Subnormal result: adding 0.5 aligns the value so that the f32 adder rounds it to 2^-24.
  const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3F000000));
}

}  // namespace reprise
