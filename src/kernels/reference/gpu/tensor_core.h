// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

// The arithmetic of a tensor core as plain integers: what `mma.sync.m16n8k16` and
// `wgmma.m64nNk16` compute on Hopper (sm_90) for one output, bit for bit. The GPU's products and
// attention are specified with it, so a machine without a GPU can say what they must give.
//
// One step takes 16 pairs and an f32 accumulator:
//  1. Products are exact. Each, and the accumulator, is a significand with an exponent that is the
//     sum of its factors' (denormals have the smallest normal exponent and no leading one).
//  2. All 17 are aligned to the largest exponent and truncated, toward zero, 25 binary places below
//     it; a term that is zero takes no part in finding the largest.
//  3. The sum is exact and is truncated, toward zero, to f32 (denormals included); where nothing is
//     left it is +0.
//  The order of the 16 pairs does not matter. A NaN, inf * 0 or inf - inf gives the NaN 0x7FFFFFFF.
// Two steps of 8 are not one of 16, and other architectures differ: the name of the architecture is
// part of a backend's numerics.
namespace reprise::reference {

enum class Half : uint8_t { kF16, kBF16 };

inline constexpr int kTensorStep = 16;    // pairs of a step
inline constexpr int kTensorSlice = 512;  // elements of K that are one chain of steps

// a[0..16) . b[0..16) + c.
float TensorStep(Half type, const uint16_t* a, const uint16_t* b, float c);

// A chain of steps over `n` elements, ascending, from +0. Missing elements of the last step are 0.
float TensorChain(Half type, const uint16_t* a, const uint16_t* b, int64_t n);

// The product of a row of weights and a row of activations, both f16: chains over slices of 512,
// added in f32, ascending (the first is taken as it is).
float TensorDot(const uint16_t* a, const uint16_t* b, int64_t n);

// A row of activations as the product takes it: rounded to nearest even in f16, after a
// multiplication by 2^-e where a finite element would round to infinity (e the smallest that brings
// the largest below 2^15); returns 2^e, by which the product is multiplied at last.
float RoundRow(std::span<const float> x, uint16_t* out);

// y = TensorDot(weight, rounded x) * scale (+ bias): one output of a product with 16-bit weights.
// scale: that of the row, times that of the matrix (bf16_weights.h).
inline float TensorProduct(const uint16_t* weight, const uint16_t* x, int64_t n, float scale,
                           const float* bias) {
  const float y = TensorDot(weight, x, n) * scale;
  return bias != nullptr ? y + *bias : y;
}

}  // namespace reprise::reference
