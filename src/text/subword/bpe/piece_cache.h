// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace reprise {

// PieceCache remembers the ids of short pieces within one text: a few thousand words are most of
// any text. Direct-mapped and small enough for the second-level cache; a piece is known by all its
// bytes, so there are no false hits.
//
// Thread safety: none; it is working memory.
class PieceCache {
 public:
  static constexpr size_t kBytesMax = 16;
  static constexpr size_t kIdsMax = 3;

  struct Entry {
    uint64_t first = 0;  // the first and the last 8 bytes, which overlap in shorter pieces
    uint64_t last = 0;
    uint8_t size = 0;  // 0: empty
    uint8_t count = 0;
    int32_t ids[kIdsMax] = {};
  };

  // The place where the piece is, or would be. `*hit` tells which; on a miss the key is set and the
  // caller fills in the ids, or sets size to 0. REQUIRES: 0 < piece.size() <= kBytesMax.
  Entry* Find(std::string_view piece, bool* hit) {
    if (entries_.empty()) entries_.resize(kEntries);
    uint64_t first = 0;
    uint64_t last = 0;
    const size_t size = piece.size();
    if (size >= 8) {
      std::memcpy(&first, piece.data(), 8);
      std::memcpy(&last, piece.data() + size - 8, 8);
    } else if (size >= 4) {
      std::memcpy(&first, piece.data(), 4);
      std::memcpy(&last, piece.data() + size - 4, 4);
    } else {
      const auto byte = [&](size_t i) { return uint64_t{static_cast<uint8_t>(piece[i])}; };
      first = byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
    }
    uint64_t hash = (first ^ last * 0x9e3779b97f4a7c15ull) * 0xe7037ed1a0b428dbull + size;
    hash ^= hash >> 32;
    Entry* const entry = &entries_[hash % kEntries];
    *hit = entry->size == size && entry->first == first && entry->last == last;
    if (!*hit) {
      entry->first = first;
      entry->last = last;
      entry->size = static_cast<uint8_t>(size);
    }
    return entry;
  }

 private:
  static constexpr size_t kEntries = 4096;  // of 32 bytes

  std::vector<Entry> entries_;
};

}  // namespace reprise
