// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/regex/char_set.h"
#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {

// A pattern as people write it (ECMAScript and RE2 where they agree), read into a tree.
//
// Known: characters, . [...] [^...] \d \w \s \D \W \S \p{..} \xHH \uHHHH \u{...} \cX, groups of all
// kinds, |, * + ? {n} {n,} {n,m} and their lazy forms, ^ $, (?=...) and (?!...). Refused by name:
// \b, backreferences, lookbehind, inline flags, and an anchor or a lookahead in a repetition.
class Pattern {
 public:
  static constexpr size_t kBytesMax = size_t{1} << 16;
  static constexpr int kDepthMax = 100;
  static constexpr uint32_t kRepeatMax = 1'000'000;

  // Fails with kInvalidArgument if it is no pattern, with kUnimplemented for what is refused.
  static Result<Pattern> Parse(std::string_view text);

  // Texts that contain a match somewhere (JSON Schema's `pattern`), or that are one as a whole.
  enum class Match : uint8_t { kSomewhere, kWhole };
  Result<RegexId> Compile(RegexPool& pool, Spelling spelling, Match match) const;

 private:
  friend class PatternParser;
  friend class PatternCompiler;
  enum class Kind : uint8_t { kEmpty, kSet, kConcat, kOr, kRepeat, kStart, kEnd, kLook };
  struct Node {
    Kind kind = Kind::kEmpty;
    bool negative = false;      // kLook
    bool asserts = false;       // has kStart, kEnd or kLook in it
    uint32_t set = 0;           // kSet
    uint32_t min = 0, max = 0;  // kRepeat
    std::vector<uint32_t> parts = {};
  };
  std::vector<Node> nodes_;
  std::vector<CharSet> sets_;
  uint32_t root_ = 0;
};

}  // namespace reprise::grammar
