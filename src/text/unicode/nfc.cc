// SPDX-License-Identifier: Apache-2.0
#include "text/unicode/nfc.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/utf8.h"
#include "text/unicode/classes.h"
#include "text/unicode/nfc_tables.h"

namespace reprise::unicode {
namespace {

// Hangul syllables compose by arithmetic (Unicode 3.12).
constexpr uint32_t kSyllableBase = 0xAC00;
constexpr uint32_t kLeadBase = 0x1100;
constexpr uint32_t kVowelBase = 0x1161;
constexpr uint32_t kFinalBase = 0x11A7;
constexpr uint32_t kLeadCount = 19;
constexpr uint32_t kVowelCount = 21;
constexpr uint32_t kFinalCount = 28;
constexpr uint32_t kSyllableCount = kLeadCount * kVowelCount * kFinalCount;

// Invalid bytes travel through the buffers as codes above Unicode.
constexpr uint32_t kRawByte = 0x110000;

struct Mark {
  uint32_t code;
  uint8_t combining;  // canonical class, 0 for starters
};

uint8_t NfcKind(uint32_t code) {
  return kNfcBlocks[size_t{kNfcIndex[code >> 8]} << 8 | (code & 0xFF)];
}

uint8_t CombiningClass(uint32_t code) {
  if (code >= kRawByte) return 0;
  const uint8_t kind = NfcKind(code);
  return kind == kNfcUnsafeStarter ? 0 : kind;
}

void Decompose(uint32_t code, std::vector<Mark>* out) {
  if (code >= kSyllableBase && code < kSyllableBase + kSyllableCount) {
    const uint32_t index = code - kSyllableBase;
    out->push_back({kLeadBase + index / (kVowelCount * kFinalCount), 0});
    out->push_back({kVowelBase + index / kFinalCount % kVowelCount, 0});
    if (index % kFinalCount != 0) out->push_back({kFinalBase + index % kFinalCount, 0});
    return;
  }
  const Decomposition* end = kDecompositions + kDecompositionCount;
  const Decomposition* found =
      std::lower_bound(kDecompositions, end, code,
                       [](const Decomposition& d, uint32_t value) { return d.code < value; });
  if (found == end || found->code != code) {
    out->push_back({code, CombiningClass(code)});
    return;
  }
  for (size_t i = 0; i < found->count; ++i) {
    const uint32_t leaf = kDecompositionPool[found->begin + i];
    out->push_back({leaf, CombiningClass(leaf)});
  }
}

// The composite of two code points, or 0.
uint32_t Compose(uint32_t first, uint32_t second) {
  if (first >= kLeadBase && first < kLeadBase + kLeadCount) {
    if (second < kVowelBase || second >= kVowelBase + kVowelCount) return 0;
    return kSyllableBase +
           ((first - kLeadBase) * kVowelCount + (second - kVowelBase)) * kFinalCount;
  }
  if (first >= kSyllableBase && first < kSyllableBase + kSyllableCount &&
      (first - kSyllableBase) % kFinalCount == 0) {
    const bool is_final = second > kFinalBase && second < kFinalBase + kFinalCount;
    return is_final ? first + (second - kFinalBase) : 0;
  }
  const Composition* end = kCompositions + kCompositionCount;
  const Composition* found =
      std::lower_bound(kCompositions, end, std::pair(first, second),
                       [](const Composition& c, const std::pair<uint32_t, uint32_t>& value) {
                         return std::pair(c.first, c.second) < value;
                       });
  return found != end && found->first == first && found->second == second ? found->composed : 0;
}

// Canonical ordering: each run of non-starters is sorted by class, stably.
void Reorder(std::vector<Mark>* marks) {
  for (size_t begin = 0; begin < marks->size();) {
    if ((*marks)[begin].combining == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < marks->size() && (*marks)[end].combining != 0) ++end;
    std::stable_sort(marks->begin() + static_cast<ptrdiff_t>(begin),
                     marks->begin() + static_cast<ptrdiff_t>(end),
                     [](const Mark& a, const Mark& b) { return a.combining < b.combining; });
    begin = end;
  }
}

// Canonical composition in place: a mark joins the last starter unless a mark of the same or a
// higher class, or a starter, stands between them.
void ComposeAll(std::vector<Mark>* marks) {
  size_t kept = 0;
  size_t starter = marks->size();  // index of the last starter kept, if any
  for (const Mark mark : *marks) {
    if (starter < kept) {
      const bool adjacent = starter + 1 == kept;
      const bool blocked = !adjacent && (*marks)[kept - 1].combining >= mark.combining;
      const uint32_t composed = blocked ? 0 : Compose((*marks)[starter].code, mark.code);
      if (composed != 0) {
        (*marks)[starter].code = composed;
        continue;
      }
    }
    if (mark.combining == 0) starter = kept;
    (*marks)[kept++] = mark;
  }
  marks->resize(kept);
}

void Flush(std::vector<Mark>* marks, std::string* out) {
  Reorder(marks);
  ComposeAll(marks);
  for (const Mark mark : *marks) {
    if (mark.code >= kRawByte) {
      out->push_back(static_cast<char>(mark.code - kRawByte));
    } else {
      AppendUtf8(mark.code, out);
    }
  }
  marks->clear();
}

struct SafePrefix {
  size_t length = 0;  // of the prefix that is made of safe starters only
  size_t last = 0;    // where its last character begins
};

SafePrefix FindSafePrefix(std::string_view text) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* at = begin;
  const char* last = begin;
  while (at < end) {
    uint64_t word = 0;
    while (end - at >= 8) {
      std::memcpy(&word, at, 8);
      if ((word & 0x8080808080808080ull) != 0) break;
      at += 8;
      last = at - 1;
    }
    if (at == end) break;
    const DecodedChar c = DecodeChar(at, end);
    if (NfcKind(c.code) != 0) break;
    last = at;
    at += c.length;
  }
  return {static_cast<size_t>(at - begin), static_cast<size_t>(last - begin)};
}

}  // namespace

bool IsSurelyNfc(std::string_view text) { return FindSafePrefix(text).length == text.size(); }

void AppendNfc(std::string_view text, std::string* out) {
  std::vector<Mark> marks;
  while (!text.empty()) {
    const SafePrefix safe = FindSafePrefix(text);
    if (safe.length == text.size()) {
      out->append(text);
      return;
    }
    // The last safe starter may compose with what follows it: it belongs to the run.
    out->append(text.substr(0, safe.last));
    text.remove_prefix(safe.last);
    size_t run = 0;
    do {
      const DecodedChar c = DecodeChar(text.data() + run, text.data() + text.size());
      if (c.length == 1 && static_cast<uint8_t>(text[run]) >= 0x80) {
        marks.push_back({kRawByte + static_cast<uint8_t>(text[run]), 0});
      } else {
        Decompose(c.code, &marks);
      }
      run += c.length;
    } while (run < text.size() &&
             NfcKind(DecodeChar(text.data() + run, text.data() + text.size()).code) != 0);
    Flush(&marks, out);
    text.remove_prefix(run);
  }
}

}  // namespace reprise::unicode
