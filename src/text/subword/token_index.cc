// SPDX-License-Identifier: Apache-2.0
#include "text/subword/token_index.h"

#include <bit>

#include "base/hash.h"

namespace reprise {

void TokenIndex::Reserve(size_t count) {
  slots_.assign(std::bit_ceil(count * 2 + 1), 0);
  mask_ = slots_.size() - 1;
  filter_.Reserve(count / 8 + 2);
}

void TokenIndex::Add(const StringTable& texts, int32_t id) {
  const std::string_view text = texts[static_cast<size_t>(id)];
  if (text.empty()) return;
  const uint64_t hash = HashBytes(text);
  size_t slot = hash & mask_;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask_) {
    const int32_t other = static_cast<int32_t>(slots_[slot] & UINT32_MAX) - 1;
    if (slots_[slot] >> 32 == hash >> 32 && texts[static_cast<size_t>(other)] == text) return;
  }
  filter_.Add(hash);
  slots_[slot] = (hash >> 32) << 32 | static_cast<uint32_t>(id + 1);
}

int32_t TokenIndex::Find(const StringTable& texts, std::string_view text) const {
  const uint64_t hash = HashBytes(text);
  if (!filter_.MayHold(hash)) return -1;
  for (size_t slot = hash & mask_; slots_[slot] != 0; slot = (slot + 1) & mask_) {
    if (slots_[slot] >> 32 != hash >> 32) continue;
    const int32_t id = static_cast<int32_t>(slots_[slot] & UINT32_MAX) - 1;
    if (texts[static_cast<size_t>(id)] == text) return id;
  }
  return -1;
}

}  // namespace reprise
