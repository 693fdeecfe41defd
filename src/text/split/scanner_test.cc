// SPDX-License-Identifier: Apache-2.0
// Proves: every scanner cuts any text as its pattern does when it runs as a regular expression:
// each code point in several surroundings, and random mixtures of all that the patterns look at,
// invalid UTF-8 included.
#include "text/split/scanner.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "text/split/regex.h"

namespace reprise {
namespace {

class ScannerTest : public testing::TestWithParam<std::string_view> {
 protected:
  ScannerTest() : scanner_(FindScanner(GetParam())), scratch_(Regex::MakeScratch()) {
    auto regex = Regex::Compile(GetParam());
    CHECK(regex.ok());
    regex_ = std::move(*regex);
  }

  void Compare(std::string_view text) {
    std::vector<Regex::Span> spans;
    ASSERT_TRUE(regex_->FindAll(text, scratch_.get(), &spans).ok());
    std::vector<Piece> pieces;
    scanner_(text, 0, &pieces);
    ASSERT_EQ(pieces.size(), spans.size()) << text;
    for (size_t i = 0; i < pieces.size(); ++i) {
      ASSERT_EQ(pieces[i].begin, spans[i].begin) << text;
      ASSERT_EQ(pieces[i].end, spans[i].end) << text;
    }
  }

  Scanner scanner_;
  std::unique_ptr<Regex> regex_;
  Regex::ScratchPtr scratch_;
};

TEST_P(ScannerTest, EveryCodePoint) {
  ASSERT_NE(scanner_, nullptr);
  std::string text;
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    // Where nothing is assigned, a sample is enough.
    if (code > 0x32400 && code % 97 != 0) continue;
    text.clear();
    AppendUtf8(code, &text);
    const std::string c = text;
    text = "a" + c + "b " + c + c + " 1" + c + "'s" + c + "\n" + c + "'" + c + " \t" + c + "!" + c;
    Compare(text);
  }
}

TEST_P(ScannerTest, RandomText) {
  static constexpr std::string_view kParts[] = {" ",
                                                "  ",
                                                "\t",
                                                "\n",
                                                "\r\n",
                                                "\r",
                                                "a",
                                                "Z",
                                                "word",
                                                "'",
                                                "'s",
                                                "'S",
                                                "'ll",
                                                "'Re",
                                                "'\xC5\xBF",
                                                "1",
                                                "23",
                                                "4567",
                                                "!",
                                                "...",
                                                "=>",
                                                "/",
                                                "_",
                                                "\xC3\xA9",
                                                "e\xCC\x81",
                                                "\xCC\x81",
                                                "中",
                                                "文",
                                                "か",
                                                "ン",
                                                "゛",
                                                "ー",
                                                "½",
                                                "\xD9\xA3",
                                                "\xE2\x80\x8D",
                                                "🙂",
                                                "👩🏽",
                                                "\xC2\xA0",
                                                "\xE3\x80\x80",
                                                "\xE2\x80\xA8",
                                                "\xE1\xA0\x8E",
                                                "\xFF",
                                                "\x80",
                                                "\xE4\xBD",
                                                "\xF0\x9F",
                                                "\xC2\x85",
                                                "\x1A",
                                                "\x7F"};
  Rng rng(3);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t n = rng.Below(14); n > 0; --n) text += kParts[rng.Below(std::size(kParts))];
    Compare(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, ScannerTest,
                         testing::Values(kGpt2Pattern, kLlama3Pattern, kQwen2Pattern,
                                         kQwen35Pattern, kDeepSeek3Pattern, kCjkPattern,
                                         kNumberPattern, kNumber3Pattern, kNumbersPattern));

TEST(FindScannerTest, KnowsExactPatternsOnly) {
  EXPECT_EQ(FindScanner("\\p{N}{1,2}"), nullptr);
  EXPECT_EQ(FindScanner(""), nullptr);
}

}  // namespace
}  // namespace reprise
