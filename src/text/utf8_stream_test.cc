// SPDX-License-Identifier: Apache-2.0
// Proves: the output is valid UTF-8 after every piece, equals the text when the bytes are valid,
// has one U+FFFD per maximal subpart otherwise, and does not depend on how the bytes were cut.
#include "text/utf8_stream.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/utf8.h"

namespace reprise {
namespace {

std::string Whole(std::string_view bytes) {
  Utf8Stream stream;
  std::string out;
  stream.Append(bytes, &out);
  stream.Finish(&out);
  return out;
}

std::string ByteByByte(std::string_view bytes) {
  Utf8Stream stream;
  std::string out;
  for (const char byte : bytes) {
    stream.Append({&byte, 1}, &out);
    EXPECT_TRUE(IsValidUtf8(out));
    EXPECT_LE(stream.held_bytes(), 3u);
  }
  stream.Finish(&out);
  return out;
}

TEST(Utf8StreamTest, ValidTextPassesUnchanged) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80z";
  EXPECT_EQ(Whole(text), text);
  EXPECT_EQ(ByteByByte(text), text);
}

TEST(Utf8StreamTest, HoldsBackTheBeginningOfACodePoint) {
  Utf8Stream stream;
  std::string out;
  stream.Append("x\xF0\x9F", &out);
  EXPECT_EQ(out, "x");
  stream.Append("\x9A", &out);
  EXPECT_EQ(out, "x");
  stream.Append("\x80y", &out);
  EXPECT_EQ(out, "x\xF0\x9F\x9A\x80y");
}

TEST(Utf8StreamTest, OneReplacementPerMaximalSubpart) {
  const std::string r = "\xEF\xBF\xBD";
  const struct {
    std::string bytes, text;
  } cases[] = {
      {"\x80", r},
      {"\xC0\xAF", r + r},          // overlong
      {"\xE0\x80\xAF", r + r + r},  // overlong
      {"\xED\xA0\x80", r + r + r},  // surrogate
      {"\xF0\x9F\x9A", r},          // cut off
      {"\xF0\x9F\x9A"
       "A",
       r + "A"},  // interrupted
      {"\xE2\x82"
       "\xC3\xA9",
       r + "\xC3\xA9"},
      {"\xF4\x90\x80\x80", r + r + r + r},  // beyond U+10FFFF
      {"\xFF\xFE", r + r},
      {"\xF1\x80\x80\xE1\x80\xC2"
       "b",
       r + r + r + "b"},  // the example of the standard
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Whole(c.bytes), c.text);
    EXPECT_EQ(ByteByByte(c.bytes), c.text);
  }
}

TEST(Utf8StreamTest, CutsDoNotMatter) {
  static constexpr char kBytes[] = "a\x80\xBF\xC2\xC3\xE0\xE2\xED\xA0\x82\xF0\x9F\x90\xF4\x8F\xFF";
  Rng rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) bytes += kBytes[rng.Below(sizeof(kBytes) - 1)];
    const std::string whole = Whole(bytes);
    EXPECT_TRUE(IsValidUtf8(whole));
    EXPECT_EQ(ByteByByte(bytes), whole);
  }
}

}  // namespace
}  // namespace reprise
