// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema/decimal.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace reprise::grammar {
namespace {

// Builds comparisons of magnitudes: numbers without a sign.
class Magnitudes {
 public:
  explicit Magnitudes(RegexPool& pool) : pool_(pool) {}

  RegexId Compare(Bound bound, const Decimal& limit) {
    const bool upward = bound == Bound::kAtLeast || bound == Bound::kAbove;
    const RegexId further = upward ? WholeAbove(limit.whole) : WholeBelow(limit.whole);
    return pool_.Or({Join({further, AnyFraction()}),
                     Join({pool_.Literal(limit.whole), Fraction(bound, limit.fraction)}),
                     Scientific(bound, limit)});
  }

  RegexId Equal(const Decimal& value) {
    const RegexId zeros = pool_.Repeat(pool_.Literal("0"), value.fraction.empty() ? 1 : 0);
    const RegexId fraction = Join({pool_.Literal("." + value.fraction), zeros});
    return Join(
        {pool_.Literal(value.whole), value.fraction.empty() ? pool_.Optional(fraction) : fraction});
  }

  RegexId Any() {
    const RegexId whole =
        pool_.Or(pool_.Literal("0"), Join({Digits('1', '9'), pool_.Repeat(Digits('0', '9'), 0)}));
    return pool_.Or(Join({whole, AnyFraction()}), AnyScientific());
  }

 private:
  static constexpr int kExponentMax = 99;
  RegexId Join(std::initializer_list<RegexId> parts) {
    return pool_.Concat(std::span<const RegexId>(parts.begin(), parts.size()));
  }
  RegexId Digits(int first, int last) { return pool_.Bytes(ByteSet::Range(first, last)); }
  RegexId Tail(size_t min) { return pool_.Repeat(Digits('0', '9'), static_cast<uint32_t>(min)); }
  RegexId Exactly(size_t count) {
    const auto n = static_cast<uint32_t>(count);
    return pool_.Repeat(Digits('0', '9'), n, n);
  }
  RegexId AnyFraction() { return pool_.Optional(Join({pool_.Literal("."), Tail(1)})); }

  RegexId WholeAbove(const std::string& digits) {
    std::vector<RegexId> parts = {Join({Digits('1', '9'), Tail(digits.size())})};
    for (size_t i = 0; i < digits.size(); ++i) {
      if (digits[i] == '9') continue;
      parts.push_back(Join({pool_.Literal(digits.substr(0, i)), Digits(digits[i] + 1, '9'),
                            Exactly(digits.size() - i - 1)}));
    }
    return pool_.Or(std::move(parts));
  }

  RegexId WholeBelow(const std::string& digits) {
    std::vector<RegexId> parts;
    if (digits.size() > 1) {
      const auto longest = static_cast<uint32_t>(digits.size() - 2);
      parts.push_back(pool_.Literal("0"));
      parts.push_back(Join({Digits('1', '9'), pool_.Repeat(Digits('0', '9'), 0, longest)}));
    }
    for (size_t i = 0; i < digits.size(); ++i) {
      const char lowest = i == 0 && digits.size() > 1 ? '1' : '0';
      if (digits[i] <= lowest) continue;
      parts.push_back(Join({pool_.Literal(digits.substr(0, i)), Digits(lowest, digits[i] - 1),
                            Exactly(digits.size() - i - 1)}));
    }
    return pool_.Or(std::move(parts));
  }

  // Numbers as 1.5e-07: one digit that is not 0 before the point, so the exponent decides first.
  RegexId AnyScientific() {
    return Join({Digits('1', '9'), AnyFraction(), Exponents(-kExponentMax, kExponentMax)});
  }

  RegexId Scientific(Bound bound, const Decimal& limit) {
    const bool upward = bound == Bound::kAtLeast || bound == Bound::kAbove;
    if (limit.is_zero()) return upward ? AnyScientific() : RegexId::kNothing;
    std::string digits = limit.whole + limit.fraction;
    const size_t first = digits.find_first_not_of('0');
    const int exponent = static_cast<int>(limit.whole.size()) - 1 - static_cast<int>(first);
    const int lead = digits[first];
    digits.erase(0, first + 1);
    while (digits.ends_with('0')) digits.pop_back();
    const RegexId further =
        upward ? Exponents(exponent + 1, kExponentMax) : Exponents(-kExponentMax, exponent - 1);
    const RegexId further_lead = upward ? Digits(lead + 1, '9') : Digits('1', lead - 1);
    const RegexId same = pool_.Or(
        Join({further_lead, AnyFraction()}),
        Join({pool_.Literal(std::string(1, static_cast<char>(lead))), Fraction(bound, digits)}));
    return pool_.Or(Join({Digits('1', '9'), AnyFraction(), further}),
                    Join({same, Exponents(exponent, exponent)}));
  }

  // Exponents of [first, last], those below 10 with two digits or one.
  RegexId Exponents(int first, int last) {
    const auto sized = [&](int from, int to) {
      std::vector<RegexId> parts;
      if (from <= 9) parts.push_back(Digits('0' + from, '0' + std::min(to, 9)));
      for (int tens = from / 10; tens <= to / 10; ++tens) {
        const int low = tens == from / 10 ? from % 10 : 0;
        const int high = tens == to / 10 ? to % 10 : 9;
        parts.push_back(Join({Digits('0' + tens, '0' + tens), Digits('0' + low, '0' + high)}));
      }
      return pool_.Or(std::move(parts));
    };
    std::vector<RegexId> parts;
    const int low = std::max(first, -kExponentMax);
    const int high = std::min(last, kExponentMax);
    if (low <= high && high >= 0) {
      parts.push_back(Join({pool_.Optional(pool_.Literal("+")), sized(std::max(low, 0), high)}));
    }
    if (low <= high && low < 0) {
      parts.push_back(Join({pool_.Literal("-"), sized(std::max(-high, 1), -low)}));
    }
    return Join({pool_.Bytes(ByteSet::Of('e') | ByteSet::Of('E')), pool_.Or(std::move(parts))});
  }

