// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace reprise {

// `count` things one after another of which each stays whole, `size` long: heads, groups of
// channels. What consists of several such sections (q, k and v in one) is divided section by
// section, so that a device has the same heads of all of them.
struct Section {
  int64_t count = 0;
  int64_t size = 0;
};

// [begin, end) belongs to one of the owners.
struct Share {
  int owner = 0;
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const Share&, const Share&) = default;
};

// Each section among `owners`, in order, as evenly as whole things go: where there are fewer of
// them than owners, some have none.
inline std::vector<Share> Divide(std::span<const Section> sections, int owners) {
  std::vector<Share> shares;
  int64_t at = 0;
  for (const Section& section : sections) {
    for (int owner = 0; owner < owners; ++owner) {
      const int64_t begin = at + section.count * owner / owners * section.size;
      const int64_t end = at + section.count * (owner + 1) / owners * section.size;
      if (begin == end) continue;
      if (!shares.empty() && shares.back().owner == owner) {
        shares.back().end = end;
      } else {
        shares.push_back({owner, begin, end});
      }
    }
    at += section.count * section.size;
  }
  return shares;
}

// What has no structure of its own: in pieces of 16, where that goes.
inline Section Plain(int64_t size) {
  return size % 16 == 0 ? Section{size / 16, 16} : Section{size, 1};
}

}  // namespace reprise
