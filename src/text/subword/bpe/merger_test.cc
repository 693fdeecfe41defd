// SPDX-License-Identifier: Apache-2.0
// Proves: merging in windows, in blocks and through the queue gives what the definition gives, pair
// by pair, for random tables (also such in which a later merge has a lower rank) and sequences
// short and long, also where they repeat themselves.
#include "text/subword/bpe/merger.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace reprise {
namespace {

using Ids = std::vector<int32_t>;

// The definition.
Ids MergeNaively(const MergeTable& table, Ids ids) {
  while (true) {
    size_t best = ids.size();
    Merge lowest{MergeTable::kNoRank, -1};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const Merge merge = table.Find(ids[i], ids[i + 1]);
      if (merge.rank < lowest.rank) {
        lowest = merge;
        best = i;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = lowest.id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

struct RandomTable {
  MergeTable table;
  size_t rank_count = 0;
};

// Tokens are strings over `letters` letters; every merge makes a new token of two known ones, so
// that none is its own part. Ranks ascend with the tokens, or are shuffled, or tie.
RandomTable MakeTable(Rng* rng, int letters, int merges, int order) {
  RandomTable result;
  result.table.Reserve(static_cast<size_t>(merges));
  std::vector<uint32_t> ranks;
  for (int i = 0; i < merges; ++i) {
    ranks.push_back(static_cast<uint32_t>(order == 2 ? i / 3 : i));
  }
  if (order == 1) {
    for (size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[rng->Below(i)]);
  }
  int32_t known = letters;
  for (int i = 0; i < merges; ++i) {
    // Short tokens are likelier, so that long ones are reached.
    const auto pick = [&] {
      return static_cast<int32_t>(std::min(rng->Below(static_cast<uint64_t>(known)),
                                           rng->Below(static_cast<uint64_t>(known))));
    };
    const int32_t left = pick();
    const int32_t right = pick();
    if (result.table.Find(left, right).rank != MergeTable::kNoRank) continue;
    result.table.Add(left, right, {ranks[static_cast<size_t>(i)], known++});
  }
  result.rank_count = static_cast<size_t>(merges);
  return result;
}

TEST(MergerTest, EqualsTheDefinition) {
  Rng rng(7);
  Merger merger;
  for (int round = 0; round < 600; ++round) {
    const int letters = 1 + static_cast<int>(rng.Below(4));
    const int merges = 1 + static_cast<int>(rng.Below(60));
    const RandomTable random = MakeTable(&rng, letters, merges, round % 3);
    const size_t count = rng.Below(round % 10 == 0 ? 3000 : 300);
    Ids symbols;
    // Some of them periodic, which is where windows could disagree.
    const size_t period = 1 + rng.Below(round % 2 == 0 ? 7 : 1000);
    for (size_t i = 0; i < count; ++i) {
      symbols.push_back(i >= period
                            ? symbols[i - period]
                            : static_cast<int32_t>(rng.Below(static_cast<uint64_t>(letters))));
    }
    const Ids expected = MergeNaively(random.table, symbols);
    if (symbols.size() <= Merger::kShortMax) {
      Ids shorter = symbols;
      uint32_t rank_max = 0;
      shorter.resize(merger.RunShort(random.table, shorter, &rank_max));
      EXPECT_EQ(shorter, expected);
    }
    merger.Run(random.table, random.rank_count, &symbols);
    EXPECT_EQ(symbols, expected) << "round " << round;
  }
}

// Long parts that repeat a few symbols, with others between them: most windows are skipped, and
// what follows them begins anywhere in a token.
TEST(MergerTest, Repetitions) {
  Rng rng(11);
  Merger merger;
  for (int round = 0; round < 150; ++round) {
    const uint64_t letters = 1 + rng.Below(4);
    const RandomTable random =
        MakeTable(&rng, static_cast<int>(letters), 1 + static_cast<int>(rng.Below(40)), round % 3);
    Ids symbols;
    for (uint64_t part = 1 + rng.Below(4); part > 0; --part) {
      for (uint64_t i = rng.Below(20); i > 0; --i) {
        symbols.push_back(static_cast<int32_t>(rng.Below(letters)));
      }
      const size_t period = 1 + rng.Below(9);
      for (size_t i = 0; i < period; ++i) {
        symbols.push_back(static_cast<int32_t>(rng.Below(letters)));
      }
      for (uint64_t i = rng.Below(1500); i > 0; --i) {
        symbols.push_back(symbols[symbols.size() - period]);
      }
    }
    const Ids expected = MergeNaively(random.table, symbols);
    merger.Run(random.table, random.rank_count, &symbols);
    ASSERT_EQ(symbols, expected) << "round " << round;
  }
}

// Of a row of symbols the last two merge first, then the two before them: where a window ends
// decides about all of the row, so that cuts are wrong again and again.
TEST(MergerTest, RowsThatMergeFromTheirEnd) {
  Merger merger;
  Rng rng(3);
  for (const int32_t length : {5, 15, 40, 101, 300, 1001}) {
    MergeTable table;
    table.Reserve(static_cast<size_t>(length));
    for (int32_t i = 0; i + 1 < length; ++i) {
      table.Add(i, i + 1, {static_cast<uint32_t>(length - i), length + i});
    }
    for (int round = 0; round < 4; ++round) {
      Ids symbols;
      while (symbols.size() < 3000) {
        // Whole rows, or parts of them.
        const uint64_t first = round < 2 ? 0 : rng.Below(static_cast<uint64_t>(length));
        for (int32_t i = static_cast<int32_t>(first); i < length; ++i) symbols.push_back(i);
      }
      const Ids expected = MergeNaively(table, symbols);
      merger.Run(table, static_cast<size_t>(length) + 1, &symbols);
      ASSERT_EQ(symbols, expected) << length;
    }
  }
}

// Tokens of 2, 4, 8... 2^20 symbols: no window is ever long enough.
TEST(MergerTest, OneSymbolManyTimes) {
  MergeTable table;
  table.Reserve(20);
  for (int32_t i = 0; i < 20; ++i) table.Add(i, i, {static_cast<uint32_t>(i), i + 1});
  Ids symbols((size_t{1} << 20) + 5, 0);
  Merger merger;
  merger.Run(table, 20, &symbols);
  EXPECT_EQ(symbols, (Ids{20, 2, 0}));
}

TEST(MergerTest, NothingToMerge) {
  MergeTable table;
  Merger merger;
  for (const size_t count : {0, 1, 2, 128, 129, 5000}) {
    Ids symbols(count, 3);
    merger.Run(table, 0, &symbols);
    EXPECT_EQ(symbols, Ids(count, 3));
  }
}

}  // namespace
}  // namespace reprise
