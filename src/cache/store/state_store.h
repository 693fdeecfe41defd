// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "cache/store/action.h"
#include "cache/store/state_copies.h"
#include "cache/store/unit_arena.h"
#include "state/batch.h"
#include "state/spec.h"

namespace reprise {

// StateStore is the memory that StateIndex talks about: blocks and recurrent states. It carries out
// actions in their order and knows nothing of trees. Where the thread that calls would do it
// itself, large states are filled beside it (state_copies.h).
//
// Thread safety: none.
// Invariant: free units keep their pages only below the limit that the last Back was given.
class StateStore {
 public:
  struct Sizes {
    size_t block_count = 0;
    size_t state_count = 0;
  };
  // `memory` must outlive it.
  static Result<std::unique_ptr<StateStore>> Make(const StateSpec& spec, const Sizes& sizes,
                                                  DeviceMemory& memory = HostMemory());

  // REQUIRES: what is taken has been backed.
  void Apply(std::span<const Action> actions);
  // Gets memory for units that are to be taken next. Gives pages of free units back where more than
  // `resident_limit` bytes would be resident, and of all of them if the device has no more. Fails
  // with what the device says.
  Status Back(std::span<const BlockId> blocks, std::span<const StateId> states,
              size_t resident_limit);
  // The same for units that may be taken soon, where that is all within the limit and the device
  // has it: nothing is given back for them.
  void BackAhead(std::span<const BlockId> blocks, std::span<const StateId> states,
                 size_t resident_limit);
  void SetTime(int64_t now_ms) { now_ms_ = now_ms; }
  // From now on a block is zeros when it is taken: state leaves this memory in whole blocks, and
  // rows that were never written must not hold what another request left there.
  void ClearTaken() { clear_taken_ = true; }
  // Gives pages of units that were free for `unused_ms` back to the system, about `bytes` of them;
  // returns true if there was something to give.
  bool GiveBack(size_t bytes, int64_t unused_ms = 0);

  // Whether states are filled beside the thread that calls, which then asks, before it uses one,
  // whether it is filled.
  static bool FillsBeside(const StateSpec& spec, const DeviceMemory& memory);
  bool filling(StateId state) const { return copies_.busy(state.value); }
  // Waits until it is, for so long at most.
  void AwaitFilled(StateId state, std::chrono::nanoseconds timeout) {
    copies_.Await(state.value, timeout);
  }
  // Waits until it is, whatever that takes. Returns how long it took the first time, else nothing.
  std::optional<int64_t> EndFilling(StateId state) { return copies_.End(state.value); }

  const StateMemory& memory() const { return memory_; }
  size_t resident_bytes() const;

 private:
  StateStore(const StateSpec& spec, DeviceMemory* device);
  void Fill(uint32_t to, std::optional<uint32_t> from);
  size_t Want(std::span<const BlockId> blocks, std::span<const StateId> states);
  Status BackWanted();

  const StateLayout layout_;
  DeviceMemory* const device_;
  const bool fills_beside_;
  UnitArena blocks_;  // [block_count, block_bytes]
  UnitArena states_;  // [state_count, state_bytes]
  StateMemory memory_;
  bool clear_taken_ = false;
  int64_t now_ms_ = 0;
  StateCopies copies_;  // ends before the memory does
};

}  // namespace reprise
