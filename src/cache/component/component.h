// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "cache/tree/radix_tree.h"

namespace reprise {

// A Component is one kind of state on the tree. It keeps its data in an array indexed by node and
// answers the questions that differ between kinds:
//
//                       full K/V               window K/V            recurrent
//  may a match end      anywhere up to where   where the last W      only at a snapshot
//  here?                K/V is held            positions are held
//  what does a lease    the blocks of          the blocks of the     nothing: the snapshot is
//  hold?                [0, p)                 last W positions      copied to its live one
//  how does a split     sliced at the split; a block across it       each snapshot goes with its
//  divide it?           belongs to both halves                       position
//  what is evicted?     the tail of a leaf     far head, then tail   a snapshot, and K/V that only
//                                              of a leaf             it made reachable
//
// A component holds (RadixTree::Hold) each node at which it keeps something.
class Component {
 public:
  virtual ~Component() = default;

  // The deepest position <= limit on the matched path that this kind of state can serve; 0 always
  // can. O(path).
  virtual int32_t Serve(const RadixTree::Path& path, int32_t limit) const = 0;

  virtual void OnSplit(NodeId upper, NodeId lower) = 0;
  // REQUIRES: nothing is kept at the node.
  virtual void OnRemove(NodeId node) = 0;

  virtual size_t bytes() const = 0;
  virtual Status CheckNode(NodeId node) const = 0;
  virtual std::string Describe(NodeId node) const = 0;  // "" if nothing is kept
};

}  // namespace reprise
