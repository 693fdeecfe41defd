// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "cache/pieces.h"
#include "cache/tree/radix_tree.h"

namespace reprise {

// ConversationEnds: where requests of an attention-only model have ended, and which of these ends
// were continued. An end stays known while its tokens are, also when their K/V is gone: what the
// policy learns must not depend on what it has kept.
//
// Thread safety: none. Costs: O(1).
class ConversationEnds {
 public:
  struct End {
    int64_t left_ms = -1;  // -1: none, or a later request has continued it
    uint32_t turns = 0;
    int32_t bulk_tokens = 0;  // that its request brought
  };

  void Add(NodeId node, const End& end) {
    ends_.Grow(size_t{node.value} + 1);
    ends_[node.value] = end;
  }
  // The end in the node, which is none from now on, as it is continued.
  std::optional<End> Continue(NodeId node) {
    if (node.value >= ends_.size() || ends_[node.value].left_ms < 0) return std::nullopt;
    return std::exchange(ends_[node.value], End());
  }
  void OnRemove(NodeId node) {
    if (node.value < ends_.size()) ends_[node.value] = End();
  }
  size_t bytes() const { return ends_.bytes(); }

 private:
  Pieces<End> ends_;  // by node
};

}  // namespace reprise
