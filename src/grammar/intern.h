// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace reprise::grammar {

// Finds equal things by their hash: open-addressing tables of 32-bit ids, for arenas whose entries
// are numbered from 0. Equality is the caller's: Find takes a predicate over ids. A large index is
// divided into many tables, so that no single Insert has to move all of it.
//
// Thread safety: none.
class InternIndex {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  template <typename Equal>
  uint32_t Find(uint64_t hash, Equal&& equal) const {
    const Table& table = tables_[hash >> kShift & (tables_.size() - 1)];
    if (table.slots.empty()) return kNone;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t at = hash & table.mask;; at = (at + 1) & table.mask) {
      const Slot& slot = table.slots[at];
      if (slot.id == kNone) return kNone;
      if (slot.tag == tag && equal(slot.id)) return slot.id;
    }
  }

  // REQUIRES: no equal entry is there.
  void Insert(uint64_t hash, uint32_t id) {
    if (tables_.size() == 1 && tables_[0].count == kDivideAt) Divide();
    TableOf(hash).Add({static_cast<uint32_t>(hash >> 32), id, hash});
  }

  size_t bytes() const {
    size_t slots = 0;
    for (const Table& table : tables_) slots += table.slots.size();
    return slots * sizeof(Slot);
  }

 private:
  static constexpr size_t kDivideAt = 6000;
  static constexpr size_t kTables = 64;

  struct Slot {
    uint32_t tag = 0;
    uint32_t id = kNone;
    uint64_t hash = 0;
  };
  struct Table {
    void Add(const Slot& slot) {
      if ((count + 1) * 4 > slots.size() * 3) Grow();
      Place(slot);
      ++count;
    }
    void Place(const Slot& slot) {
      size_t at = slot.hash & mask;
      while (slots[at].id != kNone) at = (at + 1) & mask;
      slots[at] = slot;
    }
    void Grow() {
      std::vector<Slot> old(slots.empty() ? 64 : slots.size() * 2);
      old.swap(slots);
      mask = slots.size() - 1;
      for (const Slot& slot : old) {
        if (slot.id != kNone) Place(slot);
      }
    }
    std::vector<Slot> slots;
    size_t mask = 0;
    size_t count = 0;
  };

  Table& TableOf(uint64_t hash) { return tables_[hash >> kShift & (tables_.size() - 1)]; }

  void Divide() {
    const Table all = std::move(tables_[0]);
    tables_.assign(kTables, Table{});
    for (const Slot& slot : all.slots) {
      if (slot.id != kNone) TableOf(slot.hash).Add(slot);
    }
  }

  static constexpr int kShift = 26;  // bits that neither places nor tags begin with
  std::vector<Table> tables_ = std::vector<Table>(1);
};

// The hash of plain values without padding.
template <typename T>
uint64_t HashSpan(std::span<const T> values) {
  static_assert(std::has_unique_object_representations_v<T>);
  return HashBytes({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

}  // namespace reprise::grammar
