// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::hub {

// Until when a phase (connecting, a head, one piece of a body) may take, and who may end it before.
struct Patience {
  using Clock = std::chrono::steady_clock;

  // For a phase that begins now.
  Patience(std::chrono::milliseconds phase_limit, const std::atomic<bool>* cancelled_by)
      : limit(phase_limit), deadline(Clock::now() + phase_limit), cancelled(cancelled_by) {}

  bool Cancelled() const { return cancelled != nullptr && cancelled->load(); }

  std::chrono::milliseconds limit;
  Clock::time_point deadline;
  const std::atomic<bool>* cancelled;  // null: nobody
};

// The bytes of one connection; blocking, up to the deadline of the phase.
//
// Errors: kInternal for a network that failed now and may work later (cut, no answer in time),
// kCancelled, and kFailedPrecondition for what will not mend itself (a certificate).
// Thread safety: none; `cancelled` may be set by another thread or a signal handler.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Status Write(std::string_view bytes, const Patience& patience) = 0;
  // The number of bytes read; 0: the other side has ended the connection.
  virtual Result<size_t> Read(std::span<char> into, const Patience& patience) = 0;
};

// A TCP connection to the first address of `host` that answers.
Result<std::unique_ptr<Stream>> Connect(const std::string& host, uint16_t port,
                                        const Patience& patience);

}  // namespace reprise::hub
