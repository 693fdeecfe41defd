// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/subword/bpe/merge_queue.h"
#include "text/subword/bpe/merge_table.h"

namespace reprise {

// Merger carries out byte-pair encoding on a sequence of symbols: the neighbouring pair of the
// lowest rank, the leftmost of equals, is merged until no pair has a merge.
//
// Short sequences: all pairs in an array, by rank and place, with the minima of its blocks.
// Longer ones are merged in windows. That is exact by this law: if the encoding of A ends with x,
// that of B begins with y, and some encoding has x and y side by side, then the encoding of AB is
// that of A followed by that of B. (Consider the first merge that would cross the border: it joins
// a suffix of x and a prefix of y, and everything inside x and y has happened in the same order in
// that other encoding, so it would have happened there, too.) A window is cut a few tokens before
// its end, the next begins at the cut, and the law holds if it begins with the token that stood
// there. A window in which tokens are too long or that disagrees is made larger, at worst to all
// the rest, and then merges through a MergeQueue. So the cost is O(n log n) at worst, O(n) as a
// rule.
//
// Thread safety: none; it is working memory.
class Merger {
 public:
  // Merges symbols in place; the ids that remain are at its front and are all that is left of it.
  void Run(const MergeTable& table, size_t rank_count, std::vector<int32_t>* symbols);

  // The same for a few symbols; returns how many ids remain, and the highest rank that was applied
  // in *rank_max, which keeps its value if there was none. REQUIRES: symbols.size() <= kShortMax.
  size_t RunShort(const MergeTable& table, std::span<int32_t> symbols, uint32_t* rank_max);

  static constexpr size_t kShortMax = 256;

 private:
  size_t MergeWindow(const MergeTable& table, size_t rank_count, std::span<const int32_t> symbols);
  void MergeLong(const MergeTable& table, size_t rank_count);
  size_t SkipRepeats(std::span<const int32_t> rest, size_t at, size_t window);
  void MergeArrays(const MergeTable& table, size_t count);
  template <typename Blocks>
  void MergeBlocks(const MergeTable& table, size_t count);

  // A window. Symbols stay where they are; spans say how far each reaches, at its first and at its
  // last place. Swallowed places hold -1:
  //
  //   ids    a  b  c  d        (bc)     a  bc  -1 d
  //   spans  1  1  1  1        ->       1  2   2  1
  std::vector<int32_t> ids_;
  std::vector<uint32_t> spans_;
  MergeQueue queue_;
  std::vector<int32_t> tokens_;  // the result so far

  // Of short windows: the key of the pair that begins at a place (rank, then place), infinity for
  // none.
  alignas(16) float keys_[kShortMax];
  int32_t results_[kShortMax];
  uint32_t rank_max_ = 0;
  bool merged_ = false;
};

}  // namespace reprise
