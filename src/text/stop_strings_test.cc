// SPDX-License-Identifier: Apache-2.0
// Proves: text is the same however it was cut, ends before the first stop, and nothing is sent
// that could be part of one.
#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace reprise {
namespace {

struct Outcome {
  std::string text;
  std::string matched;
  bool operator==(const Outcome&) const = default;
};

Outcome Feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings stream(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    if (stream.Append(piece, &outcome.text)) break;
  }
  stream.Finish(&outcome.text);
  outcome.matched = stream.matched();
  return outcome;
}

TEST(StopStringsTest, EndsBeforeTheStop) {
  EXPECT_EQ(Feed({"###"}, {"abc##", "#def"}), (Outcome{"abc", "###"}));
  EXPECT_EQ(Feed({"###"}, {"abc##", "x#"}), (Outcome{"abc##x#", ""}));
  EXPECT_EQ(Feed({}, {"abc"}), (Outcome{"abc", ""}));
  EXPECT_EQ(Feed({""}, {"abc"}), (Outcome{"abc", ""}));
  EXPECT_EQ(Feed({"a"}, {"aaa"}), (Outcome{"", "a"}));
}

TEST(StopStringsTest, HoldsBackBeginnings) {
  StopStrings stream({"\nUser:", "END"});
  std::string text;
  stream.Append("ok\nUs", &text);
  EXPECT_EQ(text, "ok");
  EXPECT_EQ(stream.held_bytes(), 3u);
  stream.Append("e it", &text);
  EXPECT_EQ(text, "ok\nUse it");
  stream.Append(" E", &text);
  EXPECT_EQ(text, "ok\nUse it ");
  EXPECT_TRUE(stream.Append("NDE", &text));
  EXPECT_TRUE(stream.Append("more", &text));
  stream.Finish(&text);
  EXPECT_EQ(text, "ok\nUse it ");
  EXPECT_EQ(stream.matched(), "END");
}

TEST(StopStringsTest, TheStopThatEndsFirstCounts) {
  EXPECT_EQ(Feed({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", "bc"}));
  EXPECT_EQ(Feed({"bc", "abc"}, {"xabcd"}), (Outcome{"x", "abc"}));
  EXPECT_EQ(Feed({"aab"}, {"aaab"}), (Outcome{"a", "aab"}));
}

TEST(StopStringsTest, CutsDoNotMatter) {
  Rng rng(5);
  for (int round = 0; round < 5000; ++round) {
    const auto random_text = [&](uint64_t size_max) {
      std::string text;
      for (uint64_t n = rng.Below(size_max); n > 0; --n)
        text += static_cast<char>('a' + rng.Below(2));
      return text;
    };
    std::vector<std::string> stops;
    for (uint64_t n = 1 + rng.Below(3); n > 0; --n) stops.push_back(random_text(6));
    const std::string text = random_text(20);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + rng.Below(4);
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    EXPECT_EQ(Feed(stops, pieces), Feed(stops, {text}));
  }
}

}  // namespace
}  // namespace reprise
