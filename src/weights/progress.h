// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace reprise {

// Counts bytes of a long piece of work (loading, converting, writing) and tells a listener now and
// then. Whoever works calls Advance; whoever shows it (a bar on a terminal, a line in a log) is the
// listener.
//
// Thread safety: Advance may be called from any thread. The listener is called by one thread at a
// time, with bytes_done that never falls, about a thousand times in all, and at the end exactly
// once with bytes_done == bytes_total.
class Progress {
 public:
  using Listener = std::function<void(uint64_t bytes_done, uint64_t bytes_total)>;

  Progress(uint64_t bytes_total, Listener listener)
      : total_(bytes_total), step_(bytes_total / 1000 + 1), listener_(std::move(listener)) {}

  // REQUIRES: never more than bytes_total in all.
  void Advance(uint64_t bytes);

 private:
  const uint64_t total_;
  const uint64_t step_;
  const Listener listener_;
  std::atomic<uint64_t> done_{0};
  std::mutex mutex_;
  uint64_t shown_ = 0;  // guarded by mutex_
};

}  // namespace reprise
