// SPDX-License-Identifier: Apache-2.0
#include "cache/tree/child_table.h"

#include "base/check.h"
#include "base/rng.h"

namespace reprise {

ChildTable::ChildTable() : slots_(64) {}

size_t ChildTable::HomeOf(NodeId parent, TokenId token) const {
  const uint64_t pair = uint64_t{parent.value} << 32 | static_cast<uint32_t>(token);
  return Mix64(pair) & (slots_.size() - 1);
}

size_t ChildTable::IndexOf(NodeId parent, TokenId token) const {
  size_t i = HomeOf(parent, token);
  while (slots_[i].parent.valid() && !(slots_[i].parent == parent && slots_[i].token == token)) {
    i = (i + 1) & (slots_.size() - 1);
  }
  return i;
}

NodeId ChildTable::Find(NodeId parent, TokenId token) const {
  return slots_[IndexOf(parent, token)].child;
}

void ChildTable::Insert(NodeId parent, TokenId token, NodeId child) {
  CHECK(parent.valid() && child.valid());
  if ((size_ + 1) * 3 > slots_.size() * 2) Resize(slots_.size() * 2);
  Slot& slot = slots_[IndexOf(parent, token)];
  CHECK(!slot.parent.valid());
  slot = {parent, token, child};
  ++size_;
}

void ChildTable::Replace(NodeId parent, TokenId token, NodeId child) {
  Slot& slot = slots_[IndexOf(parent, token)];
  CHECK(slot.parent.valid());
  slot.child = child;
}

void ChildTable::Erase(NodeId parent, TokenId token) {
  const size_t mask = slots_.size() - 1;
  size_t hole = IndexOf(parent, token);
  CHECK(slots_[hole].parent.valid());
  // Moves back every later pair of the cluster that may stand in the hole: one whose home does not
  // lie cyclically in (hole, i].
  for (size_t i = (hole + 1) & mask; slots_[i].parent.valid(); i = (i + 1) & mask) {
    const size_t home = HomeOf(slots_[i].parent, slots_[i].token);
    if (((i - home) & mask) >= ((i - hole) & mask)) {
      slots_[hole] = slots_[i];
      hole = i;
    }
  }
  slots_[hole] = Slot();
  --size_;
  if (slots_.size() > 64 && size_ * 8 < slots_.size()) Resize(slots_.size() / 2);
}

void ChildTable::Resize(size_t slot_count) {
  std::vector<Slot> old(slot_count);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.parent.valid()) slots_[IndexOf(slot.parent, slot.token)] = slot;
  }
}

}  // namespace reprise
