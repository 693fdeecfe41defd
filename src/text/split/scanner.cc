// SPDX-License-Identifier: Apache-2.0
#include "text/split/scanner.h"

#include "text/unicode/classes.h"

namespace reprise {
namespace {

using unicode::DecodeChar;
using unicode::kLetter;
using unicode::kMark;
using unicode::kNumber;
using unicode::kPunctuation;
using unicode::kSpace;
using unicode::kSymbol;

struct Char {
  uint8_t kind;  // class bits
  uint32_t length;
};

// The first block of the class table is Latin-1, so ASCII needs no index.
inline uint8_t AsciiClass(char c) { return unicode::kClassBlocks[static_cast<uint8_t>(c)]; }

inline bool IsAscii(char c) { return static_cast<uint8_t>(c) < 0x80; }

// REQUIRES: at < end.
inline Char Peek(const char* at, const char* end) {
  if (IsAscii(*at)) return {AsciiClass(*at), 1};
  const unicode::DecodedChar c = DecodeChar(at, end);
  return {unicode::ClassOf(c.code), c.length};
}

// The end of the run of characters that have one of the bits of `mask` (or, with kNot, none).
template <uint8_t kMask, bool kNot = false>
inline const char* SkipRun(const char* at, const char* end) {
  while (at < end) {
    const Char c = Peek(at, end);
    if (((c.kind & kMask) != 0) == kNot) break;
    at += c.length;
  }
  return at;
}

inline bool IsNewline(char c) { return c == '\r' || c == '\n'; }

inline const char* SkipNewlines(const char* at, const char* end) {
  while (at < end && IsNewline(*at)) ++at;
  return at;
}

// The length of 's 't 're 've 'm 'll 'd at `at`, which holds an apostrophe, or 0. With kAnyCase as
// (?i:...) has it: U+017F is a case of s.
template <bool kAnyCase>
inline uint32_t Contraction(const char* at, const char* end) {
  const auto letter = [&](ptrdiff_t i) {
    if (end - at <= i) return '\0';
    const char c = at[i];
    return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    case '\xC5':
      return kAnyCase && letter(2) == '\xBF' ? 3 : 0;
    default:
      return 0;
  }
}

// `\s+(?!\S)|\s+`, and with kNewlines `\s*[\r\n]+` before them. REQUIRES: a space at `at`.
template <bool kNewlines>
inline const char* MatchSpaces(const char* at, const char* end) {
  const char* last = at;  // where the last character of the run begins
  const char* after_newline = nullptr;
  const char* run = at;
  while (run < end) {
    const Char c = Peek(run, end);
    if ((c.kind & kSpace) == 0) break;
    if (kNewlines && IsNewline(*run)) after_newline = run + 1;
    last = run;
    run += c.length;
  }
  if (kNewlines && after_newline != nullptr) return after_newline;
  return run == end || last == at ? run : last;
}

struct Gpt2 {
  static const char* Match(const char* at, const char* end) {
    if (*at == '\'') {
      if (const uint32_t length = Contraction<false>(at, end)) return at + length;
    }
    const char* word = *at == ' ' && at + 1 < end ? at + 1 : at;
    const Char c = Peek(word, end);
    if ((c.kind & kLetter) != 0) return SkipRun<kLetter>(word + c.length, end);
    if ((c.kind & kNumber) != 0) return SkipRun<kNumber>(word + c.length, end);
    if ((c.kind & kSpace) == 0) {
      return SkipRun<kSpace | kLetter | kNumber, true>(word + c.length, end);
    }
    return MatchSpaces<false>(at, end);
  }
};

// Llama 3, Qwen 2 and Qwen 3.5 differ in what a word is made of and in how many digits stay
// together.
template <uint8_t kWord, int kDigits>
struct Cl100k {
  static constexpr uint8_t kNotOther = kSpace | kWord | kLetter | kNumber;

