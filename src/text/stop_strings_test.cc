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

// Against a search that looks at everything: texts of few letters have many false beginnings.
TEST(StopStringsTest, EqualsAPlainSearch) {
  Rng rng(5);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<std::string> stops(1 + rng.Below(4));
    for (std::string& stop : stops) {
      for (uint64_t size = 1 + rng.Below(7); size > 0; --size) stop += "ab"[rng.Below(2)];
    }
    std::string text;
    for (int i = 0; i < 40; ++i) text += "abbac"[rng.Below(5)];
    size_t end = text.size() + 1;
    std::string found;
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == text.npos) continue;
      const bool before = at + stop.size() < end;
      if (before || (at + stop.size() == end && stop.size() > found.size())) {
        end = at + stop.size();
        found = stop;
      }
    }
    StopStrings watch(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + rng.Below(5);
      watch.Append(text.substr(at, size), &out);
      at += size;
    }
    watch.Finish(&out);
    EXPECT_EQ(watch.stopped(), !found.empty());
    EXPECT_EQ(watch.matched(), found);
    EXPECT_EQ(out, found.empty() ? text : text.substr(0, end - found.size()));
  }
}

TEST(StopStringsTest, ManyHoldTheirStringsOnce) {
  const StopStrings::List list = StopStrings::MakeList({std::string(4096, 'a'), "", "b"});
  EXPECT_EQ(list->size(), 2u);
  const std::vector<StopStrings> watches(128, StopStrings(list));
  EXPECT_GE(list.use_count(), 128);
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
