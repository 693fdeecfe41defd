// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "text/subword/hash_filter.h"
#include "text/vocab/spec.h"

namespace reprise {

// What two neighbouring tokens become. The lowest rank is applied first.
struct Merge {
  uint32_t rank;
  int32_t id;
};

// MergeTable maps a pair of tokens to its merge. Merging waits for nothing but memory, so it is
// made to be small: open addressing with pair and rank in 8 bytes, behind a filter of one byte per
// merge. Most pairs that are asked for have no merge, and the filter knows that of nearly all of
// them. For 250,000 merges that is 2.6 and 0.25 MB, 1.3 MB of ids, and 0.5 MB for the pairs of
// bytes. Immutable once filled.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  MergeTable() { Reserve(0); }

  // Makes room for `count` pairs. REQUIRES: empty; count <= kVocabMergesMax.
  void Reserve(size_t count);

  // REQUIRES: 0 <= ids < kVocabTokensMax, rank < kVocabMergesMax; room was made. The last merge of
  // a pair counts.
  void Add(int32_t left, int32_t right, Merge merge);

  // The merge of the pair; rank kNoRank if there is none.
  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    const uint64_t hash = Hash(key);
    if (!filter_.MayHold(hash)) return {kNoRank, -1};
    for (size_t slot = SlotOf(hash);; slot = slot + 1 == slots_.size() ? 0 : slot + 1) {
      const uint64_t found = slots_[slot];
      if (found >> kRankBits == key) {
        return {static_cast<uint32_t>(found & ((1u << kRankBits) - 1)), ids_[slot]};
      }
      if (found == kEmpty) return {kNoRank, -1};
    }
  }

  // The same, faster for tokens below kFirst: in byte-level vocabularies those are bytes as a rule.
  Merge FindFirst(int32_t left, int32_t right) const {
    if ((left | right) >= kFirst) return Find(left, right);
    return first_[static_cast<size_t>(left * kFirst + right)];
  }

 private:
  static constexpr int32_t kFirst = 256;
  static constexpr uint64_t kEmpty = UINT64_MAX;
  static constexpr int kRankBits = 22;
  static constexpr int kIdBits = 21;
  static_assert(kVocabTokensMax <= size_t{1} << kIdBits && 2 * kIdBits + kRankBits <= 64);
  static_assert(kVocabMergesMax < size_t{1} << kRankBits, "no merge looks like an empty slot");

  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << kIdBits | static_cast<uint32_t>(right);
  }
  uint64_t Hash(uint64_t key) const { return FoldedMultiply(key ^ seed_, 0x9e3779b97f4a7c15ull); }
  // The lowest 32 bits of the hash choose the slot.
  size_t SlotOf(uint64_t hash) const { return (hash & UINT32_MAX) * slots_.size() >> 32; }

  uint64_t seed_ = HashSeed();
  HashFilter filter_;
  std::vector<uint64_t> slots_;  // left, right, rank
  std::vector<int32_t> ids_;     // [slots]
  std::vector<Merge> first_;     // [kFirst * kFirst]
};

}  // namespace reprise