  static const char* Match(const char* at, const char* end) {
    if (*at == '\'') {
      if (const uint32_t length = Contraction<true>(at, end)) return at + length;
    }
    const Char c = Peek(at, end);
    const char* after = at + c.length;
    if ((c.kind & kWord) != 0) return SkipRun<kWord>(after, end);
    if ((c.kind & kNumber) != 0) {
      for (int digits = 1; digits < kDigits && after < end; ++digits) {
        const Char next = Peek(after, end);
        if ((next.kind & kNumber) == 0) break;
        after += next.length;
      }
      return after;
    }
    const Char next = after < end ? Peek(after, end) : Char{kSpace, 0};
    if ((next.kind & kWord) != 0 && !IsNewline(*at)) {
      return SkipRun<kWord>(after + next.length, end);
    }
    if ((c.kind & kSpace) == 0) return SkipNewlines(SkipRun<kNotOther, true>(after, end), end);
    if (*at == ' ' && (next.kind & kNotOther) == 0) {
      return SkipNewlines(SkipRun<kNotOther, true>(after + next.length, end), end);
    }
    return MatchSpaces<true>(at, end);
  }
};

struct DeepSeek3 {
  static constexpr uint8_t kWord = kLetter | kMark;
  static constexpr uint8_t kSign = kPunctuation | kSymbol;

  static bool IsAsciiLetter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

  // Null where nothing matches: numbers and control characters that no word follows.
  static const char* Match(const char* at, const char* end) {
    const Char c = Peek(at, end);
    const char* after = at + c.length;
    if ((c.kind & kWord) != 0) return SkipRun<kWord>(after, end);
    const Char next = after < end ? Peek(after, end) : Char{0, 0};
    if ((c.kind & kSign) != 0) {
      if (IsAscii(*at) && after < end && IsAsciiLetter(*after)) {
        while (after < end && IsAsciiLetter(*after)) ++after;
        return after;
      }
      return SkipNewlines(SkipRun<kSign>(after, end), end);
    }
    if ((next.kind & kWord) != 0 && !IsNewline(*at)) {
      return SkipRun<kWord>(after + next.length, end);
    }
    if (*at == ' ' && (next.kind & kSign) != 0) {
      return SkipNewlines(SkipRun<kSign>(after + next.length, end), end);
    }
    return (c.kind & kSpace) != 0 ? MatchSpaces<true>(at, end) : nullptr;
  }
};

struct Cjk {
  static const char* Match(const char* at, const char* end) {
    const char* run = at;
    while (run < end) {
      const unicode::DecodedChar c = DecodeChar(run, end);
      const bool inside =
          (c.code >= 0x4E00 && c.code <= 0x9FA5) || (c.code >= 0x3040 && c.code <= 0x30FF);
      if (!inside) break;
      run += c.length;
    }
    return run == at ? nullptr : run;
  }
};

template <int kDigits>  // 0: any number of them
struct Numbers {
  static const char* Match(const char* at, const char* end) {
    const char* run = at;
    for (int digits = 0; run < end && (kDigits == 0 || digits < kDigits); ++digits) {
      const Char c = Peek(run, end);
      if ((c.kind & kNumber) == 0) break;
      run += c.length;
    }
    return run == at ? nullptr : run;
  }
};

template <typename Pattern>
void Scan(std::string_view text, uint32_t base, std::vector<Piece>* pieces) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto offset = [&](const char* at) { return base + static_cast<uint32_t>(at - begin); };
  const char* gap = begin;
  const char* at = begin;
  while (at < end) {
    const char* match = Pattern::Match(at, end);
    if (match == nullptr) {
      at += Peek(at, end).length;
      continue;
    }
    if (gap < at) pieces->push_back({offset(gap), offset(at)});
    pieces->push_back({offset(at), offset(match)});
    at = gap = match;
  }
  if (gap < end) pieces->push_back({offset(gap), offset(end)});
}

}  // namespace

Scanner FindScanner(std::string_view pattern) {
  static constexpr struct {
    std::string_view pattern;
    Scanner scanner;
  } kKnown[] = {
      {kGpt2Pattern, Scan<Gpt2>},
      {kLlama3Pattern, Scan<Cl100k<kLetter, 3>>},
      {kQwen2Pattern, Scan<Cl100k<kLetter, 1>>},
      {kQwen35Pattern, Scan<Cl100k<kLetter | kMark, 1>>},
      {kDeepSeek3Pattern, Scan<DeepSeek3>},
      {kCjkPattern, Scan<Cjk>},
      {kNumberPattern, Scan<Numbers<1>>},
      {kNumber3Pattern, Scan<Numbers<3>>},
      {kNumbersPattern, Scan<Numbers<0>>},
  };
  for (const auto& known : kKnown) {
    if (known.pattern == pattern) return known.scanner;
  }
  return nullptr;
}

}  // namespace reprise
