// SPDX-License-Identifier: Apache-2.0
// Proves: the cache knows a piece by all its bytes, at every length; a long text, in which pieces
// are remembered, has the ids that its words have alone.
#include "text/subword/bpe/piece_cache.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "text/test_assets.h"
#include "text/tokenizer.h"
#include "text/vocab/file.h"

namespace reprise {
namespace {

TEST(PieceCacheTest, EveryByteCounts) {
  for (size_t size = 1; size <= PieceCache::kBytesMax; ++size) {
    PieceCache cache;
    std::string piece(size, 'a');
    bool hit = true;
    cache.Find(piece, &hit)->ids[0] = 7;
    EXPECT_FALSE(hit);
    EXPECT_EQ(cache.Find(piece, &hit)->ids[0], 7);
    EXPECT_TRUE(hit);
    for (size_t at = 0; at < size; ++at) {
      for (const char c : {'\0', 'b', '\xFF'}) {
        std::string other = piece;
        other[at] = c;
        cache.Find(other, &hit);
        EXPECT_FALSE(hit) << size << " " << at;
      }
    }
    cache.Find(std::string(size % PieceCache::kBytesMax + 1, 'a'), &hit);
    EXPECT_FALSE(hit) << size;
  }
}

TEST(PieceCacheTest, LongTextsHaveTheIdsOfTheirWords) {
  for (const char* name : {"qwen2.json", "gpt2.json", "gemma.json", "metaspace_always.json"}) {
    auto spec = ReadVocabFile(kTokenizerData + std::string(name));
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    const auto tokenizer = Tokenizer::Make(std::move(*spec));
    ASSERT_TRUE(tokenizer.ok());
    Rng rng(7);
    std::string text;
    std::vector<int32_t> expected;
    while (text.size() < 100'000) {
      std::string word = " ";
      const size_t size = 1 + rng.Below(20);
      while (word.size() < size + 1) word.push_back("etaoin"[rng.Below(6)]);
      if (rng.Below(8) == 0) word += "\xC3\xA9\xE4\xB8\xAD";
      text += word;
      ASSERT_TRUE((*tokenizer)->Encode(word, {.add_special = false}, &expected).ok());
    }
    std::vector<int32_t> ids;
    ASSERT_TRUE((*tokenizer)->Encode(text, {.add_special = false}, &ids).ok());
    EXPECT_EQ(ids, expected) << name;
  }
}

}  // namespace
}  // namespace reprise
