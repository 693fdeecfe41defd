// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "state/ids.h"
#include "state/spec.h"

namespace reprise {

// A place inside a step where the recurrent state is wanted: after the first `row_count` rows of
// the slice, the state goes to `snapshot` as well.
struct StateTap {
  uint32_t row_count = 0;
  SnapshotId snapshot;
};

// The rows of one sequence in a step: tokens [row_begin, row_begin + row_count) of the batch stand
// at positions [position, position + row_count) of the sequence.
//
// REQUIRES: `blocks` covers positions [0, position + row_count); the blocks that hold the new
// positions are private to the sequence. `slot` holds the recurrent state after `position` tokens
// (zeros at 0); the step leaves it after position + row_count tokens.
struct SequenceSlice {
  uint32_t row_begin = 0;
  uint32_t row_count = 0;
  int32_t position = 0;
  std::span<const BlockId> blocks;
  SlotId slot;
  std::span<const StateTap> taps = {};  // ascending, 0 < row_count < the slice's
};

// Plain data for one forward pass. Rows of a sequence are contiguous and in order; a sequence
// appears at most once.
struct BatchView {
  std::span<const TokenId> tokens;           // [rows]
  std::span<const SequenceSlice> sequences;  // cover all rows
  std::span<const uint32_t> logit_rows;      // rows whose logits are wanted, ascending
  // Out, [sequences] or empty: 1 if every row of the sequence left the last layer finite. A row
  // reads all the state it writes, so a state that is not finite shows in the rows of its own step.
  std::span<uint8_t> finite = {};
};

// The memory behind the ids of a batch. A view: the owner is cache/store (or a test).
struct StateMemory {
  std::byte* blocks = nullptr;     // [block_count, layout.block_bytes()]
  std::byte* slots = nullptr;      // [slot_count, layout.slot_bytes()]
  std::byte* snapshots = nullptr;  // [snapshot_count, layout.slot_bytes()]
  const StateLayout* layout = nullptr;

  std::byte* block(BlockId id) const { return blocks + size_t{id.value} * layout->block_bytes(); }
  std::byte* snapshot(SnapshotId id) const {
    return snapshots + size_t{id.value} * layout->slot_bytes();
  }
  std::byte* slot(SlotId id) const { return slots + size_t{id.value} * layout->slot_bytes(); }
};

}  // namespace reprise
