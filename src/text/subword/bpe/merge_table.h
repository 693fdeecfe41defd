// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise {

// What two neighbouring tokens become. The lowest rank is applied first.
struct Merge {
  uint32_t rank;
  int32_t id;
};

// MergeTable maps a pair of tokens to its merge: open addressing, one cache line per lookup in
// most cases. Immutable once filled.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  // Makes room for `count` pairs. REQUIRES: empty.
  void Reserve(size_t count);

  // REQUIRES: ids >= 0; room was made. The last merge of a pair counts.
  void Add(int32_t left, int32_t right, Merge merge);

  // The merge of the pair; rank kNoRank if there is none.
  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t slot = Hash(key) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return {kNoRank, -1};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key;
    Merge merge;
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  static uint64_t Hash(uint64_t key) {
    key *= 0x9e3779b97f4a7c15ull;
    return key ^ key >> 32;
  }

  std::vector<Slot> slots_ = {{kEmpty, {kNoRank, -1}}};
  uint64_t mask_ = 0;
};

}  // namespace reprise
