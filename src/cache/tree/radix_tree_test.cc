// SPDX-License-Identifier: Apache-2.0
// Proves that the radix tree agrees with a naive set of prefixes: unit cases with the tree drawn as
// text, and one million random operations with every invariant checked after each.
#include "cache/tree/radix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_set>

#include "base/rng.h"
#include "cache/tree/child_table.h"

namespace reprise {
namespace {

using Tokens = std::vector<TokenId>;

TEST(ChildTable, AgreesWithAMap) {
  Rng rng(1);
  ChildTable table;
  std::map<std::pair<uint32_t, TokenId>, uint32_t> truth;
  for (int i = 0; i < 200'000; ++i) {
    const NodeId parent{static_cast<uint32_t>(rng.Below(40))};
    const TokenId token = static_cast<TokenId>(rng.Below(25));
    const auto key = std::make_pair(parent.value, token);
    if (truth.contains(key) && rng.Below(2) == 0) {
      table.Erase(parent, token);
      truth.erase(key);
    } else if (!truth.contains(key) && (i / 5000 % 2 == 0 || rng.Below(4) == 0)) {
      table.Insert(parent, token, {static_cast<uint32_t>(i)});
      truth[key] = static_cast<uint32_t>(i);
    }
    const NodeId found = table.Find(parent, token);
    ASSERT_EQ(found.valid(), truth.contains(key));
    ASSERT_EQ(found.value, truth.contains(key) ? truth[key] : NodeId::kNone);
    ASSERT_EQ(table.size(), truth.size());
  }
}

TEST(CommonPrefix, EveryLength) {
  Tokens a(300);
  for (int i = 0; i < 300; ++i) a[i] = i;
  for (int i = 0; i < 300; ++i) {
    Tokens b = a;
    b[i] = -1;
    EXPECT_EQ(CommonPrefix(a, b), i);
    EXPECT_EQ(CommonPrefix(a, std::span(b).first(i)), i);
  }
}

TEST(RadixTree, SplitsAsDrawn) {
  RadixTree tree(nullptr);
  const NodeId root = tree.AddRoot();
  const auto a = tree.Insert({root, 0}, Tokens{1, 2, 3, 4, 5});
  tree.Hold(a.node);
  const auto side = tree.Insert({root, 0}, Tokens{1, 2, 3, 4, 5, 9});  // a leaf grows in place
  EXPECT_EQ(side.node, a.node);
  EXPECT_EQ(tree.Dump(root), "[0,6) 1 2 3 4 5 9\n");
  const auto b = tree.Insert({root, 0}, Tokens{1, 2, 3, 7, 8});
  EXPECT_EQ(tree.Dump(root),
            "[0,3) 1 2 3\n"
            "  [3,6) 4 5 9\n"
            "  [3,5) 7 8 ghost\n");
  EXPECT_EQ(tree.end(a.node), 6) << "the lower half keeps the id";
  EXPECT_EQ(tree.Resolve({a.node, 3}).node, tree.parent(a.node));
  EXPECT_EQ(tree.Match(root, Tokens{1, 2, 3, 7, 8, 9}, nullptr), 5);
  EXPECT_EQ(tree.Match(root, Tokens{1, 2, 4}, nullptr), 2);
  EXPECT_EQ(tree.Match(root, Tokens{2}, nullptr), 0);
  tree.Ref(b.node);
  tree.PurgeGhosts(0);
  EXPECT_EQ(tree.ghost_token_count(), 2u) << "a cursor keeps its node";
  tree.Unref(b.node);
  tree.PurgeGhosts(0);
  EXPECT_EQ(tree.Dump(root), "[0,3) 1 2 3\n  [3,6) 4 5 9\n");
  tree.Release(a.node);
  tree.PurgeGhosts(0);
  EXPECT_EQ(tree.Dump(root), "");
  tree.RemoveRoot(root);
  EXPECT_EQ(tree.node_count(), 0u);
  EXPECT_TRUE(tree.CheckInvariants().ok());
}

// A component reduced to the bone: marks at positions. The oracle keeps the same facts as strings.
class Oracle : public RadixTree::Observer {
 public:
  explicit Oracle(uint64_t seed) : rng_(seed), tree_(this) {
    for (NodeId& root : roots_) root = tree_.AddRoot();
  }

  void OnSplit(NodeId upper, NodeId lower) override {
    auto& low = marks_[lower.value];
    auto& up = marks_[upper.value];
    const int32_t at = tree_.end(upper);
    const size_t below = low.size();
    for (const int32_t position : low) {
      if (position <= at) up.insert(position);
    }
    for (const int32_t position : up) low.erase(position);
    if (!up.empty()) tree_.Hold(upper);
    if (below > 0 && low.empty()) tree_.Release(lower);
  }

  void OnRemove(NodeId node) override {
    EXPECT_TRUE(marks_[node.value].empty());
    if (tree_.IsRoot(node)) return;
    std::string path = PathOf(node);
    for (int32_t p = tree_.end(node); p > tree_.begin(node); --p) {
      EXPECT_EQ(known_.erase(path), 1u);
      path.pop_back();
    }
  }

