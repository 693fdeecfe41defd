// SPDX-License-Identifier: Apache-2.0
// Proves that the deepest place on a path is found and no other, and that what goes first is the
// leaf that was unused for longest.
#include "tier/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "tier/guard/day_shares.h"

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

TEST(PromptPaths, AreThoseOfEachNamespaceAndEqualOnesAreOne) {
  const PathId other{{7}};
  for (const size_t size : {size_t{63}, size_t{64}, size_t{1000}}) {
    const std::vector<TokenId> tokens = Tokens(size, size);
    PromptPaths paths(std::vector<PathId>{kRoot, other, kRoot}, tokens);
    EXPECT_EQ(paths.blocks(), 2 * (size / 64));
    size_t calls = 1;
    while (!paths.Extend(4)) ++calls;
    EXPECT_LE(calls, 1 + 2 * (size / 256 + 1));
    for (const PathId& root : {kRoot, other}) {
      ASSERT_NE(paths.In(root), nullptr);
      EXPECT_EQ(paths.In(root)->At(int32_t(size)), PromptPath(root, tokens).At(int32_t(size)));
    }
    EXPECT_EQ(paths.In(PathId{{9}}), nullptr);
  }
  PromptPaths none({}, {});
  EXPECT_TRUE(none.Extend(1)) << "a tier that names no prompts";
}

