// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "text/output/tag_search.h"

namespace reprise {

// Whether a marker of formats.h stands at the beginning of a text.
enum class Match {
  kNo,
  kMore,  // so far; the text ends inside it
  kYes,
};

// White space before the marker is skipped, and any, or none, stands for the white space in it.
// That at its end is left in the text. `*taken`: bytes of the text up to its end, if kYes.
inline Match MatchMarker(std::string_view marker, std::string_view text, size_t* taken) {
  marker.remove_suffix(BlanksAtEnd(marker));
  size_t at = 0;
  bool blank = true;
  for (const char c : marker) {
    if (IsBlank(c)) {
      blank = true;
      continue;
    }
    while (blank && at < text.size() && IsBlank(text[at])) ++at;
    blank = false;
    if (at == text.size()) return Match::kMore;
    if (text[at] != c) return Match::kNo;
    ++at;
  }
  *taken = at;
  return Match::kYes;
}

// The part of a marker that a text is searched for: what stands before its inner white space.
inline std::string_view TriggerOf(std::string_view marker) {
  marker.remove_prefix(BlanksAtStart(marker));
  size_t size = 0;
  while (size < marker.size() && !IsBlank(marker[size])) ++size;
  return marker.substr(0, size);
}

}  // namespace reprise
