// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

// What K and V may be stored as: f32, f16, bf16, or q8_0. A row of q8_0 (one token of one head) has
// a code of 8 bits for every channel and a scale, f16, for every kKvGroup of them; the last group
// of a row may be smaller. Where codes and scales lie, and what they mean, is the kernels' affair
// (kernels/cpu/table.h).
namespace reprise {

inline constexpr int kKvGroup = 32;

// Scales of a row of q8_0.
constexpr int64_t KvGroups(int64_t channels) { return (channels + kKvGroup - 1) / kKvGroup; }

constexpr bool IsKvType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kQ8_0;
}

// Bytes of a row. REQUIRES: IsKvType.
constexpr size_t KvRowBytes(DType dtype, int64_t channels) {
  const int64_t bytes = dtype == DType::kQ8_0  ? channels + 2 * KvGroups(channels)
                        : dtype == DType::kF32 ? 4 * channels
                                               : 2 * channels;
  return static_cast<size_t>(bytes);
}

}  // namespace reprise
