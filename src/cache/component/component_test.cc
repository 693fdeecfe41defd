// SPDX-License-Identifier: Apache-2.0
// Proves the rules of each kind of state on a tree drawn by hand: where a match may end, what a
// split divides, what a table for a path looks like, what trimming frees.
#include <gtest/gtest.h>

#include <memory>

#include "cache/component/kv.h"
#include "cache/component/recurrent.h"
#include "cache/store/block_pool.h"
#include "cache/tree/radix_tree.h"

namespace reprise {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int32_t kTokens = 4;  // per block

// Passes on what the tree reports, as StateIndex does.
class Board : public RadixTree::Observer {
 public:
  explicit Board(int32_t window = 0) : tree(this), pool(1000, &actions), recurrent(&tree) {
    if (window > 0) {
      kv = std::make_unique<WindowKv>(&tree, &pool, kTokens, window);
    } else {
      kv = std::make_unique<FullKv>(&tree, &pool, kTokens);
    }
    root = tree.AddRoot();
  }

  void OnSplit(NodeId upper, NodeId lower) override {
    kv->OnSplit(upper, lower);
    recurrent.OnSplit(upper, lower);
  }
  void OnRemove(NodeId node) override {
    kv->OnRemove(node);
    recurrent.OnRemove(node);
  }

  static Tokens Count(int from, int to) {
    Tokens tokens;
    for (int i = from; i < to; ++i) tokens.push_back(i);
    return tokens;
  }

  // Blocks as a lease that computed [0, count) would have them.
  std::vector<BlockId> Blocks(int count) {
    std::vector<BlockId> table;
    for (int i = 0; i < (count + kTokens - 1) / kTokens; ++i) table.push_back(pool.Allocate());
    return table;
  }
  void Drop(const std::vector<BlockId>& table) {
    for (const BlockId block : table) pool.UnrefLease(block);
  }

  RadixTree::Path PathOf(const Tokens& tokens) const {
    RadixTree::Path path;
    tree.Match(root, tokens, &path);
    return path;
  }

