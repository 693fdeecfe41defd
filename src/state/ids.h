// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace reprise {

using TokenId = int32_t;

// Tokens of K/V in one block. Attention splits the K/V axis at multiples of it, so the number is
// part of the numerics: changing it changes the bits.
inline constexpr int kBlockTokens = 64;

// Distinct types for ids that are all small integers, so that one cannot be passed for another.
template <typename Tag>
struct Id {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t value = kNone;

  constexpr bool valid() const { return value != kNone; }
  friend constexpr bool operator==(Id a, Id b) { return a.value == b.value; }
  friend constexpr auto operator<=>(Id a, Id b) { return a.value <=> b.value; }
};

using BlockId = Id<struct BlockTag>;  // kBlockTokens tokens of K/V, all layers
// The recurrent state after some token, all layers: the live one of a running sequence, or a
// snapshot, which nobody writes any more. One becomes the other by being called so.
using StateId = Id<struct StateTag>;

}  // namespace reprise

template <typename Tag>
struct std::hash<reprise::Id<Tag>> {
  size_t operator()(reprise::Id<Tag> id) const noexcept { return id.value; }
};
