// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cache/pieces.h"
#include "cache/tree/radix_tree.h"

namespace reprise {

// Freshness: until when the K/V along a path may be served (ttl). That of a node may be used while
// it, or one below it, was used within the ttl or is pinned. (Snapshots know their own time.)
//
// Thread safety: none. Costs: O(depth of the node).
class Freshness {
 public:
  Freshness(const RadixTree* tree, bool expires) : tree_(tree), expires_(expires) {}

  void Extend(NodeId node, int64_t until_ms) {
    for (; expires_ && !tree_->IsRoot(node); node = tree_->parent(node)) {
      until_ms_.Grow(size_t{node.value} + 1);
      if (until_ms_[node.value] >= until_ms) return;
      until_ms_[node.value] = until_ms;
    }
  }
  // Up to here the path is fresh.
  int32_t UpTo(const RadixTree::Path& path, int64_t now_ms) const {
    if (!expires_) return std::numeric_limits<int32_t>::max();
    int32_t upto = 0;
    for (const RadixTree::PathStep& step : path) {
      if (step.node.value >= until_ms_.size() || until_ms_[step.node.value] <= now_ms) break;
      upto = step.end;
    }
    return upto;
  }

  void OnSplit(NodeId upper, NodeId lower) {
    if (lower.value < until_ms_.size()) Extend(upper, until_ms_[lower.value]);
  }
  void OnRemove(NodeId node) {
    if (node.value < until_ms_.size()) until_ms_[node.value] = 0;
  }
  size_t bytes() const { return until_ms_.bytes(); }

 private:
  const RadixTree* tree_;
  const bool expires_;
  Pieces<int64_t> until_ms_;  // by node
};

}  // namespace reprise
