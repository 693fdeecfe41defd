// SPDX-License-Identifier: Apache-2.0
// Proves: broken and hostile tokenizer files are refused with a sentence that says what is wrong,
// before anything is allocated by their numbers; what is valid but unsupported is named.
#include "text/vocab/json/tokenizer_json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "text/tokenizer.h"
#include "text/vocab/check.h"
#include "text/vocab/rwkv.h"
#include "text/vocab/sentencepiece.h"

namespace reprise {
namespace {

Status Load(const std::string& json) {
  auto spec = ParseTokenizerJson(json);
  if (!spec.ok()) return spec.status();
  return Tokenizer::Make(std::move(*spec)).status();
}

void ExpectRefused(const std::string& json, StatusCode code, const std::string& sentence) {
  const Status status = Load(json);
  EXPECT_EQ(status.code(), code) << json << ": " << status.message();
  EXPECT_NE(status.message().find(sentence), std::string::npos) << json << ": " << status.message();
}

std::string Bpe(const std::string& vocab, const std::string& merges, const std::string& more = "") {
  return R"({"model":{"type":"BPE","vocab":)" + vocab + R"(,"merges":)" + merges + "}" + more + "}";
}

TEST(TokenizerJsonTest, AcceptsTheSmallest) {
  EXPECT_TRUE(Load(Bpe(R"({"a":0,"b":1,"ab":2})", R"(["a b"])")).ok());
  EXPECT_TRUE(Load(Bpe(R"({"a":0,"b":1,"ab":2})", R"([["a","b"]])")).ok());
  EXPECT_TRUE(Load(R"({"model":{"merges":[],"vocab":{"a":0}}})").ok());  // old files name no type
}

TEST(TokenizerJsonTest, RefusesBrokenFiles) {
  const StatusCode kLoss = StatusCode::kDataLoss;
  ExpectRefused("", kLoss, "tokenizer.json: JSON, byte 0");
  ExpectRefused("[]", kLoss, "not an object");
  ExpectRefused("{}", kLoss, "there is no model");
  ExpectRefused(R"({"model":{"type":"BPE"}})", kLoss, "no vocabulary");
  ExpectRefused(R"({"model":{"type":"BPE","vocab":{}}})", kLoss, "no merges");
  ExpectRefused(Bpe("{}", "[]"), kLoss, "has no tokens");
  ExpectRefused(Bpe(R"({"a":0,"b":0})", "[]"), kLoss, "two tokens have the id 0");
  ExpectRefused(Bpe(R"({"a":0,"a":1})", "[]"), kLoss, "duplicate");
  ExpectRefused(Bpe(R"({"a":"0"})", "[]"), kLoss, "an id that is not a number");
  ExpectRefused(R"({"model":{"type":"BPE","unk_token":"x","vocab":{"a":0},"merges":[]}})", kLoss,
                "unknown token is not in the vocabulary");
}

TEST(TokenizerJsonTest, RefusesIdsOutOfRange) {
  const StatusCode kLoss = StatusCode::kDataLoss;
  for (const char* id :
       {"-1", "2097152", "4294967295", "4294967296", "9223372036854775807", "1.5"}) {
    ExpectRefused(Bpe(std::string(R"({"a":)") + id + "}", "[]"), kLoss,
                  "an id that is not a number");
    ExpectRefused(Bpe(R"({"a":0})", "[]",
                      std::string(R"(,"added_tokens":[{"id":)") + id + R"(,"content":"x"}])"),
                  kLoss, "an id that is not a number");
    ExpectRefused(Bpe(R"({"a":0})", "[]",
                      std::string(R"(,"post_processor":{"type":"TemplateProcessing","single":[)"
                                  R"({"SpecialToken":{"id":"x"}},{"Sequence":{}}],)"
                                  R"("special_tokens":{"x":{"ids":[)") +
                          id + "]}}}"),
                  kLoss, "id out of range");
  }
  // Within the limit, but not in the vocabulary.
  ExpectRefused(Bpe(R"({"a":0})", "[]",
                    R"(,"post_processor":{"type":"BertProcessing","cls":["x",5],"sep":["y",0]})"),
                kLoss, "has the id 5");
}

TEST(TokenizerJsonTest, RefusesBrokenMerges) {
  const StatusCode kLoss = StatusCode::kDataLoss;
  for (const char* merge : {R"("ab")", R"("")", R"(" ")", R"("a ")", R"("a b c")", "7", R"(["a"])",
                            R"(["a","b","c"])", R"(["a",1])"}) {
    ExpectRefused(Bpe(R"({"a":0})", std::string("[") + merge + "]"), kLoss, "is not a pair");
  }
  ExpectRefused(Bpe(R"({"a":0,"b":1})", R"(["a z"])"), kLoss,
                "the second is not in the vocabulary");
  ExpectRefused(Bpe(R"({"a":0,"b":1})", R"(["a b"])"), kLoss,
                "the result is not in the vocabulary");
  ExpectRefused(Bpe(R"({"a":0,"b":1,"ab":2})", R"([["",""]])"), kLoss, "the first is not");
}

TEST(TokenizerJsonTest, NamesWhatIsNotSupported) {
  const StatusCode kNot = StatusCode::kUnimplemented;
  ExpectRefused(R"({"model":{"type":"WordPiece"}})", kNot, "WordPiece");
  const auto with = [](const char* part) {
    return Bpe(R"({"a":0})", "[]", std::string(",") + part);
  };
  ExpectRefused(with(R"("normalizer":{"type":"Nmt"})"), kNot, "Nmt");
  ExpectRefused(with(R"("pre_tokenizer":{"type":"CharDelimiterSplit"})"), kNot, "CharDelimiter");
  ExpectRefused(with(R"("decoder":{"type":"CTC"})"), kNot, "CTC");
  ExpectRefused(with(R"("post_processor":{"type":"Other"})"), kNot, "Other");
  ExpectRefused(with(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},)"
                     R"("behavior":"Isolated"})"),
                kNot, "cannot be compiled");
  ExpectRefused(R"({"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{},"merges":[]}})",
                kNot, "end_of_word_suffix");
}

