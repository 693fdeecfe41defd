// SPDX-License-Identifier: Apache-2.0
#include "cache/policy/eviction_order.h"

#include <utility>

#include "base/check.h"

namespace reprise {

EntryId EvictionOrder::Add(const Entry& entry) {
  EntryId id;
  if (free_.empty()) {
    id.value = static_cast<uint32_t>(items_.size());
    items_.push_back(Item());
  } else {
    id = free_.back();
    free_.pop_back();
  }
  items_[id.value].entry = entry;
  items_[id.value].in_use = true;
  return id;
}

void EvictionOrder::Remove(EntryId id) {
  CHECK(in_use(id));
  Pull(id);
  items_[id.value] = Item();
  free_.push_back(id);
}

void EvictionOrder::Touch(EntryId id, int64_t used_ms) {
  int64_t& mine = items_[id.value].entry.used_ms;
  const bool listed = expires_ && queued(id);
  if (listed) by_use_.erase({mine, id});
  mine = used_ms;
  if (listed) by_use_.emplace(mine, id);
}

void EvictionOrder::SetCold(EntryId id, bool cold) {
  if (items_[id.value].entry.cold == cold) return;
  const bool moves = queued(id);
  Pull(id);
  items_[id.value].entry.cold = cold;
  if (moves) Push(id, key(id));
}

EvictionOrder::Heap& EvictionOrder::HeapOf(EntryId id) {
  const size_t index = HeapIndex(items_[id.value].entry);
  if (heaps_.size() <= index) heaps_.resize((index | 1) + 1);
  return heaps_[index];
}

EntryId EvictionOrder::Min(uint64_t owners, bool cold_first) const {
  EntryId first;
  for (size_t i = 0; i < heaps_.size(); ++i) {
    if ((owners >> i / 2 & 1) == 0 || heaps_[i].empty()) continue;
    const EntryId id = heaps_[i][0];
    const bool cold = i % 2 == 1;
    const bool alike = !cold_first || !first.valid() || cold == items_[first.value].entry.cold;
    if (!first.valid() || (alike ? key(id) < key(first) : cold)) first = id;
  }
  return first;
}

void EvictionOrder::Place(Heap& heap, EntryId id, uint32_t index) {
  heap[index] = id;
  items_[id.value].heap_index = index;
}

void EvictionOrder::SiftUp(Heap& heap, uint32_t index) {
  const EntryId id = heap[index];
  while (index > 0) {
    const uint32_t above = (index - 1) / 2;
    if (key(heap[above]) <= key(id)) break;
    Place(heap, heap[above], index);
    index = above;
  }
  Place(heap, id, index);
}

void EvictionOrder::SiftDown(Heap& heap, uint32_t index) {
  const EntryId id = heap[index];
  while (2 * index + 1 < heap.size()) {
    uint32_t below = 2 * index + 1;
    if (below + 1 < heap.size() && key(heap[below + 1]) < key(heap[below])) ++below;
    if (key(id) <= key(heap[below])) break;
    Place(heap, heap[below], index);
    index = below;
  }
  Place(heap, id, index);
}

void EvictionOrder::Push(EntryId id, double key) {
  CHECK(in_use(id));
  Heap& heap = HeapOf(id);
  Item& item = items_[id.value];
  item.key = key;
  if (item.heap_index == kNotQueued) {
    heap_bytes_ -= heap.bytes();
    heap.push_back(id);
    heap_bytes_ += heap.bytes();
    item.heap_index = static_cast<uint32_t>(heap.size() - 1);
    if (expires_) by_use_.emplace(item.entry.used_ms, id);
  }
  SiftUp(heap, item.heap_index);
  SiftDown(heap, item.heap_index);
}

void EvictionOrder::Pull(EntryId id) {
  const uint32_t index = items_[id.value].heap_index;
  if (index == kNotQueued) return;
  items_[id.value].heap_index = kNotQueued;
  if (expires_) by_use_.erase({items_[id.value].entry.used_ms, id});
  Heap& heap = HeapOf(id);
  const EntryId last = heap.back();
  heap.pop_back();
  if (last == id) return;
  Place(heap, last, index);
  SiftUp(heap, index);
  SiftDown(heap, items_[last.value].heap_index);
}

size_t EvictionOrder::bytes() const {
  constexpr size_t kSetNodeBytes = 64;  // about
  return items_.bytes() + free_.bytes() + heap_bytes_ + by_use_.size() * kSetNodeBytes;
}

Status EvictionOrder::CheckInvariants() const {
  size_t queued = 0, used = 0;
  for (uint32_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (!item.in_use) continue;
    ++used;
    if (item.heap_index == kNotQueued) continue;
    ++queued;
    const Heap& heap = heaps_.at(HeapIndex(item.entry));
    if (item.heap_index >= heap.size() || heap[item.heap_index].value != i) {
      return Internal("an entry does not know its place in the heap");
    }
    if (item.heap_index > 0 && key(heap[(item.heap_index - 1) / 2]) > item.key) {
      return Internal("the heap is out of order");
    }
    if (expires_ && !by_use_.contains({item.entry.used_ms, {i}})) {
      return Internal("an entry does not expire");
    }
  }
  size_t heaped = 0, bytes = 0;
  for (const Heap& heap : heaps_) {
    heaped += heap.size();
    bytes += heap.bytes();
  }
  if (bytes != heap_bytes_) return Internal("the memory of the heaps is counted wrongly");
  if (queued != heaped || used != size()) return Internal("entries are counted wrongly");
  if (by_use_.size() != (expires_ ? queued : 0)) return Internal("a stranger expires");
  return OkStatus();
}

}  // namespace reprise
