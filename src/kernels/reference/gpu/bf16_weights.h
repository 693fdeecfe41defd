// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

// BF16 weights as products on tensor cores take them: in f16, after a multiplication by the power
// of two that brings the largest of the matrix to the top of f16's range; the product is multiplied
// by its inverse at last. A weight has 8 significant bits and f16 has room for 11, so all that are
// at least 2^-32 of the largest are kept exactly, and smaller ones to 2^-40 of it, less than f32
// sums resolve. What is gained are activations in f16: their rounding is an eighth of bf16's.
namespace reprise::reference {

// The bits of the largest finite magnitude.
uint16_t LargestBF16(std::span<const uint16_t> weights);

// e, where the largest magnitude times 2^e is in [2^15, 2^16); 0 if it is 0, and within [-112, 96].
int BF16Exponent(uint16_t largest);

// weight * 2^exponent, rounded to nearest even. Infinities and NaN stay.
uint16_t BF16ToScaledF16(uint16_t weight, int exponent);

}  // namespace reprise::reference