// "<0x-1>" once wrote before the start of a table (llama.cpp issue 25969).
TEST(TokenizerJsonTest, OnlyTwoHexDigitsMakeAByteToken) {
  auto spec = ParseTokenizerJson(
      R"({"model":{"type":"BPE","byte_fallback":true,"merges":[],)"
      R"("vocab":{"<0x-1>":0,"<0x100>":1,"<0x0g>":2,"<0x61>":3,"<0x":4,"<0x 1>":5}}})");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const auto tokenizer = Tokenizer::Make(std::move(*spec));
  ASSERT_TRUE(tokenizer.ok());
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("a", {}, &ids).ok());
  EXPECT_EQ(ids, std::vector<int32_t>{3});
  EXPECT_EQ((*tokenizer)->TokenBytes(3), "a");
  EXPECT_EQ((*tokenizer)->TokenBytes(0), "<0x-1>");
}

// Once a signed length (CVE-2025-49847), once a count cut to 32 bits (CVE-2025-52566).
TEST(TokenizerJsonTest, LongTokensAndLongTextsAreRefused) {
  const std::string token(kTokenBytesMax + 1, 'a');
  ExpectRefused(Bpe(R"({")" + token + R"(":0})", "[]"), StatusCode::kDataLoss, "bytes long");
  ExpectRefused(
      Bpe(R"({"a":0})", "[]", R"(,"added_tokens":[{"id":1,"content":")" + token + R"("}])"),
      StatusCode::kDataLoss, "long");
  auto spec = ParseTokenizerJson(Bpe(R"({"a":0})", "[]"));
  const auto tokenizer = Tokenizer::Make(std::move(*spec));
  ASSERT_TRUE(tokenizer.ok());
  const std::string text(Tokenizer::kTextBytesMax + 1, '\n');
  std::vector<int32_t> ids = {7};
  EXPECT_EQ((*tokenizer)->Encode(text, {}, &ids).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ids, std::vector<int32_t>{7});
}

TEST(TokenizerJsonTest, PatternsThatGiveUpLeaveNothingBehind) {
  auto spec = ParseTokenizerJson(Bpe(
      R"({"a":0,"!":1})", "[]",
      R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a+)+$"},"behavior":"Isolated"})"));
  ASSERT_TRUE(spec.ok());
  const auto tokenizer = Tokenizer::Make(std::move(*spec));
  ASSERT_TRUE(tokenizer.ok());
  std::vector<int32_t> ids = {7};
  const Status status = (*tokenizer)->Encode(std::string(100, 'a') + "!", {}, &ids);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_EQ(ids, std::vector<int32_t>{7});
}

