// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "state/ids.h"

namespace reprise {

using NodeId = Id<struct NodeTag>;

// ChildTable finds the child of a node by the first token of its run: one open-addressed table for
// the whole tree, so that a node with 10,000 children and a node with one cost the same and a leaf
// costs nothing.
//
// Linear probing; erasing shifts the cluster back, so there are no tombstones and a long life does
// not slow lookups down. At most 2/3 full.
// Costs: O(1) expected for every operation; 12 bytes a slot.
class ChildTable {
 public:
  ChildTable();

  // An invalid id if there is none.
  NodeId Find(NodeId parent, TokenId token) const;
  // REQUIRES: (parent, token) is absent.
  void Insert(NodeId parent, TokenId token, NodeId child);
  // REQUIRES: (parent, token) is present.
  void Erase(NodeId parent, TokenId token);
  void Replace(NodeId parent, TokenId token, NodeId child);

  size_t size() const { return size_; }
  size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    NodeId parent;  // invalid: empty
    TokenId token = 0;
    NodeId child;
  };

  size_t HomeOf(NodeId parent, TokenId token) const;
  size_t IndexOf(NodeId parent, TokenId token) const;  // of the pair, or of the empty slot
  void Resize(size_t slot_count);

  std::vector<Slot> slots_;  // a power of two
  size_t size_ = 0;
};

}  // namespace reprise
