// SPDX-License-Identifier: Apache-2.0
#include "cache/store/unit_arena.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise {

Status UnitArena::Reserve(DeviceMemory& memory, const UnitShape& unit, size_t capacity) {
  CHECK(memory_ == nullptr);
  memory_ = &memory;
  unit_bytes_ = unit.bytes;
  page_bytes_ = memory.page_bytes();
  if (unit_bytes_ * capacity == 0) return OkStatus();
  auto buffer = ReserveUnits(memory, unit, capacity);
  if (!buffer.ok()) {
    return ResourceExhausted(buffer.status().message() + " for state; lower the cache budget");
  }
  buffer_ = std::move(*buffer);
  // A UnitMemory gives pages back on the thread that owns it (device/memory.h).
  const bool in_units = dynamic_cast<UnitMemory*>(&memory) != nullptr;
  if (memory.copies_by_caller() && !in_units)
    returns_ = std::make_unique<PageReturn>(&memory, data());
  return OkStatus();
}

size_t UnitArena::Want(std::span<const uint32_t> ids) {
  for (const uint32_t id : wanted_) units_[id].wanted = false;
  wanted_.assign(ids.begin(), ids.end());
  size_t missing = 0;
  for (const uint32_t id : ids) {
    units_.Grow(size_t{id} + 1);
    units_[id].wanted = true;
    if (!units_[id].resident) ++missing;
  }
  return missing * unit_bytes_;
}

Status UnitArena::Back() {
  std::vector<uint32_t> missing;
  for (const uint32_t id : wanted_) {
    if (!units_[id].resident) missing.push_back(id);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  for (size_t i = 0; i < missing.size();) {
    uint32_t count = 1;
    while (i + count < missing.size() && missing[i + count] == missing[i] + count) ++count;
    if (!BackRun(missing[i], count).ok()) {  // as many as there is memory for
      for (uint32_t j = 0; j < count; ++j) REPRISE_TRY(BackRun(missing[i] + j, 1));
    }
    i += count;
  }
  return OkStatus();
}

// Neighbours with one call: a GPU lets in pages that lie side by side in the time of one.
Status UnitArena::BackRun(uint32_t first, uint32_t count) {
  const size_t offset = first * unit_bytes_, bytes = count * unit_bytes_;
  if (returns_ != nullptr) returns_->Await(offset, bytes);
  REPRISE_TRY(memory_->Commit(at(first), bytes));
  for (uint32_t id = first; id < first + count; ++id) {
    units_[id].resident = true;
    Link(id);  // until it is taken
  }
  resident_count_ += count;
  return OkStatus();
}

// The unit is free and resident: the last of the list.
void UnitArena::Link(uint32_t id) {
  units_[id].older = newest_;
  units_[id].newer = kNone;
  (newest_ == kNone ? oldest_ : units_[newest_].newer) = id;
  newest_ = id;
  ++idle_count_;
}

void UnitArena::Unlink(uint32_t id) {
  const Unit& unit = units_[id];
  (unit.older == kNone ? oldest_ : units_[unit.older].newer) = unit.newer;
  (unit.newer == kNone ? newest_ : units_[unit.newer].older) = unit.older;
  --idle_count_;
}

void UnitArena::Take(uint32_t id) {
  Unit& unit = units_[id];
  CHECK(unit.resident && !unit.used);
  unit.used = true;
  unit.wanted = false;
  Unlink(id);
}

void UnitArena::Free(uint32_t id, int64_t now_ms) {
  Unit& unit = units_[id];
  CHECK(unit.used);
  unit.used = false;
  unit.free_ms = now_ms;
  Link(id);
}

// Units that reach into a page: [first, last].
std::pair<size_t, size_t> UnitArena::UnitsOf(size_t page) const {
  return {page * page_bytes_ / unit_bytes_,
          std::min(((page + 1) * page_bytes_ - 1) / unit_bytes_, units_.size() - 1)};
}

bool UnitArena::PageIsFree(size_t page) const {
  const auto [first, last] = UnitsOf(page);
  for (size_t i = first; i <= last; ++i) {
    if (units_[i].used || units_[i].wanted) return false;
  }
  return true;
}

// The unit is no longer resident, nor is any other that had a part of a page that goes with it.
// Pages that a neighbour in use reaches into stay.
size_t UnitArena::DiscardUnit(uint32_t id) {
  const size_t begin = id * unit_bytes_, end = begin + unit_bytes_;
  size_t first = begin / page_bytes_, last = (end - 1) / page_bytes_;
  while (first <= last && !PageIsFree(first)) ++first;
  while (first < last && !PageIsFree(last)) --last;
  size_t gone = 0;
  const auto leave = [&](uint32_t i) {
    if (!units_[i].resident) return;
    units_[i].resident = false;
    Unlink(i);
    ++gone;
  };
  leave(id);
  if (first <= last) {
    DiscardPages(first, last - first + 1);
    for (size_t i = UnitsOf(first).first; i <= UnitsOf(last).second; ++i) {
      leave(static_cast<uint32_t>(i));
    }
  }
  resident_count_ -= gone;
  return gone * unit_bytes_;
}

void UnitArena::DiscardPages(size_t first, size_t count) {
  const size_t offset = first * page_bytes_, bytes = count * page_bytes_;
  if (returns_ != nullptr) return returns_->Begin(offset, bytes);
  memory_->Discard(data() + static_cast<int64_t>(offset), bytes);
}

void UnitArena::Discard(size_t bytes, int64_t before_ms) {
  size_t won = 0;
  uint32_t id = oldest_;
  while (won < bytes && id != kNone && units_[id].free_ms <= before_ms) {
    const uint32_t next = units_[id].newer;
    if (!units_[id].wanted) won += DiscardUnit(id);
    // The next one may have gone with a page that both had a part of.
    id = next == kNone || units_[next].resident ? next : oldest_;
  }
}

}  // namespace reprise
