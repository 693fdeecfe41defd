// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "grammar/regex/char_set.h"
#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {

// The pieces of JSON as expressions over bytes.
//
// White space is bounded: nothing, one space, or one line break with its indentation, after { [ , :
// and before } ]. A model cannot lose itself in it.
//
// Strings have two forms. Where every string will do, all escapes are allowed (but no half of a
// surrogate pair). Where a string is constrained, each character has one spelling: complements and
// exclusions would be wrong otherwise.
struct JsonText {
  explicit JsonText(RegexPool& pool);

  RegexId space;       // optional
  RegexId any_string;  // with quotes, as all the others
  RegexId any_char;    // inside of a string, all escapes
  RegexId strict_string;
  RegexId any_number;  // with exponent
  RegexId decimal;     // without
  RegexId integer;     // digits alone
  RegexId whole;       // decimals that are integers: digits, then zeros
  RegexId quote;
};

// A whole string, quotes included. REQUIRES: valid UTF-8.
std::string SpellJsonString(std::string_view text);

}  // namespace reprise::grammar
