// SPDX-License-Identifier: Apache-2.0
#include "events/replay.h"

#include <algorithm>
#include <utility>

namespace reprise {

uint64_t ReplayBuffer::Add(EventPayload payload) {
  bytes_ += payload->size();
  payloads_.push_back(std::move(payload));
  while (payloads_.size() > count_max_ || (bytes_ > bytes_max_ && payloads_.size() > 1)) {
    bytes_ -= payloads_.front()->size();
    payloads_.pop_front();
  }
  return next_++;
}

void ReplayBuffer::Visit(
    uint64_t first,
    const std::function<void(uint64_t number, const EventPayload& payload)>& visit) const {
  const uint64_t oldest = next_ - payloads_.size();
  for (uint64_t number = std::max(first, oldest); number < next_; ++number) {
    visit(number, payloads_[static_cast<size_t>(number - oldest)]);
  }
}

std::string FormatNumber(uint64_t number) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (56 - 8 * i));
  return bytes;
}

std::optional<uint64_t> ParseReplayRequest(std::span<const std::string> frames) {
  if (frames.size() != kReplayFrames || !frames[1].empty() || frames[2].size() != 8) {
    return std::nullopt;
  }
  uint64_t number = 0;
  for (const char byte : frames[2]) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

}  // namespace reprise
