// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/table.h"
#include "tensor/dtype.h"

namespace reprise::reference {

// One block of weights as the integers and scales that every kernel multiplies with: its value e is
// d * w[e] - dmin * min[e / 16] (256-blocks) or d * w[e] + m (32-blocks).
struct IntegerBlock {
  float d;
  float m;          // m of 32-blocks, dmin of 256-blocks; 0 for types without a minimum
  int16_t w[256];   // sub-block scale * q; [32] for 32-blocks
  int16_t min[16];  // per 16 values; unused for 32-blocks
};

bool HasMinimum(DType dtype);
// REQUIRES: IsQuantised(dtype).
void ExpandBlock(DType dtype, const void* block, IntegerBlock* out);

// The specification of matrix products, one row per group, stored as in the file.
// REQUIRES: dtype != kI32.
cpu::MatrixKernel MatrixKernelOf(DType dtype);

void Quantise32(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum);
void Quantise256(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum);

// The two factors of an adapter, as stored, rows one after another.
struct LowRankFactors {
  DType dtype = DType::kF32;
  const std::byte* down = nullptr;  // [rank, cols]
  const std::byte* up = nullptr;    // [rows, rank]
  int64_t rank = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  float scale = 1;
};

// The specification of AddLowRank, for one row: y[rows] += up (scale * (down x[cols])).
void AddLowRank(const LowRankFactors& factors, const float* x, float* y);

}  // namespace reprise::reference