  Actions actions;
  RadixTree tree;
  BlockPool pool;
  std::unique_ptr<Kv> kv;
  Recurrent recurrent;
  NodeId root;
};

TEST(FullKv, IsCutAtAnyTokenAndSlicedBySplits) {
  Board b;
  const auto table = b.Blocks(10);
  const auto a = b.tree.Insert({b.root, 0}, Board::Count(0, 10));
  b.kv->Attach(a.node, 0, 10, table);
  b.Drop(table);
  EXPECT_EQ(b.pool.cached_count(), 3u);
  for (int n = 1; n <= 10; ++n) EXPECT_EQ(b.kv->Serve(b.PathOf(Board::Count(0, n)), n), n);
  EXPECT_EQ(b.kv->Serve(b.PathOf(Board::Count(0, 10)), 7), 7) << "never behind the limit";

  Tokens other = Board::Count(0, 6);
  other.push_back(99);
  b.tree.Insert({b.root, 0}, other);  // splits at 6, inside the second block
  const NodeId upper = b.tree.parent(a.node);
  EXPECT_EQ(b.kv->end(upper), 6);
  EXPECT_EQ(b.kv->end(a.node), 10);
  EXPECT_EQ(b.pool.tree_refs(table[1]), 2u) << "both halves refer to the block across the split";
  std::vector<BlockId> found;
  b.kv->Collect(b.PathOf(Board::Count(0, 9)), 9, &found);
  EXPECT_EQ(found, table);
  EXPECT_TRUE(b.kv->CheckNode(upper).ok());
  EXPECT_TRUE(b.kv->CheckNode(a.node).ok());

  b.kv->Trim(a.node, 8);
  EXPECT_EQ(b.pool.cached_count(), 2u);
  b.kv->Trim(a.node, 6);
  EXPECT_FALSE(b.kv->holds(a.node));
  EXPECT_EQ(b.pool.cached_count(), 2u) << "the upper half still needs the shared block";
  b.kv->Trim(upper, 0);
  EXPECT_EQ(b.pool.used_count(), 0u);
}

TEST(FullKv, TheBlockWithMoreRowsWins) {
  Board b;
  const auto first = b.Blocks(6);
  const auto at = b.tree.Insert({b.root, 0}, Board::Count(0, 6));
  b.kv->Attach(at.node, 0, 6, first);
  b.Drop(first);
  // Another lease copied the partial block and went on to 11.
  auto second = b.Blocks(11);
  const auto on = b.tree.Insert(at, Board::Count(6, 11));
  EXPECT_EQ(on.node, at.node) << "a leaf grows in place";
  b.kv->Attach(on.node, 6, 11, second);
  EXPECT_EQ(b.kv->block_at(on.node, 5), second[1]) << "superseded";
  EXPECT_EQ(b.kv->block_at(on.node, 1), first[0]) << "a whole block stays";
  b.Drop(second);
  EXPECT_EQ(b.pool.used_count(), 3u);
}

TEST(FullKv, DeepestBlockWinsInATable) {
  Board b;
  const auto first = b.Blocks(8);
  const auto a = b.tree.Insert({b.root, 0}, Board::Count(0, 8));
  b.kv->Attach(a.node, 0, 8, first);
  Tokens other = Board::Count(0, 6);
  other.insert(other.end(), {50, 51});
  const auto c = b.tree.Insert({b.root, 0}, other);
  auto second = b.Blocks(8);  // its own block for [4, 8): rows 4 and 5 copied
  b.kv->Attach(c.node, 6, 8, second);
  std::vector<BlockId> table;
  b.kv->Collect(b.PathOf(other), 8, &table);
  EXPECT_EQ(table, (std::vector<BlockId>{first[0], second[1]}));
  b.kv->Collect(b.PathOf(other), 6, &table);
  EXPECT_EQ(table[1], first[1]) << "the part that both share is served by the trunk";
}

TEST(FullKv, AnInnerNodeCanLetGoOfItsCopy) {
  Board b;
  const auto first = b.Blocks(8);
  const auto a = b.tree.Insert({b.root, 0}, Board::Count(0, 8));
  b.kv->Attach(a.node, 0, 8, first);
  b.Drop(first);
  Tokens other = Board::Count(0, 6);
  other.insert(other.end(), {50, 51});
  const auto c = b.tree.Insert({b.root, 0}, other);
  const auto second = b.Blocks(8);  // its own block for [4, 8): rows 4 and 5 copied
  b.kv->Attach(c.node, 6, 8, second);
  b.Drop(second);
  const NodeId upper = b.tree.parent(c.node);
  b.kv->TakeFromBelow(upper, c.node);
  EXPECT_EQ(b.kv->block_at(upper, 5), second[1]);
  EXPECT_EQ(b.kv->block_at(upper, 3), first[0]);
  EXPECT_EQ(b.pool.used_count(), 3u) << "the other branch needs the original";
  b.kv->Trim(a.node, 6);
  EXPECT_EQ(b.pool.used_count(), 2u);
  EXPECT_TRUE(b.kv->CheckNode(upper).ok());
}

TEST(WindowKv, ServesWhereTheWindowIsHeld) {
  Board b(5);  // a token sees itself and four before it
  const auto table = b.Blocks(20);
  const auto a = b.tree.Insert({b.root, 0}, Board::Count(0, 20));
  b.kv->Attach(a.node, 0, 20, table);
  b.kv->DropRange(a.node, 4, 12);  // blocks 1 and 2
  const auto serve = [&](int limit) { return b.kv->Serve(b.PathOf(Board::Count(0, 20)), limit); };
  EXPECT_EQ(serve(20), 20);
  EXPECT_EQ(serve(16), 16) << "[12, 16) is held, and no more is needed";
  EXPECT_EQ(serve(15), 4) << "[11, 15) is not";
  EXPECT_EQ(serve(3), 3);
  std::vector<BlockId> found;
  b.kv->Collect(b.PathOf(Board::Count(0, 20)), 18, &found);
  EXPECT_FALSE(found[2].valid());
  EXPECT_EQ(found[3], table[3]);
  EXPECT_EQ(found[4], table[4]);
}

TEST(Recurrent, ServesOnlyAtSnapshots) {
  Board b;
  const auto a = b.tree.Insert({b.root, 0}, Board::Count(0, 20));
  b.recurrent.Add(a.node, 8, EntryId{1});
  b.recurrent.Add(a.node, 19, EntryId{2});
  const auto serve = [&](int n) { return b.recurrent.Serve(b.PathOf(Board::Count(0, n)), n); };
  EXPECT_EQ(serve(20), 19);
  EXPECT_EQ(serve(19), 19);
  EXPECT_EQ(serve(18), 8) << "one token short of it";
  EXPECT_EQ(serve(7), 0);

  // A branch at 10: each snapshot goes with its position.
  Tokens other = Board::Count(0, 10);
  other.push_back(99);
  b.tree.Insert({b.root, 0}, other);
  EXPECT_EQ(b.recurrent.Serve(b.PathOf(other), 11), 8);
  EXPECT_EQ(serve(20), 19);
  EXPECT_EQ(b.recurrent.marks(a.node).size(), 1u);
  EXPECT_EQ(b.recurrent.Previous(a.node, 19)->mark.position, 8);

  b.recurrent.Remove(a.node, 19, /*remember=*/true);
  EXPECT_EQ(serve(20), 8);
  EXPECT_EQ(b.recurrent.FindEvicted(b.PathOf(Board::Count(0, 20)), 8, 20), 19);
  EXPECT_FALSE(b.tree.IsLive(a.node)) << "nothing is kept there any more";
}

TEST(BlockPool, CountsWhoUsesABlock) {
  Actions actions;
  BlockPool pool(2, &actions);
  const BlockId a = pool.Allocate();
  const BlockId b = pool.Allocate();
  EXPECT_TRUE(pool.full());
  pool.RefTree(a);
  pool.UnrefLease(a);
  EXPECT_EQ(pool.cached_count(), 1u);
  EXPECT_EQ(pool.leased_count(), 1u);
  pool.RefLease(a);
  pool.UnrefTree(a);
  EXPECT_EQ(pool.cached_count(), 0u) << "a running request keeps it";
  pool.UnrefLease(a);
  pool.UnrefLease(b);
  EXPECT_EQ(pool.used_count(), 0u);
  EXPECT_EQ(pool.Allocate(), b) << "the last one freed is warm";
  EXPECT_EQ(actions.size(), 5u);
}

}  // namespace
}  // namespace reprise
