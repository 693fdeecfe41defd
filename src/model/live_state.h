// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "state/batch.h"
#include "state/spec.h"

namespace reprise {

// State of a few sequences that share nothing: for commands and tests that run a model without the
// cache. Memory is allocated for the longest sequences; on the host it becomes resident as they
// grow.
//
// Thread safety: none.
class LiveState {
 public:
  // Fails with kResourceExhausted if the address space is refused.
  // REQUIRES: sequence_count > 0, token_max > 0.
  static Result<LiveState> Create(const StateSpec& spec, int sequence_count, int64_t token_max,
                                  DeviceMemory& memory = HostMemory());

  int64_t token_max() const { return token_max_; }
  int64_t length(int sequence) const { return extents_[size_t(sequence)].logical; }
  Extent extent(int sequence) const { return extents_[size_t(sequence)]; }
  std::span<const BlockId> blocks(int sequence) const {
    return std::span(block_ids_).subspan(size_t(sequence) * sequence_blocks_, sequence_blocks_);
  }

  // The next `row_count` tokens of a sequence as rows of a batch. Valid until Create's result
  // moves. REQUIRES: length(sequence) + row_count <= token_max().
  SequenceSlice Next(int sequence, uint32_t row_begin, uint32_t row_count) const;
  // The rows of Next were run.
  void Advance(int sequence, int64_t token_count);
  // Of its K/V, so many rows were kept, in the blocks that it has (Executor::Keep).
  void Keep(int sequence, int32_t kept);
  // An empty sequence again.
  void Clear(int sequence);

  // Copies of a sequence's recurrent state, to return to the length it had then, if no K/V was left
  // out since.
  std::vector<std::byte> SaveState(int sequence) const;
  void Restore(int sequence, int64_t length, const std::vector<std::byte>& saved);

  StateMemory memory() const;

 private:
  LiveState() = default;
  DevicePtr<std::byte> place(int sequence) const {
    return states_.data() + int64_t(size_t(sequence) * layout_.state_bytes());
  }

  StateLayout layout_;
  int64_t token_max_ = 0;
  size_t sequence_blocks_ = 0;
  DeviceMemory* device_ = nullptr;
  DeviceBuffer blocks_;
  DeviceBuffer states_;
  std::vector<BlockId> block_ids_;  // [sequence_count, sequence_blocks_]
  std::vector<Extent> extents_;
};

}  // namespace reprise
