// SPDX-License-Identifier: Apache-2.0
// Proves: a tekken.json gives the special tokens that its reader gives them, by list or by version;
// what is broken is refused with a sentence. That ids are those of Mistral's own tokenizer is in
// tokenizer_test.cc (the fixture "mistral.json").
#include "text/vocab/json/tekken.h"

#include <gtest/gtest.h>

#include <string>

#include "base/mapped_file.h"
#include "text/test_assets.h"
#include "text/tokenizer.h"
#include "text/vocab/json/tokenizer_json.h"

namespace reprise {
namespace {

std::string Fixture() {
  const auto text = ReadFile(kTokenizerData + std::string("mistral.json"), 1 << 20);
  CHECK(text.ok());
  return *text;
}

std::string With(const std::string& from, const std::string& to) {
  std::string text = Fixture();
  const size_t at = text.find(from);
  CHECK(at != text.npos);
  return text.replace(at, from.size(), to);
}

std::string Refusal(const std::string& json) {
  const auto spec = ParseTokenizerJson(json);
  return spec.ok() ? "" : spec.status().message();
}

TEST(Tekken, SpecialTokensOfOldFilesAreKnown) {
  auto spec = ParseTokenizerJson(Fixture());
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->bos_id, 1);
  EXPECT_EQ(spec->unknown_id, 0);
  EXPECT_EQ(spec->pad_id, 11);
  EXPECT_EQ(spec->eos_ids, std::vector<int32_t>{2});
  EXPECT_EQ(spec->prefix_ids, std::vector<int32_t>{1});
  const auto tokenizer = Tokenizer::Make(std::move(*spec));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->FindToken("[/INST]"), 4);
  EXPECT_EQ((*tokenizer)->FindToken("<SPECIAL_23>"), 23);
  for (int32_t id = 0; id < 24; ++id) EXPECT_TRUE((*tokenizer)->IsSpecial(id)) << id;
  EXPECT_FALSE((*tokenizer)->IsSpecial(24));
  EXPECT_EQ((*tokenizer)->TokenBytes(24 + 0x20), " ");
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("[INST]a", {.parse_special = true}, &ids).ok());
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 3, 24 + 'a'}));
  ids.clear();
  ASSERT_TRUE((*tokenizer)->Encode("[INST]", {.add_special = false}, &ids).ok());
  for (const int32_t id : ids) EXPECT_GE(id, 24);
}

TEST(Tekken, SpecialTokensMayBeListed) {
  const std::string list = R"({"special_tokens":[{"rank":0,"token_str":"<s>","is_control":true},)"
                           R"({"rank":1,"token_str":"[THINK]","is_control":true}],"config")";
  const auto spec = ParseTokenizerJson(With("{\"config\"", list));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->bos_id, 0);
  EXPECT_TRUE(spec->eos_ids.empty());
  EXPECT_EQ(spec->tokens[1], "[THINK]");
  EXPECT_EQ(spec->tokens[2], "<SPECIAL_2>");
}

TEST(Tekken, BrokenFilesAreRefused) {
  const auto expect = [](const std::string& json, const std::string& sentence) {
    EXPECT_NE(Refusal(json).find(sentence), std::string::npos) << Refusal(json);
  };
  expect(With("\"v3\"", "\"v11\""), "there are no special tokens");
  expect(With("\"v3\"", "\"three\""), "the version is not known");
  expect(With("_tokens\":24", "_tokens\":-1"), "the sizes of the vocabulary do not fit");
  expect(With("_vocab_size\":512,\"default_num_special_tokens\":24",
              "_vocab_size\":400,\"default_num_special_tokens\":19"),
         "more special tokens than their number");
  expect(With("_vocab_size\":", "_vocab_size\":99"), "the sizes of the vocabulary do not fit");
  expect(With("_vocab_size\":", "_vocab_size\":null,\"x\":"), "the sizes of the vocabulary");
  expect(With("\"vocab\":[", "\"vocab\":1,\"x\":["), "there is no vocabulary");
  expect(With("\"rank\":7,", "\"rank\":8,"), "token 7 has another rank");
  expect(With("\"rank\":7,\"token_bytes\":\"Bw==\"", "\"rank\":7,\"token_bytes\":\"B\""),
         "token 7 has no bytes in base64");
  expect(With("\"rank\":7,\"token_bytes\":\"Bw==\"", "\"rank\":7,\"token_bytes\":\"Bg==\""),
         "token 7 is not that byte");
  expect(With("{\"config\"", R"({"special_tokens":[{"rank":1,"token_str":"a"}],"config")"),
         "special token 0 has no name or rank");
  expect(With("{\"config\"", R"({"special_tokens":[{"rank":0,"token_str":"a"},)"
                             R"({"rank":1,"token_str":"a"}],"config")"),
         "two special tokens have one name");
}

}  // namespace
}  // namespace reprise
