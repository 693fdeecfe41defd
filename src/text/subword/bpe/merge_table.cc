// SPDX-License-Identifier: Apache-2.0
#include "text/subword/bpe/merge_table.h"

#include <sys/mman.h>

#include "base/check.h"

namespace reprise {
namespace {

// Makes `count` copies of `value`, in large pages where the system has them: lookups go everywhere.
template <typename T>
void Fill(size_t count, T value, std::vector<T>* table) {
  static constexpr uintptr_t kPage = uintptr_t{2} << 20;
  table->reserve(count);
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(table->data()) + kPage - 1) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(table->data() + count) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  table->assign(count, value);
}

}  // namespace

void MergeTable::Reserve(size_t count) {
  CHECK(count <= kVocabMergesMax);
  Fill(count + count / 3 + 1, kEmpty, &slots_);
  Fill(slots_.size(), -1, &ids_);
  first_.assign(size_t{kFirst} * kFirst, {kNoRank, -1});
  filter_.Reserve(count / 12 + 2);
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
  filter_.Add(hash);
}

}  // namespace reprise
