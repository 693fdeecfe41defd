// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise {

// Regex runs the patterns of tokenizer.json files that no scanner knows, on PCRE2.
//
// The files are written for Oniguruma's Ruby syntax and Unicode 16; the pattern is rewritten where
// PCRE2 reads it differently (\s, \w, \h, \u, sets with &&, the plus after an interval, ^ and $),
// and what cannot be rewritten is refused. A character that PCRE2 is too old to know is shown to it
// as an older one of its kind, an invalid byte as a control character; offsets do not change.
//
// Thread safety: immutable; each thread brings its own Scratch.
class Regex {
 public:
  struct Span {
    uint32_t begin;
    uint32_t end;
    bool match;  // false: a gap
  };

  class Scratch;
  struct ScratchDeleter {
    void operator()(Scratch* scratch) const;
  };
  using ScratchPtr = std::unique_ptr<Scratch, ScratchDeleter>;
  static ScratchPtr MakeScratch();

  // Fails with kUnimplemented if the pattern cannot be run.
  static Result<std::unique_ptr<Regex>> Compile(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Appends all matches from left to right and the gaps between them; together they cover `text`.
  // An empty match is a span of its own. Fails with kResourceExhausted if the pattern backtracks
  // beyond its limit. REQUIRES: text.size() < 2^31.
  Status FindAll(std::string_view text, Scratch* scratch, std::vector<Span>* spans) const;

 private:
  explicit Regex(void* code) : code_(code) {}
  void* code_;  // pcre2_code
};

// The pattern in PCRE2's syntax, for tests.
Result<std::string> RewriteForPcre2(std::string_view pattern);

}  // namespace reprise
