// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "cache/pieces.h"

namespace reprise {

// IdPool hands out ids below a capacity. The last id given back is the first to be taken again, so
// that memory in use stays warm and few pages are touched.
//
// Invariants: an id is free or used, never both; used_count() + free ids below limit() == limit().
// Costs: Allocate and Free O(1), Next O(count); memory grows with the largest number of ids in use
// at once.
template <typename IdType>
class IdPool {
 public:
  explicit IdPool(uint32_t capacity) : capacity_(capacity) {}

  bool full() const { return free_.empty() && used_.size() == capacity_; }
  // REQUIRES: !full().
  IdType Allocate() {
    CHECK(!full());
    if (free_.empty()) {
      free_.push_back({static_cast<uint32_t>(used_.size())});
      used_.push_back(false);
    }
    const IdType id = free_.back();
    free_.pop_back();
    used_[id.value] = true;
    return id;
  }
  void Free(IdType id) {
    CHECK(used(id));
    used_[id.value] = false;
    free_.push_back(id);
  }

  // The ids that the next `count` calls of Allocate give. REQUIRES: there are so many.
  std::vector<IdType> Next(uint32_t count) const {
    CHECK(count <= capacity_ - used_count());
    std::vector<IdType> ids;
    for (size_t i = free_.size(); i > 0 && ids.size() < count; --i) ids.push_back(free_[i - 1]);
    for (size_t fresh = used_.size(); ids.size() < count; ++fresh) {
      ids.push_back({static_cast<uint32_t>(fresh)});
    }
    return ids;
  }

  bool used(IdType id) const { return id.value < used_.size() && used_[id.value]; }
  uint32_t used_count() const { return static_cast<uint32_t>(used_.size() - free_.size()); }
  uint32_t capacity() const { return capacity_; }
  uint32_t limit() const { return static_cast<uint32_t>(used_.size()); }  // ids are below it
  size_t bytes() const { return used_.capacity() / 8 + free_.bytes(); }

 private:
  uint32_t capacity_;
  std::vector<bool> used_;
  Pieces<IdType> free_;
};

}  // namespace reprise
