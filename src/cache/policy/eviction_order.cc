// SPDX-License-Identifier: Apache-2.0
#include "cache/policy/eviction_order.h"

#include <utility>

#include "base/check.h"

namespace reprise {

EntryId EvictionOrder::Add(const Entry& entry) {
  EntryId id;
  if (free_.empty()) {
    id.value = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  slots_[id.value].entry = entry;
  slots_[id.value].in_use = true;
  return id;
}

void EvictionOrder::Remove(EntryId id) {
  CHECK(in_use(id));
  Pull(id);
  slots_[id.value] = Slot();
  free_.push_back(id);
}

void EvictionOrder::Touch(EntryId id, int64_t used_ms) {
  int64_t& mine = slots_[id.value].entry.used_ms;
  const bool listed = expires_ && queued(id);
  if (listed) by_use_.erase({mine, id});
  mine = used_ms;
  if (listed) by_use_.emplace(mine, id);
}

void EvictionOrder::Place(EntryId id, uint32_t index) {
  heap_[index] = id;
  slots_[id.value].heap_index = index;
}

void EvictionOrder::SiftUp(uint32_t index) {
  const EntryId id = heap_[index];
  while (index > 0) {
    const uint32_t above = (index - 1) / 2;
    if (key(heap_[above]) <= key(id)) break;
    Place(heap_[above], index);
    index = above;
  }
  Place(id, index);
}

void EvictionOrder::SiftDown(uint32_t index) {
  const EntryId id = heap_[index];
  while (2 * index + 1 < heap_.size()) {
    uint32_t below = 2 * index + 1;
    if (below + 1 < heap_.size() && key(heap_[below + 1]) < key(heap_[below])) ++below;
    if (key(id) <= key(heap_[below])) break;
    Place(heap_[below], index);
    index = below;
  }
  Place(id, index);
}

void EvictionOrder::Push(EntryId id, double key) {
  CHECK(in_use(id));
  Slot& slot = slots_[id.value];
  slot.key = key;
  if (slot.heap_index == kNotQueued) {
    heap_.push_back(id);
    slot.heap_index = static_cast<uint32_t>(heap_.size() - 1);
    if (expires_) by_use_.emplace(slot.entry.used_ms, id);
  }
  SiftUp(slot.heap_index);
  SiftDown(slot.heap_index);
}

void EvictionOrder::Pull(EntryId id) {
  const uint32_t index = slots_[id.value].heap_index;
  if (index == kNotQueued) return;
  slots_[id.value].heap_index = kNotQueued;
  if (expires_) by_use_.erase({slots_[id.value].entry.used_ms, id});
  const EntryId last = heap_.back();
  heap_.pop_back();
  if (last == id) return;
  Place(last, index);
  SiftUp(index);
  SiftDown(slots_[last.value].heap_index);
}

size_t EvictionOrder::bytes() const {
  constexpr size_t kSetNodeBytes = 64;  // about
  return slots_.capacity() * sizeof(Slot) +
         (free_.capacity() + heap_.capacity()) * sizeof(EntryId) + by_use_.size() * kSetNodeBytes;
}

Status EvictionOrder::CheckInvariants() const {
  size_t queued = 0, used = 0;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (!slot.in_use) continue;
    ++used;
    if (slot.heap_index == kNotQueued) continue;
    ++queued;
    if (slot.heap_index >= heap_.size() || heap_[slot.heap_index].value != i) {
      return Internal("an entry does not know its place in the heap");
    }
    if (slot.heap_index > 0 && key(heap_[(slot.heap_index - 1) / 2]) > slot.key) {
      return Internal("the heap is out of order");
    }
    if (expires_ && !by_use_.contains({slot.entry.used_ms, {i}})) {
      return Internal("an entry does not expire");
    }
  }
  if (queued != heap_.size() || used != size()) return Internal("entries are counted wrongly");
  if (by_use_.size() != (expires_ ? queued : 0)) return Internal("a stranger expires");
  return OkStatus();
}

}  // namespace reprise
