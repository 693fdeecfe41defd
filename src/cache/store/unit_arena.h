// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/pieces.h"
#include "cache/store/page_return.h"
#include "device/joined/unit_memory.h"

namespace reprise {

// UnitArena is the memory behind one kind of id, on whatever device: `capacity` units of
// `unit_bytes`, contiguous, so that id -> address is one multiplication. It reserves addresses for
// all of them and takes pages only as units are wanted; pages of free units can be given back. So
// blocks and snapshots share one budget although each could fill it alone.
//
// Only Back asks the device for memory, so only it can fail: a unit is backed, then taken. Pages of
// this process's memory are given back beside the thread that calls; they count as given back.
//
// Thread safety: none.
// Invariants: resident_bytes() counts every unit that was backed since its pages were last given
// back. Costs: Take and Free O(1); Discard O(units given back).
class UnitArena {
 public:
  UnitArena() = default;
  UnitArena(const UnitArena&) = delete;
  UnitArena& operator=(const UnitArena&) = delete;

  // Fails with kResourceExhausted if the addresses cannot be had. `memory` must outlive this.
  Status Reserve(DeviceMemory& memory, const UnitShape& unit, size_t capacity);

  DevicePtr<std::byte> data() const { return buffer_.data(); }
  DevicePtr<std::byte> at(uint32_t id) const { return data() + int64_t(id * unit_bytes_); }
  size_t unit_bytes() const { return unit_bytes_; }

  // Names the units that are to be taken next: Discard leaves them alone until others are named.
  // Returns the bytes that they need and do not have.
  size_t Want(std::span<const uint32_t> ids);
  // Gets pages for the units that are wanted. Fails with what the device says; those that have
  // theirs keep them.
  Status Back();
  void Take(uint32_t id);                      // REQUIRES: it has been backed
  void Free(uint32_t id, int64_t now_ms = 0);  // its content is gone from here on
  // Gives back pages of units that are free since `before_ms`, the longest free first, until
  // `bytes` are won or none is left.
  void Discard(size_t bytes, int64_t before_ms = INT64_MAX);

  size_t resident_bytes() const { return resident_count_ * unit_bytes_; }
  size_t idle_bytes() const { return idle_count_ * unit_bytes_; }  // resident, but free

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Unit {
    bool used = false;
    bool resident = false;
    bool wanted = false;
    int64_t free_ms = 0;     // since when
    uint32_t older = kNone;  // its neighbours in the list of those that are resident, but free
    uint32_t newer = kNone;
  };
  std::pair<size_t, size_t> UnitsOf(size_t page) const;
  bool PageIsFree(size_t page) const;
  size_t DiscardUnit(uint32_t id);
  void DiscardPages(size_t first, size_t count);
  Status BackRun(uint32_t first, uint32_t count);
  void Link(uint32_t id);
  void Unlink(uint32_t id);

  DeviceMemory* memory_ = nullptr;
  DeviceBuffer buffer_;
  size_t unit_bytes_ = 0;
  size_t page_bytes_ = 4096;
  Pieces<Unit> units_;  // as far as ids were used
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
  std::vector<uint32_t> wanted_;
  size_t resident_count_ = 0;
  size_t idle_count_ = 0;
  std::unique_ptr<PageReturn> returns_;  // ends before the memory does; null: not by another thread
};

}  // namespace reprise
