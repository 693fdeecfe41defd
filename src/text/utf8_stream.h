// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace reprise {

// Utf8Stream turns bytes that arrive in pieces (the bytes of generated tokens) into text that is
// always valid UTF-8: a code point whose bytes are still arriving is held back, at most 3 bytes.
//
// What can no longer become a code point is replaced by U+FFFD, one for each maximal subpart
// (Unicode 3.9, "substitution of maximal subparts"; the practice of Rust and Python), so the
// concatenation of all output is the same however the bytes were cut.
//
// Thread safety: none.
class Utf8Stream {
 public:
  // Appends to `out` all text that is complete.
  void Append(std::string_view bytes, std::string* out);

  // Appends U+FFFD for a code point that never completed. The stream is then as new.
  void Finish(std::string* out);

  size_t held_bytes() const { return held_count_; }

 private:
  char held_[4] = {};  // the beginning of a code point
  size_t held_count_ = 0;
};

}  // namespace reprise