// A replacement of one character by 60,000 is a bomb.
TEST(TokenizerJsonTest, NormalizersThatBlowUpEnd) {
  auto spec = ParseTokenizerJson(Bpe(R"({"a":0})", "[]",
                                     R"(,"normalizer":{"type":"Replace","pattern":{"String":"a"},)"
                                     R"("content":")" +
                                         std::string(60000, 'b') + R"("})"));
  ASSERT_TRUE(spec.ok());
  const auto tokenizer = Tokenizer::Make(std::move(*spec));
  ASSERT_TRUE(tokenizer.ok());
  std::vector<int32_t> ids;
  EXPECT_EQ((*tokenizer)->Encode(std::string(100000, 'a'), {}, &ids).code(),
            StatusCode::kResourceExhausted);
}

TEST(SentencePieceModelTest, RefusesBrokenFiles) {
  for (const std::string_view file :
       {std::string_view(""), std::string_view("\x0A"),
        std::string_view("\x0A\xFF\xFF\xFF\xFF\x0F"), std::string_view("\x0A\x02\x18\x09"),
        std::string_view("\x0A\x01\x0A"),
        std::string_view("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
        std::string_view("\x00\x00", 2), std::string_view("{\"model\":{}}")}) {
    EXPECT_FALSE(ParseSentencePieceModel(file).ok());
  }
}

TEST(RwkvVocabTest, ReadsPythonLiterals) {
  const auto spec = ParseRwkvVocab(
      "1 '\\x00' 1\n2 '\\t' 1\n3 'a b' 3\n4 b'\\xe4\\xbd' 2\n5 '\\xe9' 2\n6 \"it's\" 4\n"
      "7 '\\u3000' 3\n8 '\\\\' 1\n9 '\\U0001f600' 4\n");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const std::string_view expected[] = {
      std::string_view("\0", 1), "\t", "a b", "\xE4\xBD", "\xC3\xA9", "it's", "\xE3\x80\x80", "\\",
      "\xF0\x9F\x98\x80"};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(spec->tokens[i + 1], expected[i]);
}

TEST(RwkvVocabTest, RefusesBrokenLines) {
  for (const char* file : {"x", "1 'a'", "1 'a' 2", "1 a 1", "1 'a 1", "0 'a' 1", "65536 'a' 1",
                           "-1 'a' 1", "1 '\\x' 1", "1 '\\ud800' 3", "1 b'\\u0041' 1", "1 '' 0",
                           "1 'a' 1\n1 'b' 1", "99999999999999999999 'a' 1", "1 '\\' 1"}) {
    EXPECT_FALSE(ParseRwkvVocab(file).ok()) << file;
  }
}

TEST(CheckVocabTest, RefusesContradictions) {
  const auto refused = [](auto change, const std::string& sentence) {
    VocabSpec spec;
    spec.tokens.Add("a");
    spec.tokens.Add("b");
    change(&spec);
    const Status status = CheckVocab(spec);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(sentence), std::string::npos) << status.message();
  };
  refused([](VocabSpec* s) { s->kinds.resize(1); }, "token types");
  refused([](VocabSpec* s) { s->scores.resize(3); }, "scores");
  refused([](VocabSpec* s) { s->scores = {0, std::nan("")}; }, "finite");
  refused([](VocabSpec* s) { s->merges.Add("a"); }, "no second part");
  refused([](VocabSpec* s) { s->bos_id = 2; }, "beginning-of-text");
  refused([](VocabSpec* s) { s->bos_id = -2; }, "beginning-of-text");
  refused([](VocabSpec* s) { s->unknown_id = INT32_MAX; }, "unknown");
  refused([](VocabSpec* s) { s->eos_ids = {-1}; }, "end-of-text");
  refused([](VocabSpec* s) { s->prefix_ids = {7}; }, "first");
  refused([](VocabSpec* s) { s->added.push_back({.id = 9, .text = "x"}); }, "added");
}

}  // namespace
}  // namespace reprise
