// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise {

// CharsMap is the normalisation that a SentencePiece model carries with it (its
// precompiled_charsmap): a table of byte strings and what each becomes. At every point the longest
// entry counts; other characters are copied.
//
//   u32 n | n bytes: a double-array trie (darts-clone units of u32) | replacements, each ended by
//   NUL
//
// The bytes come from a file and are not trusted: every step through the trie is checked.
class CharsMap {
 public:
  static Result<CharsMap> Parse(std::string_view bytes);

  // Appends what `text` becomes. Stops soon after `out` is longer than `size_max`: a hostile map
  // may make much of little.
  void Append(std::string_view text, size_t size_max, std::string* out) const;

 private:
  // The longest entry that `text` begins with: its length, 0 if there is none, and where its
  // replacement begins.
  size_t FindLongest(std::string_view text, uint32_t* replacement) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace reprise