TEST(PromptPath, PiecesMakeTheSamePath) {
  for (const size_t count : {size_t{0}, size_t{63}, size_t{64}, size_t{1000}}) {
    const auto tokens = Tokens(1, count);
    const PromptPath whole(kRoot, tokens);
    PromptPath pieces(kRoot, tokens, PromptPath::InPieces());
    size_t calls = 0;
    while (!pieces.Extend(2)) ++calls;
    EXPECT_EQ(calls, count / 64 == 0 ? 0 : (count / 64 + 1) / 2 - 1);
    for (int32_t p = 0; p <= static_cast<int32_t>(count); ++p) ASSERT_EQ(whole.At(p), pieces.At(p));
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

// A record that many continue, each the first of a chain.
class LossTest : public testing::Test {
 protected:
  static constexpr int kChains = 300, kTurns = 10;

  LossTest() {
    for (int chain = 0; chain < kChains; ++chain) {
      std::vector<TokenId> tokens = Tokens(1, 64);
      for (const TokenId token : Tokens(1000 + 1000 * uint64_t(chain), kTurns * 64)) {
        tokens.push_back(token);
      }
      chains_.push_back(std::move(tokens));
      const PromptPath path = PathOf(chain);
      if (chain == 0) top_ = catalog_.Add("top", FactsOf(path, 0, 64, true), 10, 1);
      for (int turn = 0; turn < kTurns; ++turn) {
        const RecordFacts facts = FactsOf(path, 64 * (turn + 1), 64 * (turn + 2), true);
        EXPECT_TRUE(catalog_.Add("turn", facts, 10, 1).valid());
      }
    }
  }
  PromptPath PathOf(int chain) const { return {kRoot, chains_[size_t(chain)]}; }

  std::vector<std::vector<TokenId>> chains_;
  Catalog catalog_;
  RecordId top_;
};

TEST_F(LossTest, NobodyFindsWhatIsLostAndItGoesAtTwoStepsARecord) {
  const auto elsewhere = Tokens(77, 100);
  const PromptPath other(kRoot, elsewhere);
  ASSERT_TRUE(catalog_.Add("other", FactsOf(other, 0, 100, true), 10, 1).valid());
  const uint64_t before = catalog_.steps();
  catalog_.Lose(top_);
  EXPECT_EQ(catalog_.steps(), before);
  EXPECT_FALSE(catalog_.Has(top_));
  for (int chain = 0; chain < kChains; chain += 50) EXPECT_FALSE(catalog_.Find(PathOf(chain), 704));
  EXPECT_EQ(catalog_.Find(other, 100)->position, 100);
  // Somebody stores it again while the old ones go.
  const RecordId again = catalog_.Add("again", FactsOf(PathOf(0), 0, 64, true), 10, 2);
  ASSERT_TRUE(again.valid());
  const uint64_t begun = catalog_.steps();
  size_t removed = 0;
  for (; const auto lost = catalog_.NextLost(); ++removed) catalog_.Remove(*lost);
  EXPECT_EQ(removed, size_t{kChains * kTurns + 1});
  EXPECT_LE(catalog_.steps() - begun, 3 * removed);
  EXPECT_FALSE(catalog_.losing());
  EXPECT_EQ(catalog_.size(), 2u);
  EXPECT_EQ(catalog_.bytes(), 20u);
  EXPECT_EQ(catalog_.Find(PathOf(7), 704)->record, again);
}

TEST_F(LossTest, ANamespaceIsLostInOneStepAndMayBeginAgain) {
  const auto lone = Tokens(9, 100);
  const PathId space{{2}};
  const PromptPath alone(space, lone);
  RecordFacts facts = FactsOf(alone, 0, 100, true);
  facts.space = space;
  ASSERT_TRUE(catalog_.Add("another tenant's", facts, 10, 1).valid());
  const uint64_t before = catalog_.steps();
  catalog_.LoseSpace(PathId());
  EXPECT_FALSE(catalog_.Find(PathOf(0), 704));
  EXPECT_EQ(catalog_.Find(alone, 100)->position, 100);
  EXPECT_LE(catalog_.steps() - before, 1u);
  EXPECT_TRUE(catalog_.Add("anew", FactsOf(PathOf(0), 0, 64, true), 10, 2).valid());
  EXPECT_EQ(catalog_.Find(PathOf(0), 704)->position, 64);
  while (const auto lost = catalog_.NextLost()) catalog_.Remove(*lost);
  EXPECT_EQ(catalog_.size(), 2u);
  EXPECT_EQ(catalog_.Find(PathOf(0), 704)->position, 64);
  catalog_.LoseAll();
  EXPECT_FALSE(catalog_.Find(alone, 100));
  while (const auto lost = catalog_.NextLost()) catalog_.Remove(*lost);
  EXPECT_EQ(catalog_.size(), 0u);
}

TEST_F(LossTest, WhatIsHeldGoesWhenItIsReleased) {
  const auto deepest = catalog_.Find(PathOf(3), 704);
  catalog_.Hold(deepest->record);
  catalog_.Lose(top_);
  while (const auto lost = catalog_.NextLost()) catalog_.Remove(*lost);
  EXPECT_TRUE(catalog_.losing());
  EXPECT_FALSE(catalog_.Has(deepest->record));
  catalog_.Release(deepest->record);
  while (const auto lost = catalog_.NextLost()) catalog_.Remove(*lost);
  EXPECT_EQ(catalog_.size(), 0u);
}

TEST_F(LossTest, AnotherRecordOfTheSamePathTakesThePlace) {
  const uint64_t before = catalog_.steps();
  ASSERT_TRUE(catalog_.Replace(top_, "theirs", FactsOf(PathOf(0), 0, 64, true), 20));
  EXPECT_LE(catalog_.steps() - before, 1u);
  EXPECT_EQ(catalog_[top_].name, "theirs");
  EXPECT_EQ(catalog_.bytes(), 10u * kChains * kTurns + 20);
  EXPECT_EQ(catalog_.Find(PathOf(5), 704)->position, 704);
  // One that continues another one.
  RecordFacts deeper = FactsOf(PathOf(0), 64, 704, true);
  const RecordId last = catalog_.Find(PathOf(0), 704)->record;
  const RecordId was = catalog_[last].parent;
  ASSERT_TRUE(catalog_.Replace(last, "longer", deeper, 10));
  EXPECT_EQ(catalog_[last].parent, top_);
  EXPECT_EQ(catalog_[was].children, 0u);
  EXPECT_EQ(catalog_[top_].children, uint32_t{kChains} + 1);
  // What it continues must be here, and not continue it.
  EXPECT_FALSE(catalog_.Replace(last, "x", FactsOf(PathOf(0), 70, 704, true), 10));
  catalog_.Lose(top_);
  while (const auto lost = catalog_.NextLost()) catalog_.Remove(*lost);
  EXPECT_EQ(catalog_.size(), 0u);
}

TEST(Catalog, ARecordWithFewerPlacesDoesNotTakeThePlace) {
  const auto tokens = Tokens(1, 400);
  const PromptPath path(kRoot, tokens);
  Catalog catalog;
  const RecordId a = catalog.Add("a", FactsOf(path, 0, 300, false), 10, 1);
  auto branch = tokens;
  branch[100] ^= 1;
  const PromptPath other(kRoot, branch);
  ASSERT_TRUE(catalog.Add("b", FactsOf(other, 64, 200, false), 10, 2).valid());
  EXPECT_FALSE(catalog.Replace(a, "c", FactsOf(path, 128, 300, false), 10)) << "b needs 64";
  EXPECT_EQ(catalog[a].name, "a");
  EXPECT_TRUE(catalog.Replace(a, "d", FactsOf(path, 0, 300, false), 10));
  EXPECT_EQ(catalog.Find(other, 400)->position, 200);
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

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}
uint64_t FirstSchedule() { return FromEnvironment("REPRISE_SHARE_FIRST", 0); }
uint64_t LastSchedule() { return FirstSchedule() + FromEnvironment("REPRISE_SHARE_SCHEDULES", 40); }

// Random stores of up to 64 namespaces, some much more often than others: none is evicted below
// 95 % of its share by another, and each that stores enough has so much.
TEST(Shares, HoldInATierUnderEverySchedule) {
  for (uint64_t seed = FirstSchedule(); seed < LastSchedule(); ++seed) {
    Rng rng(seed);
    constexpr int kCounts[] = {2, 3, 5, 8, 16, 64};
    const int spaces = kCounts[std::min(rng.Below(6), rng.Below(6))];
    const uint64_t most = uint64_t(spaces) * 60'000;
    Catalog catalog;
    int64_t now = 0;
    uint64_t prompts = 0;
    const auto root = [](int space) { return PathId{{2, static_cast<uint8_t>(space)}}; };
    const auto share = [&](int claimant) {
      int active = 0;
      for (int i = 0; i < spaces; ++i) active += i == claimant || catalog.bytes_of(root(i)) > 0;
      return double(most) / active;
    };
    const auto store = [&](int space) {
      const uint64_t bytes = 500 + rng.Below(1000);
      while (catalog.bytes() + bytes > most) {
        const auto next = catalog.NextToGo(root(space), bytes, most);
        ASSERT_TRUE(next);
        const PathId of = catalog[*next].facts.space;
        catalog.Remove(*next);
        if (of == root(space)) continue;
        ASSERT_GE(double(catalog.bytes_of(of)), 0.95 * share(space)) << "seed " << seed;
      }
      const auto tokens = Tokens(1000 * ++prompts, 40);
      RecordFacts facts = FactsOf(PromptPath(root(space), tokens), 0, 40, true);
      facts.space = root(space);
      ASSERT_TRUE(catalog.Add("", std::move(facts), bytes, ++now).valid());
    };
    for (int i = 0; i < spaces * 100; ++i) {
      store(static_cast<int>(rng.Below(rng.Below(uint64_t(spaces)) + 1)));
    }
    for (int i = 0; i < spaces * 100; ++i) store(i % spaces);
    for (int i = 0; i < spaces; ++i) {
      ASSERT_GE(double(catalog.bytes_of(root(i))), 0.95 * share(i)) << "seed " << seed;
    }
  }
}

// The same for what may be written a day: whoever wants to write its share can, however much others
// want to, and one alone may write all.
TEST(Shares, HoldInWhatMayBeWrittenADay) {
  for (uint64_t seed = FirstSchedule(); seed < LastSchedule(); ++seed) {
    Rng rng(seed);
    const int spaces = 2 + static_cast<int>(rng.Below(seed % 8 == 0 ? 63 : 8));
    constexpr double kMost = 1e9;
    DayBudget day(static_cast<uint64_t>(kMost));
    DayShares shares;
    std::vector<double> written(size_t(spaces), 0.0);
    int64_t now = 0;
    const auto write = [&](int space) {
      const PathId root{{3, static_cast<uint8_t>(space)}};
      const auto bytes = static_cast<uint64_t>(kMost / spaces / 200);
      if (!shares.MayTake(root, bytes, day.Left(now), kMost, now)) return;
      if (!day.Take(bytes, now)) return;
      shares.Take(root, bytes);
      written[size_t(space)] += double(bytes);
    };
    for (int i = 0; i < 300 * spaces; ++i) write(0);
    EXPECT_GT(written[0], 0.95 * kMost) << "alone it may write all";
    for (int hour = 0; hour < 3 * 24 * 4; ++hour) {
      now += DayBudget::kDayMs / 24 / 4;
      if (hour == 2 * 24 * 4) std::fill(written.begin(), written.end(), 0.0);
      for (int i = 0; i < 20 * spaces; ++i) {
        write(static_cast<int>(rng.Below(rng.Below(uint64_t(spaces)) + 1)));
      }
      for (int i = 0; i < 4 * spaces; ++i) write(i % spaces);
    }
    for (int i = 0; i < spaces; ++i) {
      ASSERT_GE(written[size_t(i)], 0.95 * kMost / spaces) << i << " of " << spaces << ", " << seed;
    }
  }
}

}  // namespace
}  // namespace reprise
