// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "base/status.h"
#include "cache/component/recurrent.h"
#include "cache/pieces.h"
#include "cache/tree/radix_tree.h"

namespace reprise {

// Pins: which entries may not go, until when, and what they really hold: all state on the way from
// the root to them, each byte once however many pins it serves.
//
// Thread safety: none.
// Invariants: bytes() is the sum over nodes of what `held` says of them, for nodes with a pin there
// or below. Costs: Add and Remove O(depth of the node + log pins).
class Pins {
 public:
  // What pins hold at a node: all of its state if one lies below it, else up to the deepest.
  using Held = std::function<size_t(NodeId node, bool pinned_below)>;

  Pins(const RadixTree* tree, Held held) : tree_(tree), held_(std::move(held)) {}

  void Add(EntryId entry, NodeId node, int64_t until_ms);
  void Remove(EntryId entry, NodeId node, int64_t until_ms);
  // The pinned entry went to the upper half of a split. REQUIRES: after OnSplit.
  void Move(NodeId lower, NodeId upper);
  void OnSplit(NodeId upper, NodeId lower);
  // The state that the node keeps has changed.
  void Update(NodeId node);

  size_t size() const { return by_end_.size(); }
  size_t bytes() const { return bytes_; }
  // The pin that ends first.
  std::optional<std::pair<int64_t, EntryId>> First() const;
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
    size_t bytes = 0;
  };
  Count& At(NodeId node);

  const RadixTree* tree_;
  Held held_;
  std::multimap<int64_t, EntryId> by_end_;
  Pieces<Count> counts_;  // by node
  size_t bytes_ = 0;
};

}  // namespace reprise
