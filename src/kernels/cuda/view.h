// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/step_layout.h"

// Operands of CUDA kernels as plain data: what is passed by value to a launch. Every pointer is a
// device address. Compiled by the host compiler and by nvcc.
struct CUstream_st;

namespace reprise::cuda {

using Stream = CUstream_st*;

// Rows of activations: [rows, cols], `stride` floats apart.
struct View {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
};

using SequenceView = StepSequence;
using TapView = StepTap;

// A step as all its kernels see it, uploaded once.
struct StepView {
  int32_t rows = 0;
  int32_t sequence_count = 0;
  const int32_t* tokens = nullptr;        // [rows]
  const int32_t* positions = nullptr;     // [rows] in the text
  const int32_t* row_sequence = nullptr;  // [rows]
  const SequenceView* sequences = nullptr;
  const uint32_t* blocks = nullptr;  // ids; kNoBlock where a block is gone behind every window
  const TapView* taps = nullptr;
  std::byte* block_memory = nullptr;
  std::byte* state_memory = nullptr;
  int64_t block_bytes = 0;
  int64_t state_bytes = 0;
  int32_t* spoilt = nullptr;  // [sequence_count], or null (StepLayout)
};
// Activations quantised as kernels/cpu/table.h says, in blocks of 32 or 256.
struct QuantisedView {
  int8_t* q = nullptr;     // [rows, cols]
  float* scale = nullptr;  // [rows, cols / block]
  int16_t* sum = nullptr;  // [rows, cols / 32], of 256-blocks [rows, cols / 16]
  int64_t rows = 0;
  int64_t cols = 0;
};

}  // namespace reprise::cuda
