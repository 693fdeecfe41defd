// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema/json_text.h"

#include "grammar/regex/pattern.h"

namespace reprise::grammar {
namespace {

constexpr uint32_t kIndentMax = 64;

// Characters with all of their escapes, surrogates only in pairs.
RegexId AnyChar(RegexPool& pool) {
  const auto hex = [&](int first, int last) {  // values of one digit, in either case
    ByteSet set;
    for (int value = first; value <= last; ++value) {
      set.Add(static_cast<uint8_t>(value < 10 ? '0' + value : 'a' + value - 10));
      if (value >= 10) set.Add(static_cast<uint8_t>('A' + value - 10));
    }
    return pool.Bytes(set);
  };
  const RegexId any = hex(0, 15);
  const RegexId d = hex(13, 13);
  const auto four = [&](RegexId a, RegexId b) {
    const RegexId parts[] = {pool.Literal("\\u"), a, b, any, any};
    return pool.Concat(parts);
  };
  const RegexId unit = pool.Or({four(hex(0, 12), any), four(hex(14, 15), any), four(d, hex(0, 7))});
  const RegexId pair = pool.Concat(four(d, hex(8, 11)), four(d, hex(12, 15)));
  ByteSet named;
  for (const char c : std::string_view("\"\\/bfnrt")) named.Add(static_cast<uint8_t>(c));
  const CharSet plain =
      CharSet::Of(0x20, kCodeMax).Minus(CharSet::Of('"', '"')).Minus(CharSet::Of('\\', '\\'));
  return pool.Or({SpellSet(pool, plain, Spelling::kPlain),
                  pool.Concat(pool.Literal("\\"), pool.Bytes(named)), unit, pair});
}

// Behind a number: a large one, or a small one.
RegexId Exponent(RegexPool& pool, std::string_view large, std::string_view small) {
  const auto digits = [&](std::string_view pattern) {
    return *Pattern::Parse(pattern)->Compile(pool, Spelling::kPlain, Pattern::Match::kWhole);
  };
  const RegexId e = pool.Bytes(ByteSet::Of('e') | ByteSet::Of('E'));
  return pool.Concat(e, pool.Or(pool.Concat(pool.Optional(pool.Literal("+")), digits(large)),
                                pool.Concat(pool.Literal("-"), digits(small))));
}

}  // namespace

JsonText::JsonText(RegexPool& pool) {
  const auto text = [&](std::string_view literal) { return pool.Literal(literal); };
  const RegexId digit = pool.Bytes(ByteSet::Range('0', '9'));
  const RegexId some_digits = pool.Repeat(digit, 1);
  const auto join = [&](std::initializer_list<RegexId> parts) {
    return pool.Concat(std::span<const RegexId>(parts.begin(), parts.size()));
  };

  quote = text("\"");
  const RegexId blank = pool.Or(text(" "), text("\t"));
  const RegexId line =
      join({pool.Optional(text("\r")), text("\n"), pool.Repeat(blank, 0, kIndentMax)});
  space = pool.Optional(pool.Or(text(" "), line));

  any_char = AnyChar(pool);
  any_string = join({quote, pool.Repeat(any_char, 0), quote});
  const RegexId strict_char = SpellSet(pool, CharSet::All(), Spelling::kJsonString);
  strict_string = join({quote, pool.Repeat(strict_char, 0), quote});

  integer = join(
      {pool.Optional(text("-")),
       pool.Or(text("0"), join({pool.Bytes(ByteSet::Range('1', '9')), pool.Repeat(digit, 0)}))});
  decimal = join({integer, pool.Optional(join({text("."), some_digits}))});
  whole = join({integer, pool.Optional(join({text("."), pool.Repeat(text("0"), 1)}))});
  any_number = pool.Or({decimal, join({decimal, Exponent(pool, "\\d{1,2}", "\\d{1,2}")}),
                        // One digit before the point: what a double can hold, and no more.
                        join({pool.Optional(text("-")), pool.Bytes(ByteSet::Range('1', '9')),
                              pool.Optional(join({text("."), some_digits})),
                              Exponent(pool, "[12]\\d\\d|30[0-7]", "[12]\\d\\d|3[01]\\d|32[0-3]")}),
                        join({pool.Optional(text("-")), text("1.7976931348623157e+308")})});
}

std::string SpellJsonString(std::string_view text) {
  return "\"" + SpellText(text, Spelling::kJsonString) + "\"";
}

}  // namespace reprise::grammar
