// SPDX-License-Identifier: Apache-2.0
// Proves that the deepest place on a path is found and no other, and that what goes first is the
// leaf that was unused for longest.
#include "tier/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace reprise {
namespace {

std::vector<TokenId> Tokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(Mix64(seed + i) % 1000));
  return tokens;
}

const PathId kRoot{{1}};

RecordFacts FactsOf(const PromptPath& path, int32_t begin, int32_t end, bool recurrent) {
  RecordFacts facts;
  facts.begin = begin;
  facts.end = end;
  if (begin > 0) facts.parent = path.At(begin);
  facts.base = path.grid(end / kBlockTokens);
  facts.path = path.At(end);
  facts.block_bytes = 10;
  facts.state_bytes = recurrent ? 10 : 0;
  for (int32_t b = begin / kBlockTokens + 1; !recurrent && b <= (end - 1) / kBlockTokens; ++b) {
    facts.marks.push_back(path.grid(b));
  }
  return facts;
}

TEST(PromptPath, EqualIdsMeanEqualTokens) {
  const auto a = Tokens(1, 200);
  auto b = a;
  b[130] ^= 1;
  const PromptPath pa(kRoot, a), pb(kRoot, b), other(PathId{{2}}, a);
  for (int32_t p = 0; p <= 200; ++p) {
    EXPECT_EQ(pa.At(p) == pb.At(p), p <= 130) << p;
    EXPECT_NE(pa.At(p), other.At(p));
  }
}

TEST(Catalog, FindsTheDeepestEndOnThePath) {
  const auto tokens = Tokens(1, 400);
  auto branch = tokens;
  branch[250] ^= 1;
  const PromptPath path(kRoot, tokens), other(kRoot, branch);
  Catalog catalog;
  EXPECT_FALSE(catalog.Find(path, 400));
  const RecordId a = catalog.Add("a", FactsOf(path, 0, 100, true), 10, 1);
  const RecordId b = catalog.Add("b", FactsOf(path, 100, 300, true), 10, 2);
  ASSERT_TRUE(a.valid() && b.valid());
  EXPECT_EQ(catalog.Find(path, 400)->position, 300);
  EXPECT_EQ(catalog.Find(path, 299)->position, 100);
  EXPECT_EQ(catalog.Find(path, 100)->record, a);
  EXPECT_FALSE(catalog.Find(path, 99));
  EXPECT_EQ(catalog.Find(other, 400)->position, 100) << "it leaves the path at 250";
  EXPECT_FALSE(catalog.Find(PromptPath(PathId{{2}}, tokens), 400)) << "another namespace";
  EXPECT_FALSE(catalog.Add("c", FactsOf(path, 100, 300, true), 10, 3).valid()) << "there already";
  EXPECT_FALSE(catalog.Add("c", FactsOf(path, 120, 310, true), 10, 3).valid()) << "no parent";
}

TEST(Catalog, WithoutRecurrentStateEveryBlockEndIsAPlace) {
  const auto tokens = Tokens(1, 400);
  const PromptPath path(kRoot, tokens);
  Catalog catalog;
  const RecordId a = catalog.Add("a", FactsOf(path, 0, 300, false), 10, 1);
  EXPECT_EQ(catalog.Find(path, 400)->position, 300);
  EXPECT_EQ(catalog.Find(path, 299)->position, 256);
  EXPECT_EQ(catalog.Find(path, 100)->position, 64);
  auto branch = tokens;
  branch[200] ^= 1;
  const PromptPath other(kRoot, branch);
  const RecordId b = catalog.Add("b", FactsOf(other, 192, 280, false), 10, 2);
  ASSERT_TRUE(b.valid());
  EXPECT_EQ(catalog[b].parent, a);
  EXPECT_EQ(catalog.Find(other, 400)->position, 280);
  EXPECT_EQ(catalog.OldestLeaf(), b) << "the other one is continued";
}

TEST(Catalog, LeavesGoFirstAndTheOldestOfThem) {
  const auto tokens = Tokens(1, 400);
  const PromptPath path(kRoot, tokens);
  const auto lone = Tokens(9, 100);
  const PromptPath alone(kRoot, lone);
  Catalog catalog;
  const RecordId a = catalog.Add("a", FactsOf(path, 0, 100, true), 10, 1);
  const RecordId b = catalog.Add("b", FactsOf(path, 100, 200, true), 10, 5);
  const RecordId c = catalog.Add("c", FactsOf(alone, 0, 100, true), 10, 3);
  EXPECT_EQ(catalog.OldestLeaf(), c);
  catalog.Touch(c, 6);
  EXPECT_EQ(catalog.OldestLeaf(), b);
  catalog.Hold(b);
  EXPECT_EQ(catalog.OldestLeaf(), c);
  catalog.Release(b);
  catalog.Remove(b);
  EXPECT_EQ(catalog.bytes(), 20u);
  EXPECT_EQ(catalog.OldestLeaf(), a) << "used when what it led to was: 5, not 1";
  EXPECT_EQ(catalog[a].used_ms, 5);
  EXPECT_FALSE(catalog.Find(path, 199)->position > 100);
  catalog.Remove(a);
  catalog.Remove(c);
  EXPECT_EQ(catalog.size(), 0u);
  EXPECT_EQ(catalog.bytes(), 0u);
  EXPECT_FALSE(catalog.OldestLeaf());
}

TEST(Catalog, BelowNamesAllThatNeedIt) {
  const auto tokens = Tokens(1, 400);
  const PromptPath path(kRoot, tokens);
  Catalog catalog;
  const RecordId a = catalog.Add("a", FactsOf(path, 0, 100, true), 10, 1);
  const RecordId b = catalog.Add("b", FactsOf(path, 100, 200, true), 10, 1);
  const RecordId c = catalog.Add("c", FactsOf(path, 200, 300, true), 10, 1);
  EXPECT_EQ(catalog.Below(a), (std::vector<RecordId>{c, b, a}));
  EXPECT_EQ(catalog.Below(b), (std::vector<RecordId>{c, b}));
}

// Another tenant looks for a prompt that this one has stored: it finds nothing, and what that takes
// is what a prompt takes that nobody has stored.
TEST(Catalog, WhatOthersHaveCannotBeToldFromTheTimeThatALookTakes) {
  for (const bool recurrent : {true, false}) {
    Catalog catalog;
    const auto known = Tokens(1, 1000), unknown = Tokens(2, 1000);
    const PromptPath path(kRoot, known);
    catalog.Add("a", FactsOf(path, 0, 300, recurrent), 10, 1);
    catalog.Add("b", FactsOf(path, 300, 310, recurrent), 10, 1);
    catalog.Add("c", FactsOf(path, 310, 960, recurrent), 10, 1);
    const auto look = [&](const PathId& root, const std::vector<TokenId>& tokens) {
      const uint64_t before = catalog.probes();
      const bool found = catalog.Find(PromptPath(root, tokens), 1000).has_value();
      return std::pair(found, catalog.probes() - before);
    };
    EXPECT_TRUE(look(kRoot, known).first);
    const PathId other{{2}};
    EXPECT_FALSE(look(other, known).first);
    EXPECT_EQ(look(other, known), look(other, unknown));
    EXPECT_EQ(look(other, known), look(kRoot, unknown));
    EXPECT_NE(look(kRoot, known).second, look(kRoot, unknown).second) << "it is counted";
  }
}

}  // namespace
}  // namespace reprise
