// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

// The arithmetic of a tensor core as plain integers: what `mma.sync.m16n8k16` (and Hopper's
// `wgmma.m64nNk16`) computes for one output, bit for bit. The GPU's products and attention are
// specified with it, so a machine without a GPU can say what they must give.
//
// One step takes L pairs and an f32 accumulator:
//  1. Products are exact. Each, and the accumulator, is a significand with an exponent that is the
//     sum of its factors' (denormals have the smallest normal exponent and no leading one).
//  2. All L + 1 are aligned to the largest exponent and truncated, toward zero, F binary places
//     below it; a term that is zero takes no part in finding the largest.
//  3. The sum is exact and is truncated, toward zero, to f32 (denormals included); where nothing is
//     left it is +0.
//  The order of the L pairs does not matter. A NaN, inf * 0 or inf - inf gives the NaN 0x7FFFFFFF.
// An instruction takes 16 pairs: one step of 16, or two steps of 8, which is something else. So the
// two numbers are part of a backend's numerics, and the name of the GPU is not: those with the same
// numbers have the same bits.
namespace reprise::reference {

enum class Half : uint8_t { kF16, kBF16 };

inline constexpr int kTensorStep = 16;    // pairs of an instruction: of one step at most
inline constexpr int kTensorSlice = 512;  // elements of K that are one chain of steps

struct TensorCore {
  int step;      // L: 8 or 16
  int fraction;  // F

  bool operator==(const TensorCore&) const = default;
};
// Compute capability 7.5 to 8.9, by published models of the hardware (arXiv 2511.10909,
// 2512.07004).
inline constexpr TensorCore kStepsOf8{8, 24};
// 9.0 (measured, kernels/cuda/tensor/mma_test.cu) to 12.0 (by the same models).
inline constexpr TensorCore kStepsOf16{16, 25};
inline constexpr TensorCore kTensorCores[] = {kStepsOf16, kStepsOf8};

// a[0..L) . b[0..L) + c.
float TensorStep(TensorCore core, Half type, const uint16_t* a, const uint16_t* b, float c);

// A chain of steps over `n` elements, ascending, from `sum`. Missing elements of the last step are
// 0.
float TensorChain(TensorCore core, Half type, const uint16_t* a, const uint16_t* b, int64_t n,
                  float sum = 0);

// The product of a row of weights and a row of activations, both f16: chains over slices of 512,
// added in f32, ascending (the first is taken as it is).
float TensorDot(TensorCore core, const uint16_t* a, const uint16_t* b, int64_t n);

// A row of activations as the product takes it: rounded to nearest even in f16, after a
// multiplication by 2^-e where a finite element would round to infinity (e the smallest that brings
// the largest below 2^15); returns 2^e, by which the product is multiplied at last.
float RoundRow(std::span<const float> x, uint16_t* out);

// y = TensorDot(weight, rounded x) * scale (+ bias): one output of a product with 16-bit weights.
// scale: that of the row, times that of the matrix (bf16_weights.h).
inline float TensorProduct(TensorCore core, const uint16_t* weight, const uint16_t* x, int64_t n,
                           float scale, const float* bias) {
  const float y = TensorDot(core, weight, x, n) * scale;
  return bias != nullptr ? y + *bias : y;
}

}  // namespace reprise::reference
