// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/pieces.h"
#include "cache/tree/child_table.h"
#include "state/ids.h"

namespace reprise {

// RadixTree: which token sequences are known, each common prefix stored once. It knows tokens and
// nothing else: components keep their data in arrays of their own, indexed by NodeId, and hear of
// the two events that move data between nodes (split, remove).
//
// There is one root per namespace. A node holds a run of tokens at the absolute positions
// [begin, end); a root holds none. A *cursor* (node, position) is a place in the tree: position
// lies in (begin, end] of its node, or is 0 at a root.
//
// Inserting a sequence that leaves a run in its middle splits the node. The LOWER half keeps the
// id, so cursors and data that belong to deeper positions stay right; a cursor of the upper half
// climbs one parent when it is next used.
//
//   before                        insert [1 2 3 7 8]
//
//   root                          root
//    └─ #5 [0,5) 1 2 3 4 5         └─ #9 [0,3) 1 2 3         new: the upper half
//        └─ #6 [5,7) 6 7               ├─ #5 [3,5) 4 5       keeps its id, its children, its tail
//                                      │   └─ #6 [5,7) 6 7
//                                      └─ #10 [3,5) 7 8      new
//
// A leaf that an insertion continues is extended in place: a conversation that grows turn by turn
// stays one node until something branches off.
//
// Nodes live as long as somebody needs them:
//   holds          a component keeps state at the node
//   refs           a cursor of a lease points at it
//   live           holds > 0, or a child is live
//   ghost          not live: its tokens are remembered only to tell "evicted" from "never seen"
// Ghosts that are leaves without refs stand in a queue, oldest first, and go when there are too
// many ghost tokens.
//
// Matching never changes the tree.
//
// Thread safety: none.
// Invariants (CheckInvariants):
//  (1) Every node but a root has a run; its begin is its parent's end.
//  (2) Siblings differ in their first token; (parent, first token) -> node is in the child table,
//      and nothing else is.
//  (3) live_children counts the children that are live.
//  (4) ghost_tokens is the sum of the runs of nodes that are not live.
//  (5) A node is in the ghost queue exactly if it is a childless ghost without refs, not a root.
//  (6) node_count, token_count and bytes equal what a walk finds.
// Costs: Match O(matched tokens); Insert O(compared + new tokens), plus the length of the run when
// it splits; Hold, Release O(1) plus the nodes that change between live and ghost; removal O(1).
class RadixTree {
 public:
  struct Cursor {
    NodeId node;
    int32_t position = 0;
  };
  // A cursor that needs no ref: it may point to a node that has gone, and says so.
  struct Place {
    Cursor at;
    uint64_t birth = 0;  // of the node; 0: the root
  };
  // One node of a matched path: positions [begin of node, end) agree.
  struct PathStep {
    NodeId node;
    int32_t end = 0;
  };
  using Path = std::vector<PathStep>;

  class Observer {
   public:
    virtual ~Observer() = default;
    // `upper` is new and holds [begin, end) of what was `lower`; move what belongs there.
    virtual void OnSplit(NodeId upper, NodeId lower) = 0;
    // The node goes away; it has no holds.
    virtual void OnRemove(NodeId node) = 0;
  };

  // `observer` may be null and must outlive the tree.
  explicit RadixTree(Observer* observer) : observer_(observer) {}

  NodeId AddRoot();
  // REQUIRES: a root without children or refs.
  void RemoveRoot(NodeId root);

  // The longest common prefix with anything below `root`; `path` (if not null) gets its nodes from
  // the top, the root not included. `place` (if not null) says where an earlier match of the
  // same tokens has ended, and then where this one has: only what lies behind it is compared.
  int32_t Match(NodeId root, std::span<const TokenId> tokens, Path* path,
                Place* place = nullptr) const;
  Place PlaceOf(Cursor at) const { return {at, nodes_[at.node.value].birth}; }
  // Whether the node of the place is still there.
  bool Stands(const Place& place) const {
    return place.birth != 0 && nodes_[place.at.node.value].birth == place.birth;
  }
  // The nodes from the top down to the place, which is resolved first; the root not included.
  Path PathTo(Cursor at) const;

