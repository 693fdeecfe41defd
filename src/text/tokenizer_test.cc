// SPDX-License-Identifier: Apache-2.0
// Proves: ids and decoded text equal those of the reference libraries, for the small tokenizers in
// the tree (tools/make_tokenizer_fixtures.py) and for those of real models where they are there;
// special tokens never come from plain text; streaming gives the text that decoding at once gives.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/test_assets.h"
#include "text/vocab/file.h"

namespace reprise {
namespace {

using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> Load(const std::string& path) {
  auto spec = ReadVocabFile(path);
  EXPECT_TRUE(spec.ok()) << path << ": " << spec.status().message();
  if (!spec.ok()) return nullptr;
  auto tokenizer = Tokenizer::Make(std::move(*spec));
  EXPECT_TRUE(tokenizer.ok()) << path << ": " << tokenizer.status().message();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

Ids Encode(const Tokenizer& tokenizer, std::string_view text, bool add_special,
           bool parse_special) {
  Ids ids;
  const Status status =
      tokenizer.Encode(text, {add_special, parse_special, /*parse_added=*/true}, &ids);
  EXPECT_TRUE(status.ok()) << status.message();
  return ids;
}

Ids ToIds(const JsonValue& value) {
  Ids ids;
  for (const JsonValue& id : value.items()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

// The text of a stream that is read after every token, which must always be valid UTF-8.
std::string Stream(const Tokenizer& tokenizer, const Ids& ids, bool keep_special) {
  Detokenizer detokenizer(tokenizer, {.keep_special = keep_special});
  std::string text;
  for (const int32_t id : ids) {
    detokenizer.Append(id, &text);
    EXPECT_TRUE(IsValidUtf8(text));
  }
  detokenizer.Finish(&text);
  return text;
}

class FixtureTest : public testing::TestWithParam<const char*> {};

TEST_P(FixtureTest, EqualsReference) {
  const std::string file = GetParam();
  const auto tokenizer = Load(kTokenizerData + file);
  ASSERT_NE(tokenizer, nullptr);
  const std::string name = file.substr(0, file.find('.'));
  const JsonDocument vectors = ReadJson(kTokenizerData + name + ".vectors.json");
  for (const JsonValue& vector : vectors.root().items()) {
    const std::string text = VectorText(vector);
    Ids ids = Encode(*tokenizer, text, false, false);
    const JsonValue* plain = vector.Find("plain");
    if (plain != nullptr) {
      EXPECT_EQ(ids, ToIds(*plain)) << text;
    }
    if (const JsonValue* special = vector.Find("special")) {
      ids = Encode(*tokenizer, text, true, true);
      EXPECT_EQ(ids, ToIds(*special)) << text;
    }
    if (const JsonValue* decoded = vector.Find("decoded")) {
      EXPECT_EQ(tokenizer->Decode(ids, true), decoded->as_string()) << text;
      EXPECT_EQ(Stream(*tokenizer, ids, true), decoded->as_string()) << text;
    }
  }
}

// A meter changes no id. A text that has more than are wanted is known to have more, whatever it is
// made of, and one that has no more is read to its end.
TEST_P(FixtureTest, AMeterTellsWhatIsTooLong) {
  const std::string file = GetParam();
  const auto tokenizer = Load(kTokenizerData + file);
  ASSERT_NE(tokenizer, nullptr);
  const std::string name = file.substr(0, file.find('.'));
  const JsonDocument vectors = ReadJson(kTokenizerData + name + ".vectors.json");
  std::vector<std::string> texts = {std::string(30'000, ' '), std::string(30'000, 'a'),
                                    std::string(30'000, '\n'), ""};
  for (int i = 0; i < 3'000; ++i) texts.back() += "e\xCC\x81\xCE\xB9\xCC\x88\xCC\x81";
  texts.emplace_back();
  for (const JsonValue& vector : vectors.root().items()) texts.back() += VectorText(vector);
  for (const std::string& text : texts) {
    for (const bool special : {false, true}) {
      const Ids whole = Encode(*tokenizer, text, false, special);
      for (const size_t ids_max : {size_t{0}, whole.size() / 2, whole.size(), SIZE_MAX}) {
        Account account;
        EncodeMeter meter{.account = &account, .ids_max = ids_max};
        Ids ids;
        ASSERT_TRUE(tokenizer->Encode(text, {false, special, true}, &ids, &meter).ok());
        if (whole.size() > ids_max) {
          EXPECT_GT(meter.id_count, ids_max);
        } else {
          EXPECT_EQ(ids, whole);
          EXPECT_EQ(meter.id_count, whole.size());
          EXPECT_GE(account.work(), 1u);
        }
      }
    }
  }
}

TEST(TokenizerTest, AnAccountThatIsSpentEndsIt) {
  const auto tokenizer = Load(kTokenizerData + std::string("qwen2.json"));
  ASSERT_NE(tokenizer, nullptr);
  Account account(std::make_shared<Ledger>(), "t", {.small_work = 100});
  EncodeMeter meter{.account = &account};
  Ids ids = {7};
  const Status status = tokenizer->Encode(std::string(1'000, 'a'), {true, true}, &ids, &meter);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ids, Ids{7});
  EXPECT_TRUE(account.wants_more());
}

INSTANTIATE_TEST_SUITE_P(Byte, FixtureTest,
                         testing::Values("gpt2.json", "gpt2_prefix_space.json", "llama3.json",
                                         "qwen2.json", "qwen35.json", "deepseek3.json",
                                         "tekken.json", "mistral.json", "o200k.json", "digits.json",
                                         "falcon.json"));
INSTANTIATE_TEST_SUITE_P(Character, FixtureTest,
                         testing::Values("llama2.json", "llama2_normalized.json", "gemma.json",
                                         "metaspace_first.json", "metaspace_always.json",
                                         "metaspace_never.json", "unigram.json", "spm_bpe.model",
                                         "spm_unigram.model", "spm_unigram_bytes.model"));
INSTANTIATE_TEST_SUITE_P(World, FixtureTest, testing::Values("rwkv.txt"));

TEST(TokenizerTest, SpecialTokensComeOnlyWhenAskedFor) {
  const auto tokenizer = Load(kTokenizerData + std::string("qwen2.json"));
  ASSERT_NE(tokenizer, nullptr);
  const int32_t start = tokenizer->FindToken("<|im_start|>");
  ASSERT_GE(start, 0);
  EXPECT_TRUE(tokenizer->IsSpecial(start));
  const std::string text = "a<|im_start|>b";
  const Ids plain = Encode(*tokenizer, text, true, false);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), start), 0);
  EXPECT_EQ(tokenizer->Decode(plain), text);
  const Ids parsed = Encode(*tokenizer, text, true, true);
  EXPECT_EQ(std::count(parsed.begin(), parsed.end(), start), 1);
  EXPECT_EQ(tokenizer->Decode(parsed), "ab");
  EXPECT_EQ(tokenizer->Decode(parsed, true), text);
}

TEST(TokenizerTest, KnowsWhereGenerationEnds) {
  const auto tokenizer = Load(kTokenizerData + std::string("qwen2.json"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->IsEos(tokenizer->FindToken("<|im_end|>")));
  EXPECT_TRUE(tokenizer->IsEos(tokenizer->FindToken("<|endoftext|>")));
  EXPECT_FALSE(tokenizer->IsEos(tokenizer->FindToken("<|im_start|>")));
  EXPECT_FALSE(tokenizer->IsEos(-1));
}

TEST(TokenizerTest, InvalidUtf8PassesThroughBytes) {
  for (const char* name : {"gpt2", "llama3", "qwen35", "deepseek3", "tekken", "o200k"}) {
    const auto tokenizer = Load(kTokenizerData + std::string(name) + ".json");
    ASSERT_NE(tokenizer, nullptr);
    for (const std::string_view text :
         {"\xFF", "a\x80 b\xC3", "\xF0\x9F\x9A", "\xED\xA0\x80x\xC0\xAF",
          "caf\xC3\xA9 \xE4\xBD\xA0\xE5 1\xFE"
          "2"}) {
      std::string bytes;
      for (const int32_t id : Encode(*tokenizer, text, false, false)) {
        bytes += tokenizer->TokenBytes(id);
      }
      EXPECT_EQ(bytes, text) << name;
    }
  }
}

TEST(TokenizerTest, IdsOutOfRangeHaveNoText) {
  const auto tokenizer = Load(kTokenizerData + std::string("gpt2.json"));
  ASSERT_NE(tokenizer, nullptr);
  for (const int32_t id : {-1, INT32_MIN, INT32_MAX, tokenizer->vocab_size()}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
  EXPECT_EQ(tokenizer->Decode(Ids{-1, INT32_MAX}), "");
}

class RealTokenizerTest : public testing::TestWithParam<const char*> {};

// 61 difficult strings; ids and texts by Hugging Face tokenizers.
TEST_P(RealTokenizerTest, EqualsPublishedGolden) {
  const std::string golden = SharedAsset("tokenizers/golden_hf_tokenizers.json");
  const std::string name = GetParam();
  const std::string file = name == "gpt-neox" ? "/20B_tokenizer.json" : "/tokenizer.json";
  const std::string path = SharedAsset("tokenizers/" + name + file);
  if (golden.empty() || path.empty()) GTEST_SKIP() << "shared assets are not here";
  const auto tokenizer = Load(path);
  ASSERT_NE(tokenizer, nullptr);
  const JsonDocument document = ReadJson(golden);
  const auto inputs = document.root().Find("inputs")->items();
  const auto ids = document.root().Find("ids")->Find(name)->items();
  const auto decoded = document.root().Find("decode")->Find(name)->items();
  ASSERT_EQ(inputs.size(), ids.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string_view text = inputs[i].as_string();
    const Ids got = Encode(*tokenizer, text, false, true);
    EXPECT_EQ(got, ToIds(ids[i])) << text;
    EXPECT_EQ(tokenizer->Decode(got, true), decoded[i].as_string()) << text;
    EXPECT_EQ(Stream(*tokenizer, got, true), decoded[i].as_string()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, RealTokenizerTest,
                         testing::Values("gpt2", "gpt-neox", "llama2", "llama3.2", "qwen2.5",
                                         "qwen3", "qwen3-5", "qwen3-coder-next", "mistral-nemo",
                                         "deepseek-v3", "gemma"));

}  // namespace
}  // namespace reprise
