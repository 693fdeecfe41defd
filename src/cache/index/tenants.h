// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "state/shares.h"

namespace reprise {

// Tenants: who owns what is cached, and how much of it is their share.
//
// What running requests leave of the budget is shared out by weight among the tenants that have
// something or want something. A share is no limit: while nobody else wants the room, one tenant
// may have all of it. But room is made at the cost of those that have more than their share, and as
// what is cached and what is to be taken never fit the budget together when room is made, there is
// always one of them. So nobody is evicted below his share by others.
//
// Owners are small numbers. Those beyond kOwnersMax share one.
//
// Thread safety: none. Costs: O(owners) for each call; there are at most kOwnersMax. steps() counts
// the owners that were looked at.
class Tenants {
 public:
  static constexpr uint32_t kOwnersMax = reprise::kOwnersMax;
  using Mask = OwnerMask;
  static constexpr Mask kAll = ~Mask{0};

  // A lease of this tenant begins; ends. `kept` of an owner says whether it still has state.
  template <typename Kept>
  uint32_t Enter(std::string_view name, int32_t weight, const Kept& kept) {
    uint32_t owner = Find(name);
    if (owner == owners_.size()) {
      const auto gone = std::find_if(owners_.begin(), owners_.end(), [&](const Owner& one) {
        return one.leases == 0 && !kept(static_cast<uint32_t>(&one - owners_.data()));
      });
      owner = static_cast<uint32_t>(gone - owners_.begin());
      if (owner == kOwnersMax) owner = kOwnersMax - 1;
      if (owner == owners_.size()) owners_.emplace_back();
      owners_[owner].name = name;
    }
    owners_[owner].weight = std::max(1, weight);
    ++owners_[owner].leases;
    return owner;
  }
  // One more of the same.
  uint32_t Again(uint32_t owner) { return ++owners_[owner].leases, owner; }
  void Leave(uint32_t owner) { --owners_[owner].leases; }

  // size() if the tenant is not known.
  uint32_t Find(std::string_view name) const {
    const auto at = std::find_if(owners_.begin(), owners_.end(),
                                 [&](const Owner& one) { return one.name == name; });
    return static_cast<uint32_t>(at - owners_.begin());
  }
  uint32_t size() const { return static_cast<uint32_t>(owners_.size()); }

  // The share of the owner in `pool` bytes; `claims(owner)` says who has or wants something.
  template <typename Claims>
  size_t ShareOf(uint32_t owner, size_t pool, const Claims& claims) const {
    double weights = 0;
    for (uint32_t i = 0; i < size(); ++i) {
      if (i == owner || claims(i)) weights += owners_[i].weight;
    }
    return static_cast<size_t>(static_cast<double>(pool) * owners_[owner].weight / weights);
  }

  // The owners whose `bytes` are more than their share in `pool`; `claimant` wants something.
  Mask OverShare(std::span<const size_t> bytes, uint32_t claimant, size_t pool) const {
    steps_ += 2 * size();
    return OwnersOverShare(
        size(), claimant, static_cast<double>(pool), [&](uint32_t i) { return bytes[i]; },
        [&](uint32_t i) { return owners_[i].weight; });
  }
  uint64_t steps() const { return steps_; }

 private:
  struct Owner {
    std::string name;
    int32_t weight = 1;
    int64_t leases = 0;
  };
  std::vector<Owner> owners_;
  mutable uint64_t steps_ = 0;
};

// What room is being made for: whose, and whether it is taken by a running request or cached.
struct Claim {
  uint32_t owner = 0;
  size_t running = 0;
  size_t cached = 0;
};

// A claim while its room is made; its owner stays.
class Claiming {
 public:
  Claiming(Claim* claim, const Claim& now) : claim_(claim) { *claim_ = now; }
  ~Claiming() { *claim_ = {claim_->owner, 0, 0}; }
  Claiming(const Claiming&) = delete;
  Claiming& operator=(const Claiming&) = delete;

 private:
  Claim* claim_;
};

}  // namespace reprise