  // What may follow a whole part that equals the limit's.
  RegexId Fraction(Bound bound, const std::string& digits) {
    const RegexId point = pool_.Literal(".");
    const RegexId zeros = pool_.Repeat(pool_.Literal("0"), 0);
    const RegexId positive = Join({zeros, Digits('1', '9'), Tail(0)});
    const RegexId same = pool_.Literal(digits);
    std::vector<RegexId> parts;  // behind the point
    bool alone = false;          // without a point
    switch (bound) {
      case Bound::kAtLeast:
        if (digits.empty()) return AnyFraction();
        parts = {Join({same, Tail(0)})};
        break;
      case Bound::kAbove:
        parts = {Join({same, positive})};
        break;
      case Bound::kAtMost:
        alone = true;
        parts = {digits.empty() ? Join({pool_.Literal("0"), zeros}) : Join({same, zeros})};
        break;
      case Bound::kBelow:
        alone = !digits.empty();
        break;
    }
    const bool upward = bound == Bound::kAtLeast || bound == Bound::kAbove;
    for (size_t i = 0; i < digits.size(); ++i) {
      const RegexId head = pool_.Literal(digits.substr(0, i));
      if (!upward && i > 0) parts.push_back(head);
      const int first = upward ? digits[i] + 1 : '0';
      const int last = upward ? '9' : digits[i] - 1;
      if (first <= last) parts.push_back(Join({head, Digits(first, last), Tail(0)}));
    }
    const RegexId pointed = Join({point, pool_.Or(std::move(parts))});
    return alone ? pool_.Optional(pointed) : pointed;
  }

  RegexPool& pool_;
};

RegexId Negative(RegexPool& pool, RegexId magnitude) {
  return pool.Concat(pool.Literal("-"), magnitude);
}

}  // namespace

Decimal Decimal::Of(const JsonValue& number) {
  std::string text;
  if (number.is_int()) {
    text = std::to_string(number.as_int());
  } else {
    // The largest double has 309 digits, the smallest 1,074 behind the point.
    std::string buffer(1500, '\0');
    const auto done = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                    number.as_double(), std::chars_format::fixed);
    text.assign(buffer.data(), done.ptr);
  }
  Decimal decimal;
  std::string_view digits = text;
  decimal.negative = digits.starts_with('-');
  if (decimal.negative) digits.remove_prefix(1);
  const size_t point = digits.find('.');
  decimal.whole = digits.substr(0, point);
  if (point != digits.npos) decimal.fraction = digits.substr(point + 1);
  while (decimal.whole.size() > 1 && decimal.whole[0] == '0') decimal.whole.erase(0, 1);
  while (decimal.fraction.ends_with('0')) decimal.fraction.pop_back();
  if (decimal.is_zero()) decimal.negative = false;
  return decimal;
}

RegexId CompareDecimal(RegexPool& pool, Bound bound, const Decimal& limit) {
  Magnitudes magnitudes(pool);
  const bool upward = bound == Bound::kAtLeast || bound == Bound::kAbove;
  if (!limit.negative) {
    const RegexId positive = magnitudes.Compare(bound, limit);
    if (upward) {
      // -0 is 0.
      const bool zero = limit.is_zero() && bound == Bound::kAtLeast;
      return zero ? pool.Or(positive, Negative(pool, magnitudes.Equal(limit))) : positive;
    }
    if (limit.is_zero() && bound == Bound::kBelow) {
      return Negative(pool, magnitudes.Compare(Bound::kAbove, limit));
    }
    return pool.Or(positive, Negative(pool, magnitudes.Any()));
  }
  static constexpr Bound kMirrored[] = {Bound::kAtMost, Bound::kBelow, Bound::kAtLeast,
                                        Bound::kAbove};
  const RegexId negative =
      Negative(pool, magnitudes.Compare(kMirrored[static_cast<size_t>(bound)], limit));
  return upward ? pool.Or(magnitudes.Any(), negative) : negative;
}

RegexId WriteDecimal(RegexPool& pool, const Decimal& value) {
  const RegexId digits = pool.Literal((value.negative ? "-" : "") + value.whole);
  if (!value.fraction.empty()) return pool.Concat(digits, pool.Literal("." + value.fraction));
  return pool.Concat(digits, pool.Optional(pool.Literal(".0")));
}

std::optional<RegexId> MultipleDecimal(RegexPool& pool, const Decimal& step) {
  const std::string digits = step.whole + step.fraction;
  if (digits.size() > 16 || step.fraction.size() > 40 || step.is_zero()) return std::nullopt;
  uint64_t modulus = 0;
  for (const char digit : digits) modulus = modulus * 10 + static_cast<uint64_t>(digit - '0');
  // Searching for a multiple visits remainders: there must not be too many of them.
  if (modulus > 100'000) {
    uint64_t odd = modulus;
    while (odd % 10 == 0) odd /= 10;
    if (odd > 100'000) return std::nullopt;
  }
  return pool.Multiple(modulus, static_cast<uint32_t>(step.fraction.size()));
}

}  // namespace reprise::grammar
