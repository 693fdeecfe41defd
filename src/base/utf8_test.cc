// SPDX-License-Identifier: Apache-2.0
// Proves the table of well-formed sequences of the Unicode standard, and the round trip of every
// code.
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(Utf8, EveryCodePointSurvivesTheRoundTrip) {
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    AppendUtf8(code, &text);
    ASSERT_EQ(Utf8SequenceLength(text), text.size());
    ASSERT_EQ(DecodeUtf8(text, text.size()), code);
    for (size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(Utf8SequenceLength(text.substr(0, cut)), 0u);
  }
}

TEST(Utf8, RefusesIllFormedSequences) {
  for (const char* text :
       {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE2\x82", "\xC3\x28"}) {
    EXPECT_FALSE(IsValidUtf8(text));
    EXPECT_FALSE(IsValidUtf8(std::string("plain ascii, then ") + text));
  }
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("sixteen bytes ok"));
}

}  // namespace
}  // namespace reprise
