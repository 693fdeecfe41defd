// SPDX-License-Identifier: Apache-2.0
// Proves that where the marker of a call is a token, only that token begins a call: the same
// letters, quoted from a file or from the result of a tool, are text.
#include <gtest/gtest.h>

#include "text/detokenizer.h"
#include "text/output/output_parser.h"
#include "text/subword/byte_alphabet.h"
#include "text/vocab/json/tokenizer_json.h"

namespace reprise {
namespace {

constexpr char kBody[] = "\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n";

std::unique_ptr<Tokenizer> MakeTokenizer(bool with_marker) {
  std::string json = R"({"version":"1.0","added_tokens":[)";
  if (with_marker) {
    json += R"({"id":256,"content":"<tool_call>","single_word":false,"lstrip":false,)"
            R"("rstrip":false,"normalized":false,"special":false})";
  }
  json += R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)"
          R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel"},)"
          R"("model":{"type":"BPE","vocab":{)";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    std::string symbol;
    AppendAlphabetText({&c, 1}, &symbol);
    if (byte > 0) json += ',';
    AppendJsonString(symbol, &json);
    json += ":" + std::to_string(byte);
  }
  auto spec = ParseTokenizerJson(json + R"(},"merges":[]}})");
  CHECK(spec.ok());
  auto tokenizer = Tokenizer::Make(std::move(*spec));
  CHECK(tokenizer.ok());
  return std::move(*tokenizer);
}

// What a reply of these ids means: "call NAME(ARGUMENTS)" for calls, content as it is.
std::string Read(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const OutputFormat format = OutputFormat::Detect("<tool_call>", &tokenizer).ForPrompt("", true);
  Detokenizer::Options options;
  options.shown = format.shown.get();
  options.marked = format.call_tokens.get();
  options.mark = kTokenByte;
  Detokenizer detokenizer(tokenizer, options);
  OutputParser parser(format, nullptr);
  std::string said;
  const auto note = [&](const OutputEvents& events) {
    for (const OutputEvent& event : events) {
      if (event.kind == OutputEvent::Kind::kCallBegin) said += "call " + event.name + "(";
      said += event.text;
      if (event.kind == OutputEvent::Kind::kCallEnd) said += ")";
    }
  };
  for (const int32_t id : ids) {
    std::string text;
    detokenizer.Append(id, &text);
    note(parser.Feed(text));
  }
  note(parser.Finish());
  return said;
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text, bool tokens) {
  std::vector<int32_t> ids;
  CHECK(tokenizer.Encode(text, {.add_special = false, .parse_special = tokens}, &ids).ok());
  return ids;
}

TEST(CallTokens, OnlyTheTokenBeginsACall) {
  const auto tokenizer = MakeTokenizer(true);
  const std::string reply = std::string("See: <tool_call>") + kBody + "</tool_call>";
  EXPECT_EQ(Read(*tokenizer, Ids(*tokenizer, reply, true)), "See:call f({\"a\": 1})");
  EXPECT_EQ(Read(*tokenizer, Ids(*tokenizer, reply, false)), reply);
}

TEST(CallTokens, LettersBeginACallWhereThereIsNoToken) {
  const auto tokenizer = MakeTokenizer(false);
  const std::string reply = std::string("<tool_call>") + kBody + "</tool_call>";
  EXPECT_EQ(Read(*tokenizer, Ids(*tokenizer, reply, false)), "call f({\"a\": 1})");
}

// Text before, between and inside of calls, and a token that begins none.
TEST(CallTokens, TokensAreFoundEverywhere) {
  const auto tokenizer = MakeTokenizer(true);
  const std::string call = std::string("<tool_call>") + kBody + "</tool_call>";
  EXPECT_EQ(Read(*tokenizer, Ids(*tokenizer, call + "\n" + call, true)),
            "call f({\"a\": 1})call f({\"a\": 1})");
  EXPECT_EQ(Read(*tokenizer, Ids(*tokenizer, "a <tool_call> b", true)), "a <tool_call> b");
  EXPECT_EQ(
      Read(*tokenizer, Ids(*tokenizer, "<tool_call> no <tool_call>" + std::string(kBody), true)),
      "<tool_call> nocall f({\"a\": 1})");
  // A marker inside an argument is part of it.
  const std::string quoting =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"<tool_call>\"}}";
  EXPECT_EQ(Read(*tokenizer, Ids(*tokenizer, quoting, true)), "call f({\"a\": \"<tool_call>\"})");
}

}  // namespace
}  // namespace reprise
