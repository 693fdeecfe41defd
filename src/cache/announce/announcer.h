// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "cache/announce/block_event.h"
#include "cache/component/kv.h"
#include "cache/pieces.h"
#include "cache/tree/radix_tree.h"

namespace reprise {

// Announcer: which blocks of tokens can be resumed, as events of what has changed. A block belongs
// to the node in which it ends; it is announced while state lies there, or below, from which a
// request that has all its tokens can go on:
//
//  full K/V         as far as it is held (with recurrent state that is up to a snapshot)
//  window K/V, or   up to the last position that serves; all of a node below which one does
//  none
//
// Blocks that are not full are not announced, nor is state that is in a lower tier only.
//
// Where events were lost, all is told anew (Restart): kCleared, then some blocks with every Take,
// those above first; what changes meanwhile is told as it changes.
//
// Components change nodes many times a step. They only mark them (Touch); Take compares what is
// held now with what was told.
//
// Thread safety: none. Costs: Touch O(nodes above that are not marked yet), Take O(marked nodes +
// blocks that changed).
class Announcer {
 public:
  struct State {
    const RadixTree* tree = nullptr;
    const Kv* full_kv = nullptr;  // null: there is none, or it has gaps; then `serve` is asked
    std::function<int32_t(const RadixTree::Path& path, int32_t limit)> serve;
    int32_t block_tokens = 0;
    std::function<bool(NodeId root)> shared;  // whether the tokens below may be told
    // What the tokens below are computed with: blocks of equal tokens differ where this does.
    std::function<std::string_view(NodeId root)> digest;
  };
  // Everything that `state` names must outlive the announcer.
  explicit Announcer(State state);

  // What is kept at the node has changed.
  void Touch(NodeId node);
  // Those of RadixTree::Observer.
  void OnSplit(NodeId upper, NodeId lower);
  void OnRemove(NodeId node);

  // What has changed since the last call: what was lost first, then what came, parents before
  // children. The first call begins with kCleared.
  std::vector<BlockEvent> Take();

  // Who listens has lost what it was told: the next call of Take begins with kCleared. O(1).
  void Restart();
  // Whether Take has more to tell anew.
  bool repeats() const { return repeated_ < told_.size(); }

  // Blocks that are announced now, or will be, anew. O(1).
  size_t count() const { return count_; }
  size_t bytes() const;  // that it takes. O(1)

 private:
  struct Told {
    std::vector<uint64_t> hashes;  // of the blocks that end in the node, as far as announced
    uint32_t epoch = 0;            // of which they were announced
    uint32_t alive_children = 0;   // children with something to go on from, there or below
    bool alive = false;
    bool marked = false;
  };
  Told& ToldOf(NodeId node);
  bool IsShared(NodeId node) const;
  int32_t HeldTo(NodeId node) const;
  size_t BlocksUpTo(NodeId node, int32_t position) const;
  size_t Wanted(NodeId node) const;
  void Judge(NodeId node);
  template <typename Change>
  void Edit(Told& told, const Change& change);
  void Shrink(NodeId node, size_t count, std::vector<uint64_t>* lost);
  void Grow(NodeId node, size_t count, std::vector<BlockEvent>* events);
  bool IsLost(const Told& told) const { return !told.hashes.empty() && told.epoch != epoch_; }
  std::optional<uint64_t> LastAbove(NodeId node) const;
  uint64_t FirstParent(NodeId node) const;
  size_t RepeatPath(NodeId node, std::vector<BlockEvent>* events);
  void RepeatSome(std::vector<BlockEvent>* events);
  std::vector<TokenId> TokensOf(NodeId node, int32_t begin, int32_t end) const;

  const State state_;
  Pieces<Told> told_;           // by node
  std::vector<NodeId> marked_;  // may have nodes that have gone
  std::vector<uint64_t> lost_;  // of nodes that have gone
  size_t count_ = 0;
  size_t hash_bytes_ = 0;  // of all lists
  bool begun_ = false;
  uint32_t epoch_ = 0;   // grows with every Restart
  size_t repeated_ = 0;  // of told_: those before it are of this epoch; at its end, all are
};

}  // namespace reprise
