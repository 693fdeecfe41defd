// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {

inline constexpr uint32_t kCodeMax = 0x10FFFF;

// A set of Unicode characters as ascending, disjoint ranges that do not touch. Surrogates are never
// members: they are no characters.
class CharSet {
 public:
  struct Range {
    uint32_t first;
    uint32_t last;
    bool operator==(const Range&) const = default;
  };

  CharSet() = default;
  static CharSet Of(uint32_t first, uint32_t last);
  static CharSet All() { return Of(0, kCodeMax); }
  // \d, \w, \s of ECMAScript.
  static CharSet Digits();
  static CharSet Word();
  static CharSet Space();
  // A general category by its short name: L, Lu, Ll, M, N, P, S, Zs... Fails with kUnimplemented.
  static Result<CharSet> Category(std::string_view name);

  CharSet Union(const CharSet& other) const;
  CharSet Minus(const CharSet& other) const;
  CharSet Complement() const { return All().Minus(*this); }
  CharSet Intersect(const CharSet& other) const { return Minus(other.Complement()); }
  bool Has(uint32_t code) const;
  bool empty() const { return ranges_.empty(); }
  std::span<const Range> ranges() const { return ranges_; }
  bool operator==(const CharSet&) const = default;

 private:
  explicit CharSet(std::vector<Range> ranges);
  static CharSet ByClass(uint8_t bits);
  std::vector<Range> ranges_;
};

// How characters are written down.
enum class Spelling : uint8_t {
  kPlain,       // as UTF-8
  kJsonString,  // inside of a JSON string, each character in exactly one way: as UTF-8, and with a
                // backslash only what must have one
};

// One character of `set`, written as `spelling` says.
RegexId SpellSet(RegexPool& pool, const CharSet& set, Spelling spelling);
// Appends `code` as SpellSet would have it.
void SpellChar(uint32_t code, Spelling spelling, std::string* out);
// A whole text. REQUIRES: valid UTF-8.
std::string SpellText(std::string_view text, Spelling spelling);

}  // namespace reprise::grammar
