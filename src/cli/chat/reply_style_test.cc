// SPDX-License-Identifier: Apache-2.0
// Proves how a reply looks on a terminal, however its text is cut.
#include "cli/chat/reply_style.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace reprise::cli {
namespace {

constexpr char kDim[] = "\x1b[0;2m";
constexpr char kCode[] = "\x1b[0;36m";
constexpr char kPlain[] = "\x1b[0m";

std::string Said(std::string_view text, int columns, bool colours, size_t piece = 1 << 20) {
  ReplyStyle style(columns, colours);
  std::string out;
  while (!text.empty()) {
    size_t length = std::min(piece, text.size());
    while (length < text.size() && (text[length] & 0xC0) == 0x80) ++length;  // whole characters
    out += style.Say(text.substr(0, length));
    text.remove_prefix(length);
  }
  return out + style.Finish();
}

TEST(ReplyStyleTest, WordsWrapAtTheWidth) {
  EXPECT_EQ(Said("the quick brown fox", 10, false), "the quick\nbrown fox\n");
  EXPECT_EQ(Said("one  two\n\n  three", 20, false), "one  two\n\n  three\n");
  EXPECT_EQ(Said("\u4e16\u754c\u4f60\u597d\u4e16\u754c", 8, false),
            "\u4e16\u754c\u4f60\u597d\n\u4e16\u754c\n");
}

TEST(ReplyStyleTest, EveryLineFits) {
  const std::string text = "a verylongwordthatneverends b \u4e16\u754c\u4f60 and so on, `x y`\nz";
  const std::string out = Said(text, 10, false);
  int column = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto byte = static_cast<unsigned char>(out[i]);
    if ((byte & 0xC0) == 0x80) continue;
    column = byte == '\n' ? 0 : column + (byte >= 0xE0 ? 2 : 1);
    EXPECT_LE(column, 10) << out;
  }
}

TEST(ReplyStyleTest, CodeHasAColourAndIsNotWrapped) {
  EXPECT_EQ(Said("use `ls -l` now", 80, true),
            std::string("use ") + kCode + "`ls -l`" + kPlain + " now\n");
  EXPECT_EQ(Said("```sh\necho a b c d e f g\n```\ndone", 10, true),
            std::string(kDim) + "```sh" + kPlain + "\n" + kCode + "echo a b c d e f g" + kPlain +
                "\n" + kDim + "```" + kPlain + "\ndone\n");
}

TEST(ReplyStyleTest, ThoughtsAreDimAndStandApart) {
  ReplyStyle style(80, true);
  std::string out = style.Think("\nhm, `x`\n");
  out += style.Say("\n\nyes");
  out += style.Finish();
  EXPECT_EQ(out, std::string(kDim) + "hm, `x`\n\n" + kPlain + "yes\n");
}

TEST(ReplyStyleTest, HowTheTextIsCutDoesNotMatter) {
  const std::string text =
      "# Title\n\nSome `code` and\ttext that wraps.\n\n  ```c\n  int x;\n  ```\n- "
      "\u4e16\u754c\n``\n`";
  for (const bool colours : {false, true}) {
    const std::string whole = Said(text, 12, colours);
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}}) {
      EXPECT_EQ(Said(text, 12, colours, piece), whole);
    }
  }
}

TEST(ReplyStyleTest, ControlCharactersOfTheModelAreLeftOut) {
  EXPECT_EQ(Said("a\x1b[2Jb\x07\r\u009bc", 80, false), "a[2Jbc\n");
  EXPECT_EQ(Said("```\n\x1b]0;title\x07\n```", 80, false), "```\n]0;title\n```\n");
}

}  // namespace
}  // namespace reprise::cli
