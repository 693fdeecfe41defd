// SPDX-License-Identifier: Apache-2.0
#include "text/subword/bpe/merger.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace reprise {
namespace {

constexpr float kNever = std::numeric_limits<float>::infinity();

// How many tokens at the end of a window are encoded again at the start of the next.
constexpr size_t kOverlapTokens = 6;

typedef float Float4 __attribute__((vector_size(16)));

Float4 Min(Float4 a, Float4 b) { return a < b ? a : b; }

}  // namespace

void Merger::UpdateBlock(size_t block) {
  Float4 lanes[4];
  std::memcpy(lanes, ranks_ + block * kBlock, sizeof(lanes));
  const Float4 low = Min(Min(lanes[0], lanes[1]), Min(lanes[2], lanes[3]));
  block_minima_[block] = std::min(std::min(low[0], low[1]), std::min(low[2], low[3]));
}

// Merges ids_[0, count), count <= kShortMax.
void Merger::MergeArrays(const MergeTable& table, size_t count) {
  const size_t blocks = (count + kBlock - 1) / kBlock;
  int32_t* const ids = ids_.data();
  uint32_t* const spans = spans_.data();
  std::fill(ranks_, ranks_ + blocks * kBlock, kNever);
  const auto look_up = [&](size_t left, size_t right) {
    const Merge merge = table.Find(ids[left], ids[right]);
    ranks_[left] = merge.rank == MergeTable::kNoRank ? kNever : static_cast<float>(merge.rank);
    results_[left] = merge.id;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i, i + 1);
  for (size_t block = 0; block < blocks; ++block) UpdateBlock(block);
  while (true) {
    size_t block = 0;
    for (size_t i = 1; i < blocks; ++i) {
      if (block_minima_[i] < block_minima_[block]) block = i;
    }
    const float lowest = block_minima_[block];
    if (lowest == kNever) return;
    size_t left = block * kBlock;
    while (ranks_[left] != lowest) ++left;
    rank_max_ = std::max(rank_max_, static_cast<uint32_t>(lowest));
    merged_ = true;

    const size_t right = left + spans[left];
    const size_t end = right + spans[right];
    ids[left] = results_[left];
    ids[right] = -1;
    ranks_[right] = kNever;
    spans[left] = spans[end - 1] = static_cast<uint32_t>(end - left);
    if (end < count) {
      look_up(left, end);
    } else {
      ranks_[left] = kNever;
    }
    UpdateBlock(block);
    if (right / kBlock != block) UpdateBlock(right / kBlock);
    if (left > 0) {
      const size_t before = left - spans[left - 1];
      look_up(before, left);
      UpdateBlock(before / kBlock);
    }
  }
}

size_t Merger::RunShort(const MergeTable& table, std::span<int32_t> symbols, uint32_t* rank_max) {
  const size_t count = symbols.size();
  CHECK(count <= kShortMax);
  if (count < 2) return count;
  ids_.assign(symbols.begin(), symbols.end());
  spans_.assign(count, 1);
  rank_max_ = 0;
  merged_ = false;
  MergeArrays(table, count);
  if (merged_) *rank_max = rank_max_;
  size_t kept = 0;
  for (size_t at = 0; at < count; at += spans_[at]) symbols[kept++] = ids_[at];
  return kept;
}

void Merger::MergeLong(const MergeTable& table, size_t rank_count) {
  const uint32_t count = static_cast<uint32_t>(ids_.size());
  queue_.Reset(rank_count);
  const auto push = [&](uint32_t left, uint32_t right) {
    const Merge merge = table.Find(ids_[left], ids_[right]);
    if (merge.rank != MergeTable::kNoRank) queue_.Push(merge.rank, left);
  };
  for (uint32_t i = 0; i + 1 < count; ++i) push(i, i + 1);
  uint32_t rank = 0;
  uint32_t left = 0;
  while (queue_.Pop(&rank, &left)) {
    if (ids_[left] < 0) continue;  // merged into its left neighbour since
    const uint32_t right = left + spans_[left];
    if (right >= count) continue;
    const Merge merge = table.Find(ids_[left], ids_[right]);
    if (merge.rank != rank) continue;  // another pair by now
    const uint32_t end = right + spans_[right];
    ids_[left] = merge.id;
    ids_[right] = -1;
    spans_[left] = spans_[end - 1] = end - left;
    if (left > 0) push(left - spans_[left - 1], left);
    if (end < count) push(left, end);
  }
}

// Merges a copy of `symbols` in ids_ and spans_; returns the number of tokens.
size_t Merger::MergeWindow(const MergeTable& table, size_t rank_count,
                           std::span<const int32_t> symbols) {
  ids_.assign(symbols.begin(), symbols.end());
  spans_.assign(symbols.size(), 1);
  if (symbols.size() <= kShortMax) {
    MergeArrays(table, symbols.size());
  } else {
    MergeLong(table, rank_count);
  }
  size_t tokens = 0;
  for (size_t at = 0; at < ids_.size(); at += spans_[at]) ++tokens;
  return tokens;
}

void Merger::Run(const MergeTable& table, size_t rank_count, std::vector<int32_t>* symbols) {
  struct Cut {
    size_t begin = 0;       // of the window
    size_t kept = 0;        // tokens before it
    int32_t expected = -1;  // the token that the window must begin with, if any
  };
  const size_t count = symbols->size();
  size_t window = kShortMax;
  tokens_.clear();
  Cut cut;
  Cut before;               // the cut before `cut`,
  bool can_return = false;  // if it is known
  while (cut.begin < count) {
    const size_t size = std::min(window, count - cut.begin);
    const bool last = cut.begin + size == count;
    const size_t found =
        MergeWindow(table, rank_count, std::span(*symbols).subspan(cut.begin, size));
    if (cut.expected >= 0 && ids_[0] != cut.expected) {
      // The cut is not proven: a larger window from the one before, or from the start.
      window = can_return ? window * 8 : count;
      cut = can_return ? before : Cut{};
      can_return = false;
      tokens_.resize(cut.kept);
      continue;
    }
    if (!last && found <= 2 * kOverlapTokens) {
      window *= 8;
      continue;
    }
    before = cut;
    can_return = true;
    size_t at = 0;
    for (size_t take = last ? found : found - kOverlapTokens; take > 0; --take) {
      tokens_.push_back(ids_[at]);
      at += spans_[at];
    }
    cut = {cut.begin + at, tokens_.size(), last ? -1 : ids_[at]};
    if (found > 8 * kOverlapTokens) window = std::max(kShortMax, window / 8);
  }
  symbols->assign(tokens_.begin(), tokens_.end());
}

}  // namespace reprise
