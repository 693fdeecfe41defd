// SPDX-License-Identifier: Apache-2.0
#include "cache/store/unit_arena.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise {

Status UnitArena::Reserve(DeviceMemory& memory, size_t unit_bytes, size_t capacity) {
  CHECK(memory_ == nullptr);
  memory_ = &memory;
  unit_bytes_ = unit_bytes;
  page_bytes_ = memory.page_bytes();
  const size_t bytes = (unit_bytes * capacity + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  if (bytes == 0) return OkStatus();
  auto buffer = memory.Reserve(bytes);
  if (!buffer.ok()) {
    return ResourceExhausted(buffer.status().message() + " for state; lower the cache budget");
  }
  buffer_ = std::move(*buffer);
  return OkStatus();
}

size_t UnitArena::Want(std::span<const uint32_t> ids) {
  for (const uint32_t id : wanted_) units_[id].wanted = false;
  wanted_.assign(ids.begin(), ids.end());
  size_t missing = 0;
  for (const uint32_t id : ids) {
    if (units_.size() <= id) units_.resize(id + 1);
    units_[id].wanted = true;
    if (!units_[id].resident) ++missing;
  }
  return missing * unit_bytes_;
}

Status UnitArena::Back() {
  for (const uint32_t id : wanted_) {
    Unit& unit = units_[id];
    if (unit.resident) continue;
    REPRISE_TRY(memory_->Commit(at(id), unit_bytes_));
    unit.resident = true;
    ++resident_count_;
    ++idle_count_;
    idle_.emplace_back(id, unit.free_ms);  // until it is taken
  }
  return OkStatus();
}

void UnitArena::Take(uint32_t id) {
  Unit& unit = units_[id];
  CHECK(unit.resident && !unit.used);
  unit.used = true;
  unit.wanted = false;
  --idle_count_;
}

void UnitArena::Free(uint32_t id, int64_t now_ms) {
  Unit& unit = units_[id];
  CHECK(unit.used);
  unit.used = false;
  unit.free_ms = now_ms;
  ++idle_count_;
  idle_.emplace_back(id, now_ms);
  if (idle_.size() > 2 * units_.size())
    std::erase_if(idle_, [this](auto& one) { return Stale(one); });
}

bool UnitArena::Stale(const std::pair<uint32_t, int64_t>& one) const {
  const Unit& unit = units_[one.first];
  return unit.used || !unit.resident || unit.free_ms != one.second;
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
  const auto leave = [&](size_t i) {
    if (!units_[i].resident) return;
    units_[i].resident = false;
    ++gone;
  };
  leave(id);
  if (first <= last) {
    memory_->Discard(data() + int64_t(first * page_bytes_), (last - first + 1) * page_bytes_);
    for (size_t i = UnitsOf(first).first; i <= UnitsOf(last).second; ++i) leave(i);
  }
  resident_count_ -= gone;
  idle_count_ -= gone;
  return gone * unit_bytes_;
}

void UnitArena::Discard(size_t bytes, int64_t before_ms) {
  size_t won = 0;
  std::vector<std::pair<uint32_t, int64_t>> kept;
  while (won < bytes && !idle_.empty() && idle_.front().second <= before_ms) {
    const std::pair<uint32_t, int64_t> one = idle_.front();
    idle_.pop_front();
    if (Stale(one)) continue;
    if (units_[one.first].wanted) {
      kept.push_back(one);
    } else {
      won += DiscardUnit(one.first);
    }
  }
  idle_.insert(idle_.begin(), kept.begin(), kept.end());
}

}  // namespace reprise
