// SPDX-License-Identifier: Apache-2.0
#include "cache/index/keep/pins.h"

#include <algorithm>

#include "base/check.h"

namespace reprise {

Pins::Count& Pins::At(NodeId node) {
  counts_.Grow(size_t{node.value} + 1);
  return counts_[node.value];
}

void Pins::Update(NodeId node) {
  if (node.value >= counts_.size()) return;
  Count& count = counts_[node.value];
  const size_t bytes = count.here + count.below > 0 ? held_(node, count.below > 0) : 0;
  bytes_ += bytes - count.bytes;
  count.bytes = bytes;
}

void Pins::Add(EntryId entry, NodeId node, int64_t until_ms) {
  by_end_.emplace(until_ms, entry);
  ++At(node).here;
  Update(node);
  for (node = tree_->parent(node); !tree_->IsRoot(node); node = tree_->parent(node)) {
    if (At(node).below++ == 0) Update(node);
  }
}

void Pins::Remove(EntryId entry, NodeId node, int64_t until_ms) {
  const auto [begin, end] = by_end_.equal_range(until_ms);
  const auto pin = std::find_if(begin, end, [&](const auto& p) { return p.second == entry; });
  CHECK(pin != end && At(node).here > 0);
  by_end_.erase(pin);
  --At(node).here;
  Update(node);
  for (node = tree_->parent(node); !tree_->IsRoot(node); node = tree_->parent(node)) {
    if (--At(node).below == 0) Update(node);
  }
}

void Pins::OnSplit(NodeId upper, NodeId lower) {
  if (lower.value >= counts_.size()) return;
  const uint32_t all = counts_[lower.value].here + counts_[lower.value].below;
  At(upper).below = all;
  Update(upper);
  Update(lower);
}

void Pins::Move(NodeId lower, NodeId upper) {
  CHECK(At(lower).here > 0 && At(upper).below > 0);
  --At(lower).here;
  --At(upper).below;
  ++At(upper).here;
  Update(upper);
  Update(lower);
}

std::optional<std::pair<int64_t, EntryId>> Pins::First() const {
  if (by_end_.empty()) return std::nullopt;
  return *by_end_.begin();
}

size_t Pins::bytes_metadata() const {
  constexpr size_t kMapNodeBytes = 96;  // about
  return by_end_.size() * kMapNodeBytes + counts_.bytes();
}

Status Pins::CheckInvariants() const {
  size_t here = 0, bytes = 0;
  for (uint32_t i = 0; i < counts_.size(); ++i) {
    const Count& count = counts_[i];
    here += count.here;
    bytes += count.bytes;
    const size_t held = count.here + count.below > 0 ? held_({i}, count.below > 0) : 0;
    if (held != count.bytes) {
      return Internal("pins of node #" + std::to_string(i) + " hold " + std::to_string(held) +
                      " bytes and are charged with " + std::to_string(count.bytes));
    }
  }
  if (here != by_end_.size() || bytes != bytes_) return Internal("pins are counted wrongly");
  return OkStatus();
}

}  // namespace reprise
