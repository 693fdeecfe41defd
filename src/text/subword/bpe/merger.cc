// SPDX-License-Identifier: Apache-2.0
#include "text/subword/bpe/merger.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "text/vocab/spec.h"

namespace reprise {
namespace {

constexpr float kNever = std::numeric_limits<float>::infinity();

// The key of a pair: its rank, then its place, as the bits of a float. Positive floats are ordered
// as their bits are, and their minimum is one instruction everywhere. Below the bias they would be
// denormal.
constexpr uint32_t kPlaceBits = 8;
constexpr uint32_t kKeyBias = 1u << 23;
static_assert(Merger::kShortMax == 1u << kPlaceBits);
static_assert((kVocabMergesMax << kPlaceBits) + kKeyBias < 0x7F800000, "a key is not infinite");

float MakeKey(uint32_t rank, size_t place) {
  if (rank == MergeTable::kNoRank) return kNever;
  return std::bit_cast<float>((rank << kPlaceBits | static_cast<uint32_t>(place)) + kKeyBias);
}

// How many tokens at the end of a window are encoded again at the start of the next.
constexpr size_t kOverlapTokens = 6;

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));

Float4 Load(const float* from) {
  Float4 lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

Float4 Min(Float4 a, Float4 b) { return a < b ? a : b; }

float Lowest(Float4 lanes) {
  lanes = Min(lanes, __builtin_shufflevector(lanes, lanes, 2, 3, 0, 1));
  return std::min(lanes[0], lanes[1]);
}

template <size_t kCount>
float LowestOf(const float* keys) {
  Float4 lowest = Load(keys);
  for (size_t i = 4; i < kCount; i += 4) lowest = Min(lowest, Load(keys + i));
  return Lowest(lowest);
}

// The lowest of a few keys: for most words there is nothing to keep.
class OneBlock {
 public:
  static constexpr size_t kBlock = 16;
  explicit OneBlock(const float* keys) : keys_(keys) {}
  void Update(size_t) {}
  float lowest() const { return LowestOf<kBlock>(keys_); }

 private:
  const float* const keys_;
};

// The lowest keys of 8 blocks, in registers: memory that was just written by the number would have
// to be waited for before it can be read by the vector.
class EightBlocks {
 public:
  static constexpr size_t kBlock = Merger::kShortMax / 8;
  explicit EightBlocks(const float* keys) : keys_(keys) {}
  void Update(size_t block) {
    const int32_t lane = static_cast<int32_t>(block);
    const float lowest = LowestOf<kBlock>(keys_ + block * kBlock);
    const Float4 value = {lowest, lowest, lowest, lowest};
    first_ = kLanes == lane ? value : first_;
    second_ = kLanes == lane - 4 ? value : second_;
  }
  float lowest() const { return Lowest(Min(first_, second_)); }

 private:
  static constexpr Int4 kLanes = {0, 1, 2, 3};
  const float* const keys_;
  Float4 first_ = {kNever, kNever, kNever, kNever};
  Float4 second_ = first_;
};

}  // namespace

// Merges ids_[0, count), 0 < count <= kShortMax.
void Merger::MergeArrays(const MergeTable& table, size_t count) {
  if (count <= OneBlock::kBlock) {
    MergeBlocks<OneBlock>(table, count);
  } else {
    MergeBlocks<EightBlocks>(table, count);
  }
}

template <typename Blocks>
void Merger::MergeBlocks(const MergeTable& table, size_t count) {
  static constexpr size_t kBlock = Blocks::kBlock;
  const size_t blocks = (count + kBlock - 1) / kBlock;
  int32_t* const ids = ids_.data();
  uint32_t* const spans = spans_.data();
  const auto put = [&](size_t left, Merge merge) {
    keys_[left] = MakeKey(merge.rank, left);
    results_[left] = merge.id;
  };
  for (size_t i = 0; i + 1 < count; ++i) put(i, table.FindFirst(ids[i], ids[i + 1]));
  std::fill(keys_ + count - 1, keys_ + blocks * kBlock, kNever);
  Blocks order(keys_);
  for (size_t block = 0; block < blocks; ++block) order.Update(block);
  while (true) {
    const float lowest = order.lowest();
    if (lowest == kNever) return;
    const uint32_t key = std::bit_cast<uint32_t>(lowest) - kKeyBias;
    const size_t left = key % kShortMax;
    rank_max_ = std::max(rank_max_, key >> kPlaceBits);
    merged_ = true;

    const size_t right = left + spans[left];
    const size_t end = right + spans[right];
    ids[left] = results_[left];
    spans[left] = spans[end - 1] = static_cast<uint32_t>(end - left);
    keys_[right] = kNever;
    if (end < count) {
      put(left, table.Find(ids[left], ids[end]));
    } else {
      keys_[left] = kNever;
    }
    const size_t block = left / kBlock;
    if (left > 0) {
      const size_t before = left - spans[left - 1];
      put(before, table.Find(ids[before], ids[left]));
      if (before / kBlock != block) order.Update(before / kBlock);
    }
    order.Update(block);
    if (right / kBlock != block) order.Update(right / kBlock);
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

// How many symbols from `rest` on need no merging, since they only repeat what precedes them. `at`
// is the place in the window where `rest` begins. Appends their tokens.
//
// If the last tokens before it come again right behind it, each of them is known to stand beside
// the next, and the last beside the first: by the law they do so as often as their symbols are
// repeated. Some are left for the next window, which may find the end of it.
size_t Merger::SkipRepeats(std::span<const int32_t> rest, size_t at, size_t window) {
  for (size_t period = 1; period <= std::min(kOverlapTokens, tokens_.size()); ++period) {
    const size_t unit = tokens_.size() - period;
    size_t end = at;
    size_t equal = 0;
    for (; equal < period && ids_[end] == tokens_[unit + equal]; ++equal) end += spans_[end];
    if (equal < period) continue;
    const size_t width = end - at;
    size_t repeated = 0;
    while (width + repeated < rest.size() && rest[width + repeated] == rest[repeated]) ++repeated;
    if (repeated <= 2 * window) return 0;
    const size_t copies = (repeated - 2 * window) / width;
    for (size_t i = 0; i < copies * period; ++i) tokens_.push_back(tokens_[unit + i]);
    return copies * width;
  }
  return 0;
}

void Merger::Run(const MergeTable& table, size_t rank_count, std::vector<int32_t>* symbols) {
  struct Cut {
    size_t begin = 0;       // of the window
    size_t kept = 0;        // tokens before it
    int32_t expected = -1;  // the token that the window must begin with, if any
  };
  const size_t count = symbols->size();
  size_t window = kShortMax;
  // Windows stay as large as they had to be made until they are past the place.
  size_t window_min = kShortMax;
  size_t disproved = 0;
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
      disproved = std::max(disproved, cut.begin);
      window = window_min = can_return ? window * 8 : count;
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
    cut.begin += at;
    if (!last) cut.begin += SkipRepeats(std::span(*symbols).subspan(cut.begin), at, window);
    cut = {cut.begin, tokens_.size(), last ? -1 : ids_[at]};
    if (cut.begin > disproved) window_min = kShortMax;
    if (found > 8 * kOverlapTokens) window = std::max(window_min, window / 8);
  }
  symbols->assign(tokens_.begin(), tokens_.end());
}

}  // namespace reprise
