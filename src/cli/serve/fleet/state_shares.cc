// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/state_shares.h"

#include <algorithm>
#include <vector>

namespace reprise::cli {
namespace {

constexpr size_t kFreePart = 16;  // of all bytes, one part in so many is kept free to grow into

size_t Total(std::span<const StateShare> shares) {
  size_t total = 0;
  for (const StateShare& share : shares) total += share.budget;
  return total;
}

}  // namespace

void ShareOutState(size_t bytes, std::span<StateShare> shares) {
  std::vector<StateShare*> by_age;
  for (StateShare& share : shares) {
    const size_t floor = share.awake ? share.least : 0;
    share.budget = std::max(share.used, floor);
    by_age.push_back(&share);
  }
  std::sort(by_age.begin(), by_age.end(), [](const StateShare* a, const StateShare* b) {
    return a->last_use_ms < b->last_use_ms;
  });
  // Room for growth, at the cost of those that were used longest ago.
  const size_t target = bytes - bytes / kFreePart;
  for (StateShare* share : by_age) {
    const size_t total = Total(shares);
    const size_t over = total > target ? total - target : 0;
    const bool newest = share == by_age.back();
    const size_t needed = newest ? total - std::min(total, bytes) : over;
    const size_t floor = share->awake ? share->least : 0;
    share->budget -= std::min(needed, share->budget - std::min(share->budget, floor));
  }
  const size_t total = Total(shares);
  const auto awake = static_cast<size_t>(
      std::count_if(shares.begin(), shares.end(), [](const StateShare& s) { return s.awake; }));
  if (awake == 0 || total >= bytes) return;
  const size_t each = (bytes - total) / awake;
  for (StateShare& share : shares) {
    if (share.awake) share.budget += each;
  }
}

}  // namespace reprise::cli
