// SPDX-License-Identifier: Apache-2.0
#include "cache/policy/eviction_order.h"

#include <utility>

#include "base/check.h"

namespace reprise {

EntryId EvictionOrder::Add(const Entry& entry, EntryId beside) {
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
  Link(id, beside.valid() ? beside : newest_);
  return id;
}

void EvictionOrder::Remove(EntryId id) {
  CHECK(in_use(id));
  Pull(id);
  Unlink(id);
  slots_[id.value] = Slot();
  free_.push_back(id);
}

void EvictionOrder::Touch(EntryId id, int64_t now_ms) {
  Unlink(id);
  slots_[id.value].entry.used_ms = now_ms;
  Link(id, newest_);
}

void EvictionOrder::TouchLike(EntryId id, EntryId other) {
  CHECK(id != other);
  Unlink(id);
  slots_[id.value].entry.used_ms = slots_[other.value].entry.used_ms;
  Link(id, other);
}

void EvictionOrder::Link(EntryId id, EntryId older) {
  Slot& slot = slots_[id.value];
  const EntryId newer = older.valid() ? slots_[older.value].newer : oldest_;
  CHECK(!older.valid() || slots_[older.value].entry.used_ms <= slot.entry.used_ms);
  slot.older = older;
  slot.newer = newer;
  (older.valid() ? slots_[older.value].newer : oldest_) = id;
  (newer.valid() ? slots_[newer.value].older : newest_) = id;
}

void EvictionOrder::Unlink(EntryId id) {
  const Slot& slot = slots_[id.value];
  (slot.older.valid() ? slots_[slot.older.value].newer : oldest_) = slot.newer;
  (slot.newer.valid() ? slots_[slot.newer.value].older : newest_) = slot.older;
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
  }
  SiftUp(slot.heap_index);
  SiftDown(slot.heap_index);
}

void EvictionOrder::Pull(EntryId id) {
  const uint32_t index = slots_[id.value].heap_index;
  if (index == kNotQueued) return;
  slots_[id.value].heap_index = kNotQueued;
  const EntryId last = heap_.back();
  heap_.pop_back();
  if (last == id) return;
  Place(last, index);
  SiftUp(index);
  SiftDown(slots_[last.value].heap_index);
}

size_t EvictionOrder::bytes() const {
  return slots_.capacity() * sizeof(Slot) + (free_.capacity() + heap_.capacity()) * sizeof(EntryId);
}

Status EvictionOrder::CheckInvariants() const {
  size_t queued = 0, used = 0, linked = 0;
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
  }
  if (queued != heap_.size() || used != size()) return Internal("entries are counted wrongly");
  EntryId older;
  for (EntryId id = oldest_; id.valid(); id = slots_[id.value].newer) {
    const Slot& slot = slots_[id.value];
    if (slot.older != older) return Internal("links of the list by use disagree");
    if (older.valid() && slots_[older.value].entry.used_ms > slot.entry.used_ms) {
      return Internal("the list by use is out of order");
    }
    older = id;
    if (++linked > used) return Internal("the list by use has a cycle");
  }
  if (linked != used || older != newest_) return Internal("the list by use is cut");
  return OkStatus();
}

}  // namespace reprise
