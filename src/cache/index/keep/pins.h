// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "base/status.h"
#include "cache/component/recurrent.h"
#include "cache/pieces.h"
#include "cache/tree/radix_tree.h"
#include "state/shares.h"

namespace reprise {

// Pins: which entries may not go, until when, and what they really hold: all state on the way from
// the root to them, each byte once however many pins it serves. A node's bytes are charged to the
// owner whose pin was the first there or below.
//
// Thread safety: none.
// Invariants: bytes() is the sum over nodes of what `held` says of them, for nodes with a pin there
// or below, and the sum of bytes_of(owner). Costs: Add and Remove O(depth of the node + log pins).
class Pins {
 public:
  // What pins hold at a node: all of its state if one lies below it, else up to the deepest.
  using Held = std::function<size_t(NodeId node, bool pinned_below)>;

  Pins(const RadixTree* tree, Held held) : tree_(tree), held_(std::move(held)) {}

  struct Pin {
    EntryId entry;
    uint32_t owner = 0;  // < kOwnersMax
    int64_t until_ms = 0;
  };
  void Add(const Pin& pin, NodeId node);
  void Remove(const Pin& pin, NodeId node);
  // The pinned entry went to the upper half of a split. REQUIRES: after OnSplit.
  void Move(NodeId lower, NodeId upper);
  void OnSplit(NodeId upper, NodeId lower);
  // The state that the node keeps has changed.
  void Update(NodeId node);

  size_t size() const { return by_end_.size(); }
  size_t bytes() const { return bytes_; }
  size_t bytes_of(uint32_t owner) const { return bytes_of_[owner]; }
  // The pin that ends first; of those that the owners in the mask have.
  std::optional<std::pair<int64_t, EntryId>> First() const;
  std::optional<std::pair<int64_t, EntryId>> First(OwnerMask owners) const;
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [until_ms, entry] : by_end_) visit(entry);
  }
  size_t bytes_metadata() const;
  Status CheckInvariants() const;

 private:
  struct Count {
    uint32_t here = 0;
    uint32_t below = 0;
    uint32_t owner = 0;  // whom the bytes are charged to
    size_t bytes = 0;
  };
  using Order = std::multimap<int64_t, EntryId>;
  Count& At(NodeId node);
  static void Erase(Order& order, const Pin& pin);

  const RadixTree* tree_;
  Held held_;
  Order by_end_;
  std::array<Order, kOwnersMax> of_owner_;  // the same, by owner
  Pieces<Count> counts_;                    // by node
  size_t bytes_ = 0;
  std::array<size_t, kOwnersMax> bytes_of_{};
};

}  // namespace reprise
