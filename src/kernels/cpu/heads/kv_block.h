// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/raw.h"
#include "kernels/cpu/table.h"
#include "kernels/step_layout.h"
#include "tensor/kv_row.h"

// Where K/V of a sequence lies.
namespace reprise::cpu {

inline std::byte* BlockOf(const StepLayout& step, const StepSequence& sequence, int64_t block) {
  const uint32_t id = step.host.blocks[size_t(sequence.block_begin + block)];
  return Raw(step.block_memory) + size_t{id} * step.block_bytes;
}

// Where K or V of a head begin in their part of a block: all rows of a head lie together.
inline size_t HeadOffset(DType type, int64_t head, int64_t channels) {
  return size_t(head * kKeys) * KvRowBytes(type, channels);
}

}  // namespace reprise::cpu
