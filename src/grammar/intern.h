// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace reprise::grammar {

// Finds equal things by their hash: an open-addressing table of 32-bit ids, for arenas whose
// entries are numbered from 0. Equality is the caller's: Find takes a predicate over ids.
//
// Thread safety: none.
class InternIndex {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  template <typename Equal>
  uint32_t Find(uint64_t hash, Equal&& equal) const {
    if (slots_.empty()) return kNone;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id == kNone) return kNone;
      if (slot.tag == tag && equal(slot.id)) return slot.id;
    }
  }

  // REQUIRES: no equal entry is there.
  void Insert(uint64_t hash, uint32_t id) {
    if ((count_ + 1) * 4 > slots_.size() * 3) Grow();
    Place({static_cast<uint32_t>(hash >> 32), id, hash});
    ++count_;
  }

  size_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t id = kNone;
    uint64_t hash = 0;
  };

  void Place(const Slot& slot) {
    size_t at = slot.hash & mask_;
    while (slots_[at].id != kNone) at = (at + 1) & mask_;
    slots_[at] = slot;
  }

  void Grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.id != kNone) Place(slot);
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t count_ = 0;
};

// The hash of plain values without padding.
template <typename T>
uint64_t HashSpan(std::span<const T> values) {
  static_assert(std::has_unique_object_representations_v<T>);
  return HashBytes({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

}  // namespace reprise::grammar
