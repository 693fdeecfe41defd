// SPDX-License-Identifier: Apache-2.0
#include "text/subword/bpe/merge_table.h"

#include <bit>

#include "base/check.h"

namespace reprise {

void MergeTable::Reserve(size_t count) {
  CHECK(count <= kVocabMergesMax);
  slots_.assign(count + count / 3 + 1, kEmpty);
  ids_.assign(slots_.size(), -1);
  first_.assign(size_t{kFirst} * kFirst, {kNoRank, -1});
  // At least two words: a shift by 64 is none.
  const size_t words = std::bit_ceil(count / 8 + 2);
  filter_.assign(words, 0);
  filter_shift_ = 64 - std::countr_zero(words);
}

void MergeTable::Add(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  const uint64_t hash = Hash(key);
  size_t slot = SlotOf(hash);
  while (slots_[slot] != kEmpty && slots_[slot] >> kRankBits != key) {
    slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  }
  slots_[slot] = key << kRankBits | merge.rank;
  ids_[slot] = merge.id;
  if ((left | right) < kFirst) first_[static_cast<size_t>(left * kFirst + right)] = merge;
  filter_[hash >> filter_shift_] |= FilterBits(hash);
}

}  // namespace reprise
