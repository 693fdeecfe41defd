// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace reprise::grammar {

// Short arrays that are kept until the arena ends: many of them in one allocation, never moved.
//
// Thread safety: none.
template <typename T>
class SpanArena {
 public:
  std::span<const T> Keep(std::span<const T> values) {
    if (values.empty()) return {};
    if (values.size() > room_.size()) {
      const size_t size = std::max(values.size(), kChunk);
      chunks_.push_back(std::make_unique<T[]>(size));
      room_ = {chunks_.back().get(), size};
    }
    std::ranges::copy(values, room_.begin());
    const std::span<const T> kept = room_.first(values.size());
    room_ = room_.subspan(values.size());
    return kept;
  }

 private:
  static constexpr size_t kChunk = 512;

  std::vector<std::unique_ptr<T[]>> chunks_;
  std::span<T> room_;  // what is left of the last chunk
};

}  // namespace reprise::grammar
