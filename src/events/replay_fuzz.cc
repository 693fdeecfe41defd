// SPDX-License-Identifier: Apache-2.0
// Frames as a client of the replay socket may send them (a byte with the length of each, then its
// bytes), and what is answered: messages in order, each once, none that was not asked for.
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "events/replay.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const ReplayBuffer* const buffer = [] {
    auto* made = new ReplayBuffer(50, 1000);
    for (int i = 0; i < 80; ++i) made->Add(std::make_shared<std::string>(i, 'x'));
    return made;
  }();
  std::vector<std::string> frames;
  for (size_t at = 0; at < size && frames.size() < 8;) {
    const size_t length = std::min<size_t>(data[at], size - at - 1);
    frames.emplace_back(reinterpret_cast<const char*>(data + at + 1), length);
    at += 1 + length;
  }
  const auto first = ParseReplayRequest(frames);
  if (!first) return 0;
  CHECK(frames.size() == kReplayFrames && frames[2] == FormatNumber(*first));
  uint64_t expected = std::max(*first, buffer->next() - buffer->size());
  buffer->Visit(*first, [&](uint64_t number, const EventPayload& payload) {
    CHECK(number == expected++ && payload->size() == number);
  });
  CHECK(*first >= buffer->next() || expected == buffer->next());
  return 0;
}
