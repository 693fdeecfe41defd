// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/pieces.h"
#include "state/ids.h"

namespace reprise {

using NodeId = Id<struct NodeTag>;

// ChildTable finds the child of a node by the first token of its run: one hash table for the whole
// tree, so that a node with 10,000 children and a node with one cost the same and a leaf costs
// nothing.
//
// Linear hashing: the table grows and shrinks by one list at a time, whose pairs are divided or
// joined, so that no operation waits for all of them to be placed anew. A list is linked through
// what the table keeps of each child.
// Costs: O(1) expected for every operation; 16 bytes a child.
class ChildTable {
 public:
  ChildTable();

  // An invalid id if there is none.
  NodeId Find(NodeId parent, TokenId token) const;
  // REQUIRES: (parent, token) is absent, and so is the child.
  void Insert(NodeId parent, TokenId token, NodeId child);
  // REQUIRES: (parent, token) is present.
  void Erase(NodeId parent, TokenId token);
  void Replace(NodeId parent, TokenId token, NodeId child);

  size_t size() const { return size_; }
  size_t bytes() const { return lists_.bytes() + links_.bytes(); }

 private:
  struct Link {
    NodeId parent;
    TokenId token = 0;
    NodeId next;  // in the same list
  };

  size_t ListOf(NodeId parent, TokenId token) const;
  // Where the pair's child is named: in its list, or in the link before it. An invalid id there:
  // the end of the list, the pair is absent.
  NodeId& PlaceOf(NodeId parent, TokenId token);
  void PushFront(size_t list, NodeId child);
  void Divide();
  void Join();

  Pieces<NodeId> lists_;  // the first child of each
  Pieces<Link> links_;    // by child
  size_t half_;           // a power of two: half_ <= lists_.size() < 2 * half_
  size_t size_ = 0;
};

}  // namespace reprise
