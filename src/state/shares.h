// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise {

// Shares of a pool of bytes, by weight, among the owners that have or claim some of it. Owners are
// small numbers; those beyond the last share it.
inline constexpr uint32_t kOwnersMax = 64;
using OwnerMask = uint64_t;  // a bit for each owner

// The owners that have more than their share of `pool`. `claimant` claims some even if it has none.
// Costs: O(owners).
template <typename Bytes, typename Weight>
OwnerMask OwnersOverShare(uint32_t owners, uint32_t claimant, double pool, const Bytes& bytes_of,
                          const Weight& weight_of) {
  double weights = 0;
  for (uint32_t i = 0; i < owners; ++i) {
    if (i == claimant || bytes_of(i) > 0) weights += weight_of(i);
  }
  OwnerMask over = 0;
  for (uint32_t i = 0; i < owners; ++i) {
    const bool more = static_cast<double>(bytes_of(i)) * weights > pool * weight_of(i);
    if (more) over |= OwnerMask{1} << i;
  }
  return over;
}

}  // namespace reprise