  void Step() {
    switch (rng_.Below(10)) {
      case 0:
      case 1:
      case 2:
        return Insert();
      case 3:
        return Hold();
      case 4:
      case 5:
        return Release();
      case 6:
        return tree_.PurgeGhosts(rng_.Below(3) == 0 ? 0 : 300);
      case 7:
        return MoveCursor();
      default:
        return CheckMatch();
    }
  }

  void CheckAll() {
    const Status status = tree_.CheckInvariants();
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(tree_.token_count(), known_.size()) << "each known prefix is one token of one run";
  }

 private:
  static constexpr int kRoots = 2;

  // The name of a place: which root, then the tokens.
  std::string RandomPath() {
    std::string path(1, static_cast<char>(rng_.Below(kRoots)));
    if (!known_.empty() && rng_.Below(8) != 0) {
      auto it = known_.begin(rng_.Below(known_.bucket_count()));
      const size_t bucket = known_.bucket_count();
      for (size_t b = rng_.Below(bucket), tries = 0; tries < bucket; ++tries) {
        if (known_.bucket_size((b + tries) % bucket) == 0) continue;
        it = known_.begin((b + tries) % bucket);
        path = *it;
        break;
      }
    }
    for (uint64_t extra = rng_.Below(6); extra > 0 && path.size() < 28; --extra) {
      path.push_back(static_cast<char>(rng_.Below(3)));
    }
    return path;
  }
  static Tokens TokensOf(const std::string& path) { return Tokens(path.begin() + 1, path.end()); }
  RadixTree::Cursor RootOf(const std::string& path) { return {roots_[size_t(path[0])], 0}; }

  std::string PathOf(NodeId node) const {
    std::string path;
    for (; !tree_.IsRoot(node); node = tree_.parent(node)) {
      const auto run = tree_.run(node);
      path.insert(path.begin(), run.begin(), run.end());
    }
    const bool second = node == roots_[1];
    return std::string(1, static_cast<char>(second ? 1 : 0)) + path;
  }

  RadixTree::Cursor InsertPath(const std::string& path) {
    const auto at = tree_.Insert(RootOf(path), TokensOf(path));
    for (size_t n = 2; n <= path.size(); ++n) known_.insert(path.substr(0, n));
    EXPECT_EQ(at.position, static_cast<int32_t>(path.size()) - 1);
    return at;
  }

  void Insert() { InsertPath(RandomPath()); }

  void Hold() {
    const std::string path = RandomPath();
    if (path.size() < 2 || held_.contains(path)) return;
    const auto at = tree_.Resolve(InsertPath(path));
    if (marks_[at.node.value].empty()) tree_.Hold(at.node);
    marks_[at.node.value].insert(at.position);
    held_.insert(path);
  }

  void Release() {
    if (held_.empty()) return;
    auto it = held_.lower_bound(RandomPath());
    if (it == held_.end()) it = held_.begin();
    RadixTree::Path steps;
    const Tokens tokens = TokensOf(*it);
    ASSERT_EQ(tree_.Match(RootOf(*it).node, tokens, &steps), static_cast<int32_t>(tokens.size()))
        << "what is held is never forgotten";
    auto& marks = marks_[steps.back().node.value];
    ASSERT_EQ(marks.erase(steps.back().end), 1u);
    held_.erase(it);
    if (marks.empty()) tree_.Release(steps.back().node);
  }

  // A lease's cursor: takes a place, grows from there, lets go.
  void MoveCursor() {
    auto& [cursor, path] = cursors_[rng_.Below(4)];
    if (cursor.node.valid() && rng_.Below(3) != 0 && path.size() < 28) {
      std::string more(1, static_cast<char>(rng_.Below(3)));
      const auto next = tree_.Insert(cursor, Tokens(more.begin(), more.end()));
      path += more;
      known_.insert(path);
      tree_.Ref(next.node);
      tree_.Unref(cursor.node);
      cursor = next;
      ASSERT_EQ(PathOf(tree_.Resolve(next).node).substr(0, path.size()), path);
      return;
    }
    if (cursor.node.valid()) tree_.Unref(cursor.node);
    path = RandomPath();
    cursor = InsertPath(path);
    tree_.Ref(cursor.node);
  }

  void CheckMatch() {
    const std::string path = RandomPath();
    size_t n = path.size();
    while (n > 1 && !known_.contains(path.substr(0, n))) --n;
    RadixTree::Path steps;
    ASSERT_EQ(tree_.Match(RootOf(path).node, TokensOf(path), &steps), static_cast<int32_t>(n) - 1);
    if (n > 1) {
      ASSERT_EQ(steps.back().end, static_cast<int32_t>(n) - 1);
      ASSERT_EQ(PathOf(steps.back().node).substr(0, n), path.substr(0, n));
    }
  }

  Rng rng_;
  RadixTree tree_;
  NodeId roots_[kRoots];
  std::map<uint32_t, std::set<int32_t>> marks_;
  std::unordered_set<std::string> known_;
  std::set<std::string> held_;
  std::pair<RadixTree::Cursor, std::string> cursors_[4];
};

TEST(RadixTree, AMillionOperationsAgreeWithTheOracle) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Oracle oracle(seed);
    for (int i = 0; i < 50'000; ++i) {
      oracle.Step();
      oracle.CheckAll();
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace reprise
