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
  bytes_of_[count.owner] += bytes - count.bytes;
  count.bytes = bytes;
}

void Pins::Add(const Pin& pin, NodeId node) {
  by_end_.emplace(pin.until_ms, pin.entry);
  of_owner_[pin.owner].emplace(pin.until_ms, pin.entry);
  const auto charge = [&](Count& count) {
    if (count.here + count.below == 0) count.owner = pin.owner;
  };
  charge(At(node));
  ++At(node).here;
  Update(node);
  for (node = tree_->parent(node); !tree_->IsRoot(node); node = tree_->parent(node)) {
    charge(At(node));
    if (At(node).below++ == 0) Update(node);
  }
}

void Pins::Erase(Order& order, const Pin& pin) {
  const auto [begin, end] = order.equal_range(pin.until_ms);
  const auto at = std::find_if(begin, end, [&](const auto& p) { return p.second == pin.entry; });
  CHECK(at != end);
  order.erase(at);
}

void Pins::Remove(const Pin& pin, NodeId node) {
  Erase(by_end_, pin);
  Erase(of_owner_[pin.owner], pin);
  CHECK(At(node).here > 0);
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
  At(upper).owner = counts_[lower.value].owner;
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

std::optional<std::pair<int64_t, EntryId>> Pins::First(OwnerMask owners) const {
  std::optional<std::pair<int64_t, EntryId>> first;
  for (uint32_t owner = 0; owners != 0 && owner < kOwnersMax; ++owner) {
    if ((owners >> owner & 1) == 0 || of_owner_[owner].empty()) continue;
    const auto& pin = *of_owner_[owner].begin();
    if (!first || pin.first < first->first) first = pin;
  }
  return first;
}

size_t Pins::bytes_metadata() const {
  constexpr size_t kMapNodeBytes = 2 * 96;  // about, in two orders
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
  size_t pins = 0, charged = 0;
  for (const Order& order : of_owner_) pins += order.size();
  for (const size_t some : bytes_of_) charged += some;
  if (here != by_end_.size() || pins != here || bytes != bytes_ || charged != bytes_) {
    return Internal("pins are counted wrongly");
  }
  return OkStatus();
}

}  // namespace reprise
