// SPDX-License-Identifier: Apache-2.0
// Proves: TokenIndex finds every token, the first of equal ones, and nothing else; tokens that are
// chosen to share a hash cost no more than others.
#include "text/subword/token_index.h"

#include <gtest/gtest.h>

#include <string>

namespace reprise {
namespace {

TEST(TokenIndexTest, FindsWhatWasAdded) {
  StringTable texts;
  for (int i = 0; i < 3000; ++i)
    texts.Add(std::string(static_cast<size_t>(i % 40), 'a') + std::to_string(i));
  texts.Add("");
  texts.Add("a1");  // id 3001: id 1 is the same
  TokenIndex index;
  EXPECT_EQ(index.Find(texts, "a1"), -1);
  index.Reserve(texts.size());
  for (size_t id = 0; id < texts.size(); ++id) index.Add(texts, static_cast<int32_t>(id));
  for (int32_t id = 0; id < 3000; ++id) {
    EXPECT_EQ(index.Find(texts, texts[static_cast<size_t>(id)]), id);
  }
  EXPECT_EQ(index.Find(texts, ""), -1);
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(index.Find(texts, "b" + std::to_string(i)), -1);
}

// A product with zero is zero: with a key that everybody knows, these would all be one hash, and
// filling the table would take minutes.
TEST(TokenIndexTest, CannotBeAimedAt) {
  StringTable texts;
  const std::string known = "\x15\x7c\x4a\x7f\xb9\x79\x37\x9e";  // 0x9e3779b97f4a7c15
  for (int i = 0; i < 300'000; ++i) {
    std::string tail = std::to_string(i);
    texts.Add(known + std::string(8 - tail.size(), '0') + tail);
  }
  TokenIndex index;
  index.Reserve(texts.size());
  for (size_t id = 0; id < texts.size(); ++id) index.Add(texts, static_cast<int32_t>(id));
  EXPECT_EQ(index.Find(texts, texts[299'999]), 299'999);
}

}  // namespace
}  // namespace reprise
