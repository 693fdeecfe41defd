// SPDX-License-Identifier: Apache-2.0
// Proves: a vocabulary that would make texts slow or memory large is refused with a sentence, or
// costs no more than another.
#include "text/vocab/check.h"

#include <gtest/gtest.h>

#include "text/tokenizer.h"

namespace reprise {
namespace {

VocabSpec MakeSpec(VocabSpec::Model model, const std::vector<std::string>& tokens) {
  VocabSpec spec;
  spec.model = model;
  for (const std::string& token : tokens) spec.tokens.Add(token);
  spec.scores.assign(tokens.size(), -1);
  return spec;
}

void ExpectRefused(VocabSpec spec, std::string_view why) {
  const auto made = Tokenizer::Make(std::move(spec));
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find(why), std::string::npos) << made.status().message();
}

// From every place of a text the trie would be followed to the end of such a token.
TEST(CheckVocabTest, LongTokensWhereEveryPlaceIsTried) {
  const std::string longest(kTrieTokenBytesMax, 'a');
  for (const auto model : {VocabSpec::Model::kUnigram, VocabSpec::Model::kRwkvWorld}) {
    EXPECT_TRUE(Tokenizer::Make(MakeSpec(model, {"a", longest})).ok());
    ExpectRefused(MakeSpec(model, {"a", longest + "a"}), "token 1 is 513 bytes long");
  }
  VocabSpec added = MakeSpec(VocabSpec::Model::kByteBpe, {"a", "b"});
  added.added.push_back({.id = 1, .text = longest + "a"});
  ExpectRefused(std::move(added), "an added token is longer than 512 bytes");
}

// Every cut of every token is a merge: the square of the tokens' lengths.
TEST(CheckVocabTest, ScoresThatImplyTooManyMerges) {
  std::vector<std::string> tokens;
  for (int letter = 0; letter < 20; ++letter) {
    for (size_t size = 1; size <= 1024; ++size) {
      tokens.emplace_back(size, static_cast<char>('a' + letter));
    }
  }
  ExpectRefused(MakeSpec(VocabSpec::Model::kCharBpe, tokens), "can be merged in more ways");
}

// A file may call all its tokens the end.
TEST(CheckVocabTest, EndTokensAreFew) {
  VocabSpec spec = MakeSpec(VocabSpec::Model::kByteBpe, std::vector<std::string>(200'000, "</s>"));
  for (int32_t id = 0; id < 200'000; ++id) {
    spec.added.push_back({.id = id, .text = "</s>", .special = true});
  }
  AddKnownEndTokens(&spec);
  EXPECT_EQ(spec.eos_ids.size(), 256u);
}

}  // namespace
}  // namespace reprise
