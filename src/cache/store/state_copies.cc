// SPDX-License-Identifier: Apache-2.0
#include "cache/store/state_copies.h"

#include <algorithm>

namespace reprise {

void StateCopies::Begin(uint32_t to, DevicePtr<std::byte> to_at, std::optional<uint32_t> from,
                        DevicePtr<const std::byte> from_at, size_t bytes) {
  auto copy = std::make_shared<Copy>();
  copy->to = to;
  copy->from = from;
  copies_.push_back(copy);
  thread_.Post([memory = memory_, copy, to_at, from_at, bytes] {
    using Time = std::chrono::steady_clock;
    if (!copy->chore.Begin()) return;
    const auto begin = Time::now();
    for (size_t at = 0; at < bytes && !copy->chore.off(); at += kPieceBytes) {
      const size_t piece = std::min(kPieceBytes, bytes - at);
      const auto offset = static_cast<int64_t>(at);
      copy->from ? memory->Copy(to_at + offset, from_at + offset, piece)
                 : memory->Zero(to_at + offset, piece);
    }
    copy->ns = std::chrono::nanoseconds(Time::now() - begin).count();
    copy->chore.End();
  });
}

StateCopies::Copies::const_iterator StateCopies::Find(uint32_t to) const {
  return std::find_if(copies_.begin(), copies_.end(),
                      [&](const auto& one) { return one->to == to; });
}

bool StateCopies::busy(uint32_t to) const {
  const auto copy = Find(to);
  return copy != copies_.end() && !(*copy)->chore.done();
}

void StateCopies::Await(uint32_t to, std::chrono::nanoseconds timeout) {
  const auto copy = Find(to);
  if (copy != copies_.end()) (void)thread_.WaitFor([&] { return (*copy)->chore.done(); }, timeout);
}

std::optional<int64_t> StateCopies::End(uint32_t to) {
  const auto copy = Find(to);
  if (copy == copies_.end()) return std::nullopt;
  (*copy)->chore.Await(thread_);
  const int64_t ns = (*copy)->ns;
  copies_.erase(copy);
  return ns;
}

void StateCopies::Free(uint32_t state) {
  for (const auto& copy : copies_) {
    if (copy->to == state) copy->chore.CallOff(thread_);
    if (copy->from == state) copy->chore.Await(thread_);
  }
  std::erase_if(copies_, [&](const auto& copy) { return copy->to == state; });
}

}  // namespace reprise
