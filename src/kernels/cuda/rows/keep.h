// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/tensor/attention/attention.h"
#include "kernels/cuda/view.h"

// The ops of kernels/keep_ops.h, with the bits of the CPU for the same queries and keys (weights of
// keys are chains of f32, not products of tensor cores).
namespace reprise::cuda {

// Rows of one sequence that keys are weighed with.
struct ScoredView {
  View q;                 // [step rows, q_heads * head_dim]
  int32_t row_begin = 0;  // of the step
  int32_t row_count = 0;
  int32_t position = 0;      // of the first of them, in the sequence's K/V
  int32_t block_begin = 0;   // of the sequence's entries in step.blocks
  float* weights = nullptr;  // [kv_heads, stride]
  int64_t stride = 0;
  const float* sinks = nullptr;  // [q_heads] or null
};
// Bytes of workspace that ScoreKeys needs.
size_t ScoreWorkspace(const KvView& kv, int q_heads, const ScoredView& rows);
void ScoreKeys(Stream stream, const StepView& step, const KvView& kv, int q_heads, float scale,
               float softcap, const ScoredView& rows, void* workspace);

// Places are device addresses.
struct KeptView {
  std::byte* block_memory = nullptr;
  int64_t block_bytes = 0;
  const uint32_t* from = nullptr;
  const uint32_t* to = nullptr;
  const int32_t* rows = nullptr;  // [kv_heads, count]
  int64_t count = 0;
};
void KeepRows(Stream stream, const KvView& kv, const KeptView& kept);

}  // namespace reprise::cuda
