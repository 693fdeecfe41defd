// SPDX-License-Identifier: Apache-2.0
#include "state/virtual_tokens.h"

#include <gtest/gtest.h>

#include <set>

namespace reprise {
namespace {

VirtualTokens::Name NameOf(uint8_t last) {
  VirtualTokens::Name name{};
  name.back() = last;
  return name;
}

TEST(VirtualTokensTest, OneNameIsOneRun) {
  VirtualTokens tokens;
  const TokenId a = *tokens.Take(NameOf(1), 10);
  const TokenId b = *tokens.Take(NameOf(2), 3);
  EXPECT_EQ(*tokens.Take(NameOf(1), 10), a);
  EXPECT_EQ(b, a + 10);
  EXPECT_TRUE(IsVirtual(a) && IsVirtual(b + 2) && !IsVirtual(0));
  const auto place = tokens.Find(a + 9);
  EXPECT_EQ(place.name, NameOf(1));
  EXPECT_EQ(place.index, 9);
  EXPECT_EQ(tokens.Find(b).name, NameOf(2));
}

// Names that differ in one bit, wherever it is, are different runs, here and in what is spelt.
TEST(VirtualTokensTest, NoPartOfANameIsLeftOut) {
  VirtualTokens tokens;
  std::set<TokenId> firsts;
  std::set<std::string> spelt;
  std::set<uint64_t> words;
  for (size_t bit = 0; bit < 256; ++bit) {
    VirtualTokens::Name name{};
    name[bit / 8] = static_cast<uint8_t>(1 << bit % 8);
    const TokenId first = *tokens.Take(name, 2);
    firsts.insert(first);
    for (const TokenId token : {first, first + 1}) {
      std::string text;
      tokens.Spell({&token, 1}, &text);
      spelt.insert(text);
      words.insert(tokens.Word(token));
    }
  }
  EXPECT_EQ(firsts.size(), 256u);
  EXPECT_EQ(spelt.size(), 512u);
  EXPECT_EQ(words.size(), 512u);
}

// What is spelt does not depend on the numbers of a process; ids of a vocabulary are four bytes.
TEST(VirtualTokensTest, SpellingIsThatOfEveryProcess) {
  VirtualTokens one, other;
  (void)*other.Take(NameOf(9), 100);
  const TokenId a = *one.Take(NameOf(3), 5);
  const TokenId b = *other.Take(NameOf(3), 5);
  ASSERT_NE(a, b);
  std::string of_one, of_other;
  const TokenId text_one[] = {7, a + 4}, text_other[] = {7, b + 4};
  one.Spell(text_one, &of_one);
  other.Spell(text_other, &of_other);
  EXPECT_EQ(of_one, of_other);
  EXPECT_EQ(of_one.size(), 4u + 40);
  EXPECT_EQ(of_one.substr(0, 8), std::string("\7\0\0\0\xFF\xFF\xFF\xFF", 8));
}

TEST(VirtualTokensTest, NumbersEnd) {
  VirtualTokens tokens;
  ASSERT_TRUE(tokens.Take(NameOf(1), INT32_MAX).ok());
  EXPECT_FALSE(tokens.Take(NameOf(2), 2).ok());
  EXPECT_TRUE(tokens.Take(NameOf(3), 1).ok());
  EXPECT_TRUE(tokens.Take(NameOf(1), INT32_MAX).ok());
}

}  // namespace
}  // namespace reprise
