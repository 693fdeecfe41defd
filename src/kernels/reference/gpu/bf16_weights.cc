// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/gpu/bf16_weights.h"

#include <algorithm>
#include <cmath>

#include "tensor/half.h"

namespace reprise::reference {

uint16_t LargestBF16(std::span<const uint16_t> weights) {
  uint16_t largest = 0;
  for (const uint16_t weight : weights) {
    const uint16_t magnitude = weight & 0x7FFF;
    if (magnitude < 0x7F80 && magnitude > largest) largest = magnitude;
  }
  return largest;
}

int BF16Exponent(uint16_t largest) {
  if (largest == 0) return 0;
  return std::clamp(15 - std::ilogb(BF16ToF32(largest)), -112, 96);
}

uint16_t BF16ToScaledF16(uint16_t weight, int exponent) {
  // Most are normal numbers in both: the field of the exponent moves, and three zeros come behind.
  const int field = (weight >> 7 & 0xFF) + exponent - 127 + 15;
  if ((weight & 0x7F80) != 0 && (weight & 0x7F80) != 0x7F80 && field >= 1 && field <= 30) {
    return static_cast<uint16_t>((weight & 0x8000) | field << 10 | (weight & 0x7F) << 3);
  }
  return F32ToF16(std::ldexp(BF16ToF32(weight), exponent));
}

}  // namespace reprise::reference
