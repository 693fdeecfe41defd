// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "device/background.h"
#include "base/status.h"
#include "cache/store/action.h"
#include "cache/store/unit_arena.h"
#include "state/batch.h"
#include "state/spec.h"

namespace reprise {

// StateStore is the memory that StateIndex talks about: blocks and recurrent states. It carries out
// actions in their order and knows nothing of trees.
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
  void SetTime(int64_t now_ms) { now_ms_ = now_ms; }
  // Where the memory is this process's, states of at least `bytes` are copied and cleared by a
  // thread of the store, in the order of the actions. Before a state is read or written by others,
  // they ask whether it is Copying, or WaitFor it.
  void CopyBeside(size_t bytes) { beside_bytes_ = device_ == &HostMemory() ? bytes : SIZE_MAX; }
  bool Copying(StateId state);  // from it or to it
  void WaitFor(StateId state);
  // From now on a block is zeros when it is taken: state leaves this memory in whole blocks, and
  // rows that were never written must not hold what another request left there.
  void ClearTaken() { clear_taken_ = true; }
  // Gives pages of units that were free for `unused_ms` back to the system, about `bytes` of them;
  // returns true if there was something to give.
  bool GiveBack(size_t bytes, int64_t unused_ms = 0);

  const StateMemory& memory() const { return memory_; }
  size_t resident_bytes() const;

 private:
  static constexpr uint32_t kZeros = UINT32_MAX;
  struct StateCopy {
    uint32_t to = 0;
    uint32_t from = kZeros;
    std::atomic<bool> done{false};
  };

  StateStore(const StateSpec& spec, DeviceMemory* device) : layout_(spec), device_(device) {}
  void CopyState(uint32_t to, uint32_t from);
  void MakeCopy(uint32_t to, uint32_t from);

  const StateLayout layout_;
  DeviceMemory* const device_;
  UnitArena blocks_;  // [block_count, block_bytes]
  UnitArena states_;  // [state_count, state_bytes]
  StateMemory memory_;
  bool clear_taken_ = false;
  int64_t now_ms_ = 0;
  size_t beside_bytes_ = SIZE_MAX;
  std::deque<std::shared_ptr<StateCopy>> copies_;  // under way, in their order
  Background copier_;                              // ends before the memory does
};

}  // namespace reprise