  // Makes `tokens` exist below the cursor and returns the cursor behind the last of them.
  // Mutates: may split, extend or add a node. Invalidates no cursor.
  Cursor Insert(Cursor at, std::span<const TokenId> tokens);

  // The cursor as one whose node contains its position: climbs over later splits.
  Cursor Resolve(Cursor at) const;

  void Hold(NodeId node);
  void Release(NodeId node);
  void Ref(NodeId node);
  void Unref(NodeId node);

  // Removes the oldest ghosts until at most `token_count_max` ghost tokens are left, or no ghost
  // may go.
  void PurgeGhosts(size_t token_count_max);

  // Removes every ghost below `root` that may go.
  void PurgeBelow(NodeId root);

  bool IsRoot(NodeId node) const { return !nodes_[node.value].parent.valid(); }
  bool IsLive(NodeId node) const { return nodes_[node.value].live(); }
  NodeId parent(NodeId node) const { return nodes_[node.value].parent; }
  NodeId first_child(NodeId node) const { return nodes_[node.value].first_child; }
  NodeId next_sibling(NodeId node) const { return nodes_[node.value].next_sibling; }
  int32_t begin(NodeId node) const { return nodes_[node.value].begin; }
  int32_t end(NodeId node) const { return nodes_[node.value].end(); }
  uint32_t live_children(NodeId node) const { return nodes_[node.value].live_children; }
  uint32_t refs(NodeId node) const { return nodes_[node.value].refs; }
  std::span<const TokenId> run(NodeId node) const { return nodes_[node.value].run; }

  size_t node_count() const { return nodes_.size() - free_.size(); }
  size_t token_count() const { return token_count_; }
  size_t ghost_token_count() const { return ghost_token_count_; }
  size_t bytes() const;

  Status CheckInvariants() const;
  // The child that goes on with `token`, if there is one.
  NodeId child(NodeId node, TokenId token) const { return children_.Find(node, token); }
  // Visits the nodes below `root` depth first, children by first token; stops on false.
  void Walk(NodeId root, const std::function<bool(NodeId node, int depth)>& visit) const;
  std::vector<NodeId> NodesBelow(NodeId root) const;  // in that order
  // Two spaces per level: "[3,5) 4 5". `note` adds what components know about a node.
  std::string Dump(NodeId root, const std::function<std::string(NodeId)>& note = nullptr) const;

 private:
  struct Node {
    NodeId parent;
    NodeId first_child;
    NodeId next_sibling;
    NodeId previous_sibling;
    NodeId older_ghost;  // links of the ghost queue
    NodeId newer_ghost;
    int32_t begin = 0;
    uint32_t holds = 0;
    uint32_t refs = 0;
    uint32_t live_children = 0;
    bool in_use = false;
    bool queued = false;
    uint64_t birth = 0;  // no two nodes have the same
    std::vector<TokenId> run;

    int32_t end() const { return begin + static_cast<int32_t>(run.size()); }
    bool live() const { return holds > 0 || live_children > 0; }
  };

  NodeId NewNode();
  void FreeNode(NodeId node);
  void LinkChild(NodeId parent, NodeId child);
  void UnlinkChild(NodeId child);
  NodeId Split(NodeId lower, int32_t position);
  NodeId AddLeaf(NodeId parent, std::span<const TokenId> tokens);
  void Extend(NodeId node, std::span<const TokenId> tokens);
  void BecomeLive(NodeId node);
  void BecomeGhost(NodeId node);
  void UpdateQueue(NodeId node, bool as_oldest);
  void RemoveLeaf(NodeId node);
  Status CheckNode(NodeId id, size_t* table_entries, size_t* ghost_tokens) const;
  std::vector<NodeId> SortedChildren(NodeId id) const;

  Observer* observer_;
  Pieces<Node> nodes_;
  Pieces<NodeId> free_;
  ChildTable children_;
  NodeId oldest_ghost_;
  NodeId newest_ghost_;
  size_t token_count_ = 0;
  size_t ghost_token_count_ = 0;
  size_t run_bytes_ = 0;  // capacity of all runs
  uint64_t births_ = 0;
};

// The number of leading tokens that agree.
int32_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b);

}  // namespace reprise
