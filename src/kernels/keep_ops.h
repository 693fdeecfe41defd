// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

// What keeping a part of the K/V of a sequence takes (SnapKV, docs/snapkv.md): how much its keys
// weigh with some of its queries, and moving the rows that stay together. A backend that has these
// says so (Backend::keeps).
namespace reprise {

// Rows [row_begin, row_begin + row_count) of the step, all of one sequence, and where the weights
// of its keys are summed.
struct ScoredRows {
  int32_t sequence = 0;  // of the step
  int32_t row_begin = 0;
  int32_t row_count = 0;
  DevicePtr<float> weights;  // [kv_heads, stride]
  int64_t stride = 0;        // at least the rows of K/V that the last row sees
};
// For each of the rows, in order, and each query head of K/V head h, in order: weights[h][j] =
// weights[h][j] + p_j, where p is the softmax that Attend takes over the keys that the row sees:
// its maximum and sum are those of Attend, p_j = exp(s_j - max) * (1 / sum). So the sums are the
// same however the rows came into steps. K of this step is stored.
// REQUIRES: no window.
void ScoreKeys(const OpContext& context, const StepLayout& step, const KvPlace& place,
               const KvShape& shape, const AttentionParams& params, const ConstRows& q,
               const ScoredRows& rows);

// The rows of a sequence's K/V that stay. Arrays lie in the memory of the backend.
struct KeptRows {
  DevicePtr<std::byte> block_memory;
  size_t block_bytes = 0;
  DevicePtr<const uint32_t> from;  // blocks of the rows as they are
  DevicePtr<const uint32_t> to;    // [ceil(count / 64)] blocks of the rows that stay
  DevicePtr<const int32_t> rows;   // [kv_heads, count], ascending
  int64_t count = 0;               // of each head
};
// Row rows[h][i] of K and V of head h becomes row i. A block may stay where it is: to[b] is from[b]
// or none of `from`.
void KeepRows(const OpContext& context, const KvPlace& place, const KvShape& shape,
              const KeptRows& kept);

}  // namespace reprise
