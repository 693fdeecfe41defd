// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "state/ids.h"

namespace reprise {

// Where the latest tokens of a text have stood in it before: an index over all runs of n tokens of
// a text that only grows, each with the place behind its latest occurrence.
//
// It keeps places, not tokens: callers give the same text every time. A run is compared before it
// is believed, so a wrong answer is not possible. Texts may be hostile: no search looks at more
// than a few places, and there are no more than kPlacesMax of them; runs beyond that replace others
// and are found or not.
//
// Thread safety: none. Costs: Extend O(new tokens), Find O(1), 8 bytes of memory a token at most.
class NgramIndex {
 public:
  static constexpr size_t kPlacesMax = size_t{1} << 20;

  explicit NgramIndex(size_t n) : n_(n) {}

  size_t n() const { return n_; }
  size_t indexed() const { return indexed_; }

  // Adds the runs that end at or before `end` and were not added yet. REQUIRES: end <= text size.
  void Extend(std::span<const int32_t> text, size_t end);

  // The place behind the latest run in the index that has the last n tokens of `suffix`.
  std::optional<size_t> Find(std::span<const int32_t> text, std::span<const int32_t> suffix) const;

 private:
  size_t SlotOf(std::span<const int32_t> run) const;
  bool Holds(std::span<const int32_t> text, size_t slot, std::span<const int32_t> run) const;
  void Put(std::span<const int32_t> text, size_t end);
  void Grow(std::span<const int32_t> text);

  size_t n_;
  size_t indexed_ = 0;           // runs that end up to here are in it
  size_t used_ = 0;              // of the slots
  std::vector<uint32_t> slots_;  // a power of two of them: the end of a run, 0: free
};

}  // namespace reprise
