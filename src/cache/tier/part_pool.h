// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/host_lane.h"
#include "tier/transfers.h"

namespace reprise {

// Memory for parts on their way from the device to a home of records: the lane copies into it, and
// a thread writes from it and gives it back. So parts cost no memory of their own, and nobody waits
// for their copies.
//
// Thread safety: Take from one thread; what was taken may be given back by any. It outlives them.
class PartPool {
 public:
  PartPool(std::unique_ptr<HostLane> lane, size_t part_bytes_max)
      : lane_(std::move(lane)), part_bytes_max_(part_bytes_max) {
    for (size_t at = lane_->size() / part_bytes_max; at > 0; --at) {
      free_.push_back(lane_->data() + (at - 1) * part_bytes_max);
    }
  }

  HostLane& lane() { return *lane_; }
  // Room for a part; none of it: all of it is lent. REQUIRES: bytes <= part_bytes_max.
  PartBytes Take(size_t bytes) {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    std::byte* const at = free_.back();
    free_.pop_back();
    return {{at, bytes}, std::shared_ptr<void>(at, [this](void* place) {
              std::lock_guard giving(mutex_);
              free_.push_back(static_cast<std::byte*>(place));
            })};
  }

 private:
  const std::unique_ptr<HostLane> lane_;
  const size_t part_bytes_max_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::byte*> free_;
};

}  // namespace reprise
