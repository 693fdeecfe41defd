// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/component/component.h"
#include "cache/pieces.h"
#include "cache/store/block_pool.h"
#include "state/ids.h"
#include "state/spec.h"

namespace reprise {

// Kv keeps K/V blocks along the edges. A block covers block_tokens positions of an absolute grid;
// nodes begin and end anywhere, so the first and the last block of a node may reach beyond it:
//
//   grid        |0      64|      128|      192|
//   node A      [0 .............100)             blocks a0 a1       rows of a1 below 100
//   node B                       [100 ...150)    blocks b1 b2       b1 = a copy of a1, then B's
//   node C                       [100 .120)      block a1           C's writer wrote A's rows too
//
//  - A node refers to every block that intersects its held part [begin, end(node)).
//  - Halves of a split both refer to the block across the split.
//  - In a table for a path, the block of the deepest node wins: it has the rows of those above,
//    because whoever wrote it copied them first.
//  - Where a block is partly filled and somebody has continued it, the node takes over the block
//    with more rows: those that both have are the same bits.
//
// Full K/V is held from the root without gaps; window K/V may have gaps (invalid block ids).
// Blocks carry all K/V layers of a model together, so a model with any full attention layer has
// full K/V as far as the cache is concerned.
class Kv : public Component {
 public:
  Kv(RadixTree* tree, BlockPool* pool, int32_t block_tokens)
      : tree_(tree), pool_(pool), block_tokens_(block_tokens) {}

  // The component for a model's K/V; null: it has none.
  static std::unique_ptr<Kv> Make(const StateSpec& spec, RadixTree* tree, BlockPool* pool,
                                  int32_t block_tokens);

  // Whether what is held along a path may have gaps.
  virtual bool gaps() const = 0;
  // The first position that a sequence which continues at `position` can still see.
  virtual int32_t FirstNeeded(int32_t position) const = 0;
  int32_t FirstBlock(int32_t position) const { return GridOf(FirstNeeded(position)); }
  // K/V is held without a gap from there up to `position`. REQUIRES: Serve answers `position`.
  virtual int32_t HeldSince(const RadixTree::Path& path, int32_t position) const = 0;

  // K/V is held for [begin, end) of the node, but for gaps; begin itself if there is none.
  int32_t end(NodeId node) const;
  bool holds(NodeId node) const { return node.value < runs_.size() && runs_[node.value].holds(); }
  // The block of the node that covers `position`, if held.
  BlockId block_at(NodeId node, int32_t position) const;
  BlockId last_block(NodeId node) const;
  // How many blocks hold state of the node before `upto`.
  size_t CountBlocks(NodeId node, int32_t upto) const;

  // Takes the blocks of `table` (a lease's: its g-th block covers block g of the grid) for
  // positions [from, upto) of the node, as far as it has none. REQUIRES: upto <= end of the node's
  // run.
  void Attach(NodeId node, int32_t from, int32_t upto, std::span<const BlockId> table);
  // Lets go of what lies behind `upto`, in whole blocks.
  void Trim(NodeId node, int32_t upto);
  // Takes `below`'s block for the last rows of the node, where both have one for them and they
  // differ: who wrote that one copied these rows first. REQUIRES: `below` is a child of the node.
  void TakeFromBelow(NodeId node, NodeId below);
  // Lets go of the blocks that lie wholly in [from, upto): a gap.
  void DropRange(NodeId node, int32_t from, int32_t upto);

  // Writes the blocks that hold [FirstNeeded(position), position) along the path into `table`
  // (resized to cover position); ids before that are invalid.
  void Collect(const RadixTree::Path& path, int32_t position, std::vector<BlockId>* table) const;
  // The same for all of them from the block `first` of the grid on.
  void CollectFrom(const RadixTree::Path& path, int32_t first, int32_t position,
                   std::vector<BlockId>* table) const;

  void OnSplit(NodeId upper, NodeId lower) override;
  void OnRemove(NodeId node) override;
  size_t bytes() const override;
  Status CheckNode(NodeId node) const override;
  std::string Describe(NodeId node) const override;

  std::span<const BlockId> blocks(NodeId node) const;

 protected:
  struct Run {
    int32_t end = 0;              // meaningful if there are blocks
    std::vector<BlockId> blocks;  // [begin / block_tokens, ceil(end / block_tokens))
    std::vector<uint8_t> rows;    // of each block, how many are the state of this path
    bool holds() const { return !blocks.empty(); }
    size_t bytes() const {
      return blocks.capacity() * sizeof(BlockId) + rows.capacity() * sizeof(uint8_t);
    }
  };
  int32_t GridOf(int32_t position) const { return position / block_tokens_; }
  uint8_t RowsUpTo(int32_t grid, int32_t position) const;
  int32_t GridEnd(int32_t position) const { return (position + block_tokens_ - 1) / block_tokens_; }
  Run& RunOf(NodeId node);

  RadixTree* tree_;
  BlockPool* pool_;
  int32_t block_tokens_;
  Pieces<Run> runs_;       // by node
  size_t list_bytes_ = 0;  // capacity of all lists
};

// Every position back to 0 is needed: the held part of a path has no gaps.
class FullKv : public Kv {
 public:
  using Kv::Kv;
  bool gaps() const override { return false; }
  int32_t FirstNeeded(int32_t) const override { return 0; }
  int32_t HeldSince(const RadixTree::Path&, int32_t) const override { return 0; }
  int32_t Serve(const RadixTree::Path& path, int32_t limit) const override;
  Status CheckNode(NodeId node) const override;
};

// Only the last `window` positions are needed, the one being computed included.
class WindowKv : public Kv {
 public:
  WindowKv(RadixTree* tree, BlockPool* pool, int32_t block_tokens, int32_t window)
      : Kv(tree, pool, block_tokens), window_(window) {}
  bool gaps() const override { return true; }
  int32_t FirstNeeded(int32_t position) const override {
    return position < window_ ? 0 : position - window_ + 1;
  }
  int32_t HeldSince(const RadixTree::Path& path, int32_t position) const override;
  int32_t Serve(const RadixTree::Path& path, int32_t limit) const override;

 private:
  struct Held {
    int32_t since = 0;  // K/V is held without a gap for [since, position), up to the limit
    int32_t best = 0;   // the deepest position that can be served
  };
  Held Walk(const RadixTree::Path& path, int32_t limit) const;

  int32_t window_;
};

}  // namespace reprise
