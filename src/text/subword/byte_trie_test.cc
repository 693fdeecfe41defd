// SPDX-License-Identifier: Apache-2.0
// Proves: the trie finds the longest key that a text begins with, as comparing with every key does.
#include "text/subword/byte_trie.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"

namespace reprise {
namespace {

TEST(ByteTrieTest, EqualsComparingWithEveryKey) {
  Rng rng(2);
  for (int round = 0; round < 100; ++round) {
    const uint64_t letters = 1 + rng.Below(round % 2 == 0 ? 3 : 256);
    const auto random_text = [&](uint64_t size_max) {
      std::string text;
      for (uint64_t n = rng.Below(size_max); n > 0; --n) {
        text += static_cast<char>(rng.Below(letters) * 255 / letters);
      }
      return text;
    };
    std::vector<std::string> texts;
    for (uint64_t n = rng.Below(300); n > 0; --n) texts.push_back(random_text(9));
    std::vector<ByteTrie::Key> keys;
    for (size_t i = 0; i < texts.size(); ++i) keys.push_back({texts[i], static_cast<int32_t>(i)});
    const ByteTrie trie = ByteTrie::Build(keys);
    for (int i = 0; i < 300; ++i) {
      const std::string text = i % 3 == 0 && !texts.empty()
                                   ? texts[rng.Below(texts.size())] + random_text(3)
                                   : random_text(12);
      ByteTrie::Match expected{0, -1};
      for (size_t k = 0; k < texts.size(); ++k) {
        if (texts[k].size() > expected.length && text.starts_with(texts[k])) {
          expected = {texts[k].size(), static_cast<int32_t>(k)};
        }
      }
      const ByteTrie::Match found = trie.FindLongest(text);
      EXPECT_EQ(found.length, expected.length);
      EXPECT_EQ(found.value, expected.value);
    }
  }
}

// Nodes with a dozen children each, scattered so that no two sets fit into one another: trying
// every place for every node would take hours.
TEST(ByteTrieTest, ChildrenThatFitNowhereCostNoMore) {
  Rng rng(4);
  std::vector<std::string> texts;
  for (int node = 0; node < 40'000; ++node) {
    const std::string prefix = {static_cast<char>(node >> 10), static_cast<char>(node >> 4 & 63),
                                static_cast<char>(node & 15)};
    for (int child = 0; child < 12; ++child) {
      texts.push_back(prefix + static_cast<char>(rng.Below(256)));
    }
  }
  std::vector<ByteTrie::Key> keys;
  for (size_t i = 0; i < texts.size(); ++i) keys.push_back({texts[i], static_cast<int32_t>(i)});
  const ByteTrie trie = ByteTrie::Build(keys);
  for (const std::string& text : texts) EXPECT_EQ(trie.FindLongest(text + "x").length, 4u);
}

TEST(ByteTrieTest, EmptyTrieFindsNothing) {
  EXPECT_EQ(ByteTrie().FindLongest("abc").value, -1);
  EXPECT_EQ(ByteTrie::Build({}).FindLongest(std::string_view("\0\xFF", 2)).value, -1);
  EXPECT_EQ(ByteTrie::Build({{"", 1}}).FindLongest("").value, -1);
}

}  // namespace
}  // namespace reprise
