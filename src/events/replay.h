// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace reprise {

using EventPayload = std::shared_ptr<const std::string>;

// The last messages that were published, for those who missed some. Numbers count from 0 without
// gaps. Bounded by count and bytes: the oldest go first.
//
// Thread safety: none.
class ReplayBuffer {
 public:
  ReplayBuffer(size_t count_max, size_t bytes_max) : count_max_(count_max), bytes_max_(bytes_max) {}

  // Returns the number of the message.
  uint64_t Add(EventPayload payload);
  // The messages from number `first` on, as far as they are still there, in order.
  void Visit(uint64_t first,
             const std::function<void(uint64_t number, const EventPayload& payload)>& visit) const;

  uint64_t next() const { return next_; }  // the number of the next message
  size_t size() const { return payloads_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  const size_t count_max_;
  const size_t bytes_max_;
  std::deque<EventPayload> payloads_;  // the last is number next_ - 1
  uint64_t next_ = 0;
  size_t bytes_ = 0;
};

// The number of a message as it is sent: 8 bytes, the highest first.
std::string FormatNumber(uint64_t number);
inline constexpr uint64_t kReplayEnd = UINT64_MAX;  // the number of the message that ends a replay

// What a client of the replay socket asks for: an identity, an empty frame, and the number of the
// first message that it wants. None, if the frames are anything else: whoever can reach the socket
// can send anything.
std::optional<uint64_t> ParseReplayRequest(std::span<const std::string> frames);
inline constexpr size_t kReplayFrames = 3;

}  // namespace reprise
