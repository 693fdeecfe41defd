// SPDX-License-Identifier: Apache-2.0
#include "text/subword/bpe/merge_table.h"

#include <bit>

namespace reprise {

void MergeTable::Reserve(size_t count) {
  slots_.assign(std::bit_ceil(count * 3 / 2 + 1), {kEmpty, {kNoRank, -1}});
  mask_ = slots_.size() - 1;
}

void MergeTable::Add(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  size_t slot = Hash(key) & mask_;
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask_;
  slots_[slot] = {key, merge};
}

}  // namespace reprise
