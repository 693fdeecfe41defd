// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {

// A decimal number as digits: exact, whatever its size.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // without leading zeros
  std::string fraction;     // without trailing zeros

  // REQUIRES: a number. What a double means is its shortest decimal form.
  static Decimal Of(const JsonValue& number);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool is_integer() const { return fraction.empty(); }
};

enum class Bound : uint8_t { kAtLeast, kAbove, kAtMost, kBelow };

// Texts of numbers whose value is so related to `limit`: decimals, and those with an exponent of at
// most two digits and one digit before the point (1.5e-07).
RegexId CompareDecimal(RegexPool& pool, Bound bound, const Decimal& limit);
// The value as it is written: its digits, with ".0" or without where it is an integer.
RegexId WriteDecimal(RegexPool& pool, const Decimal& value);
// Decimal texts that are a multiple of `step`; nothing if its digits are beyond what can be
// counted.
std::optional<RegexId> MultipleDecimal(RegexPool& pool, const Decimal& step);

}  // namespace reprise::grammar
