// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/store/chore.h"
#include "device/background.h"
#include "device/memory.h"

namespace reprise {

// StateCopies fills large recurrent states on a thread of its own: from a snapshot, or with zeros.
// The thread that runs the steps only begins them, so that no call of it takes longer because a
// state is larger.
//
//   copies.Begin(live, address, snapshot, its address);   while copies.busy(live), leave it alone
//   copies.Await(live, ...);                              whoever cannot
//
// A copy is done in pieces, so that one that is not wanted any more ends soon. For memory whose
// copies any thread may do (DeviceMemory::copies_by_caller).
//
// Thread safety: one thread calls; the memory of states that are busy belongs to the other one.
class StateCopies {
 public:
  // What the thread that runs the steps copies at once: less is not worth waiting a step for.
  static constexpr size_t kAtOnceBytes = size_t{1} << 20;
  static constexpr size_t kPieceBytes = size_t{256} << 10;

  explicit StateCopies(DeviceMemory* memory) : memory_(memory) {}

  // `from` without a value: zeros. REQUIRES: `to` and `from` are not written meanwhile.
  void Begin(uint32_t to, DevicePtr<std::byte> to_at, std::optional<uint32_t> from,
             DevicePtr<const std::byte> from_at, size_t bytes);
  // Whether the state is being filled.
  bool busy(uint32_t to) const;
  // Waits until it is filled, for so long at most.
  void Await(uint32_t to, std::chrono::nanoseconds timeout);
  // Waits until it is filled. Returns how long that took its thread, the first time.
  std::optional<int64_t> End(uint32_t to);
  // The state goes out of use: what fills it is called off, which takes one piece at most; what
  // reads it is waited for.
  void Free(uint32_t state);

 private:
  struct Copy {
    uint32_t to = 0;
    std::optional<uint32_t> from;
    int64_t ns = 0;  // once it is done
    Chore chore;
  };
  using Copies = std::vector<std::shared_ptr<Copy>>;
  Copies::const_iterator Find(uint32_t to) const;

  DeviceMemory* const memory_;
  Copies copies_;  // that have not ended, in their order
  Background thread_;
};

}  // namespace reprise
