// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <unordered_set>

#include "base/hash.h"

namespace reprise {

struct ContextHash {
  uint64_t seed = HashSeed();
  size_t operator()(uint64_t key) const {
    return FoldedMultiply(key ^ seed, 0x9e3779b97f4a7c15ull);
  }
};

// CharBorders knows where a byte-level vocabulary may join a part of a character, but not all of
// it, with its neighbour: tokens like " \xE4\xB8" or "\x80a". Where it cannot, a character's bytes
// are merged among themselves before anything else happens to them.
class CharBorders {
 public:
  // Notes the borders of characters inside a token, if a part of a character lies at its edge.
  void AddToken(std::string_view token);

  // Whether some token may reach over `border`, from a part of the character on one of its sides.
  // May say yes where there is none: always before a continuation byte, which after a whole
  // character belongs to none. REQUIRES: 0 < border < text.size().
  bool MayCross(std::string_view text, size_t border) const {
    if ((text[border] & 0xC0) == 0x80) return true;
    const size_t pair =
        size_t{static_cast<uint8_t>(text[border - 1])} << 8 | static_cast<uint8_t>(text[border]);
    return pairs_[pair] && HasContext(text, border);
  }

 private:
  bool HasContext(std::string_view text, size_t border) const;
  void AddBorder(std::string_view token, size_t border);

  std::bitset<65536> pairs_;                            // the bytes before and after such borders
  std::unordered_set<uint64_t, ContextHash> contexts_;  // up to two bytes on each side
};

}  // namespace reprise
