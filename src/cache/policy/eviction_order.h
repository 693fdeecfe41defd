// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/component/recurrent.h"
#include "cache/pieces.h"
#include "cache/stats.h"
#include "cache/tree/radix_tree.h"
#include "state/ids.h"

namespace reprise {

// An Entry is something that eviction may take: a snapshot, or the K/V tail of a node (models
// without recurrent state).
struct Entry {
  NodeId node;
  int32_t position = 0;  // of the snapshot; unused for a tail
  StateId snapshot;      // invalid: a K/V tail
  SnapshotReason reason = SnapshotReason::kMessage;
  uint32_t owner = 0;       // the tenant (index/tenants.h)
  bool superseded = false;  // its conversation went on past it
  bool low = false;         // stored by requests of low priority alone
  bool beside = false;      // stored beside a conversation that goes on (sessions.h), once
  uint32_t turns = 0;       // how often it, or the conversation that it ends, was continued
  int32_t bulk_tokens = 0;  // what its request brought (index/lease_record.h)
  bool cold = false;        // part of a scan, if the traffic is one (scan_guard.h)
  int64_t used_ms = 0;  // when it was stored or last used; only the entry that served is touched
  int64_t pinned_until_ms = 0;
  bool leaf = false;      // tail: no child holds K/V
  bool parked = false;    // tail: its last block is leased, evicting would free nothing
  bool spilling = false;  // snapshot: a lower tier reads it
  int32_t readers = 0;    // snapshot: leases whose states are filled from it
};

// EvictionOrder owns the entries and knows which one goes first: for each owner two binary heaps
// over keys, one of cold and one of warm entries, smallest key first; and, if entries expire, which
// one was used longest ago. Entries that must not go now (interior nodes, pinned, leased) stand in
// neither.
//
// Thread safety: none.
// Invariants: heap order; each entry knows its place in the heap; by_use_ names what the heap does.
// Costs: Push, Pull, Remove, Touch O(log entries); Min, Add, Oldest O(1).
class EvictionOrder {
 public:
  explicit EvictionOrder(bool expires = false) : expires_(expires) {}

  EntryId Add(const Entry& entry);
  void Remove(EntryId id);

  const Entry& operator[](EntryId id) const { return items_[id.value].entry; }
  // For all members but used_ms, owner and cold.
  Entry& Edit(EntryId id) { return items_[id.value].entry; }
  void Touch(EntryId id, int64_t used_ms);
  void SetCold(EntryId id, bool cold);

  // Into the heap, or to another place in it.
  void Push(EntryId id, double key);
  void Pull(EntryId id);  // out of the heap, if it is there
  bool queued(EntryId id) const { return items_[id.value].heap_index != kNotQueued; }
  double key(EntryId id) const { return items_[id.value].key; }
  // The first entry of the owners whose bits are set; `cold_first`: a cold one, if there is any.
  EntryId Min(uint64_t owners = ~uint64_t{0}, bool cold_first = false) const;
  // Of those in the heap the one that was used longest ago. REQUIRES: entries expire.
  EntryId Oldest() const { return by_use_.empty() ? EntryId() : by_use_.begin()->second; }

  size_t size() const { return items_.size() - free_.size(); }
  bool in_use(EntryId id) const { return id.value < items_.size() && items_[id.value].in_use; }
  uint32_t limit() const { return static_cast<uint32_t>(items_.size()); }
  size_t bytes() const;
  Status CheckInvariants() const;

 private:
  static constexpr uint32_t kNotQueued = UINT32_MAX;
  struct Item {
    Entry entry;
    double key = 0;
    uint32_t heap_index = kNotQueued;
    bool in_use = false;
  };
  using Heap = Pieces<EntryId>;
  static size_t HeapIndex(const Entry& entry) { return 2 * size_t{entry.owner} + entry.cold; }
  Heap& HeapOf(EntryId id);
  void Place(Heap& heap, EntryId id, uint32_t index);
  void SiftUp(Heap& heap, uint32_t index);
  void SiftDown(Heap& heap, uint32_t index);

  Pieces<Item> items_;
  Pieces<EntryId> free_;
  std::vector<Heap> heaps_;  // by owner, those of warm entries before those of cold ones
  size_t heap_bytes_ = 0;    // of all of them
  const bool expires_;
  std::set<std::pair<int64_t, EntryId>> by_use_;
};

}  // namespace reprise
