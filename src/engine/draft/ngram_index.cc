// SPDX-License-Identifier: Apache-2.0
#include "engine/draft/ngram_index.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace reprise {
namespace {

constexpr size_t kSlotsMin = 64;
// Slots that are looked at for a run, from its own on.
constexpr size_t kProbes = 32;

}  // namespace

size_t NgramIndex::SlotOf(std::span<const int32_t> run) const {
  uint64_t hash = run.size();
  for (const int32_t token : run) hash = Mix64(hash ^ static_cast<uint32_t>(token));
  return hash & (slots_.size() - 1);
}

bool NgramIndex::Holds(std::span<const int32_t> text, size_t slot,
                       std::span<const int32_t> run) const {
  const size_t end = slots_[slot];
  return end != 0 && std::equal(run.begin(), run.end(), text.begin() + ptrdiff_t(end - n_));
}

void NgramIndex::Put(std::span<const int32_t> text, size_t end) {
  const auto run = text.subspan(end - n_, n_);
  const size_t home = SlotOf(run);
  for (size_t i = 0; i < kProbes; ++i) {
    const size_t slot = (home + i) & (slots_.size() - 1);
    if (slots_[slot] == 0) ++used_;
    if (slots_[slot] == 0 || Holds(text, slot, run)) {
      slots_[slot] = static_cast<uint32_t>(end);
      return;
    }
  }
  slots_[home] = static_cast<uint32_t>(end);  // crowded: another one is forgotten
}

void NgramIndex::Grow(std::span<const int32_t> text) {
  std::vector<uint32_t> ends = std::move(slots_);
  std::erase(ends, 0u);
  std::sort(ends.begin(), ends.end());
  slots_.assign(std::max(kSlotsMin, std::min(4 * std::max<size_t>(used_, 1), kPlacesMax)), 0);
  slots_.resize(std::bit_ceil(slots_.size()), 0);
  used_ = 0;
  for (const uint32_t end : ends) Put(text, end);
}

void NgramIndex::Extend(std::span<const int32_t> text, size_t end) {
  CHECK(end <= text.size() && end < UINT32_MAX);
  for (indexed_ = std::max(indexed_, n_ - 1); indexed_ < end; ++indexed_) {
    if (2 * used_ >= slots_.size() && slots_.size() < kPlacesMax) Grow(text);
    Put(text, indexed_ + 1);
  }
}

std::optional<size_t> NgramIndex::Find(std::span<const int32_t> text,
                                       std::span<const int32_t> suffix) const {
  if (suffix.size() < n_ || slots_.empty()) return std::nullopt;
  const auto run = suffix.last(n_);
  const size_t home = SlotOf(run);
  for (size_t i = 0; i < kProbes; ++i) {
    const size_t slot = (home + i) & (slots_.size() - 1);
    if (slots_[slot] == 0) return std::nullopt;
    if (Holds(text, slot, run)) return slots_[slot];
  }
  return std::nullopt;
}

}  // namespace reprise
