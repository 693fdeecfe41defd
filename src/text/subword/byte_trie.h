// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace reprise {

// ByteTrie finds which of many byte strings a text begins with: a double-array trie (Aoe 1989), so
// a step is one addition and two loads.
//
//   child of `node` by `byte`: next = base[node] + byte, if check[next] == node
//
// Immutable once built.
class ByteTrie {
 public:
  struct Key {
    std::string_view text;
    int32_t value;  // >= 0
  };
  struct Match {
    size_t length;
    int32_t value;
  };

  static constexpr uint32_t kRoot = 0;

  // Of equal keys the first counts; empty keys are left out.
  static ByteTrie Build(std::vector<Key> keys);

  // Follows `byte`; false if no key goes on like that.
  bool Step(uint32_t* node, char byte) const {
    const size_t next = size_t{units_[*node].base} + static_cast<uint8_t>(byte);
    if (next >= units_.size() || units_[next].check != *node + 1) return false;
    *node = static_cast<uint32_t>(next);
    return true;
  }

  // The value of the key that ends at `node`, or -1.
  int32_t ValueAt(uint32_t node) const { return units_[node].value; }

  // The longest key that `text` begins with; value -1 if there is none.
  Match FindLongest(std::string_view text) const {
    Match match{0, -1};
    uint32_t node = kRoot;
    for (size_t i = 0; i < text.size() && Step(&node, text[i]); ++i) {
      if (ValueAt(node) >= 0) match = {i + 1, ValueAt(node)};
    }
    return match;
  }

 private:
  struct Unit {
    uint32_t base = 0;
    uint32_t check = 0;  // parent + 1; 0: free
    int32_t value = -1;
  };
  friend class ByteTrieBuilder;

  std::vector<Unit> units_ = std::vector<Unit>(1);
};

}  // namespace reprise
