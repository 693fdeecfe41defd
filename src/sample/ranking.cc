// SPDX-License-Identifier: Apache-2.0
#include "sample/ranking.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/cpu/table.h"

namespace reprise {

// By ranks that are whole numbers: compilers make vectors of a loop that compares those, and none
// of one that compares floats. The bits of negative numbers count backwards; turned, all are in
// order, and a shift takes what is no number around to the lowest ranks.
float Largest(std::span<const float> values) {
  constexpr uint32_t kShift = 0x007f'ffff;  // +inf has the highest rank then
  const auto turned = [](int32_t bits) { return bits ^ (bits >> 31 & 0x7fff'ffff); };
  const auto rank = [&](float value) {
    const auto bits = static_cast<uint32_t>(turned(std::bit_cast<int32_t>(value)));
    return static_cast<int32_t>(bits + kShift);
  };
  int32_t most = rank(-std::numeric_limits<float>::infinity());
  for (const float value : values) most = std::max(most, rank(value));
  return std::bit_cast<float>(turned(static_cast<int32_t>(static_cast<uint32_t>(most) - kShift)));
}

void Ranking::Rank(const cpu::KernelTable& table, std::span<const float> logits,
                   float temperature) {
  logits_ = logits;
  temperature_ = temperature;
  sorted_bucket_ = kBuckets;
  const size_t count = logits.size();
  const float largest = largest_ = Largest(logits);
  exps_.resize(count);
  bucket_of_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    exps_[i] = -reference::ChoiceDistance(largest, logits[i], temperature);
  }
  for (size_t i = 0; i < count; ++i) {
    bucket_of_[i] = static_cast<uint16_t>(reference::ChoiceBucket(-exps_[i]));
  }
  table.exp(exps_.data(), static_cast<int64_t>(count), exps_.data());
  buckets_.fill({});
  for (size_t i = 0; i < count; ++i) {
    Bucket& bucket = buckets_[bucket_of_[i]];
    ++bucket.count;
    bucket.mass += reference::ChoiceWeight(exps_[i]);
  }
  count_ = count - buckets_.back().count;
  mass_ = dropped_ = 0;
  for (size_t i = 0; i + 1 < kBuckets; ++i) mass_ += buckets_[i].mass;
}

uint64_t Ranking::WeightOf(int32_t token) const {
  return reference::ChoiceWeight(exps_[static_cast<size_t>(token)]);
}

std::span<const Ranking::Place> Ranking::Sorted(size_t bucket) const {
  if (bucket == sorted_bucket_) return sorted_;
  sorted_bucket_ = bucket;
  sorted_.clear();
  for (size_t i = 0; i < bucket_of_.size(); ++i) {
    if (bucket_of_[i] == bucket) sorted_.push_back({logits_[i], static_cast<int32_t>(i)});
  }
  Sort(&sorted_);
  return sorted_;
}

void Ranking::Sort(std::vector<Place>* places) {
  std::sort(places->begin(), places->end(), [](const Place& a, const Place& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
}

Ranking::Cut Ranking::CutAtMass(uint64_t wanted) const {
  Cut cut;
  size_t bucket = 0;
  while (cut.mass + buckets_[bucket].mass < wanted) {
    cut.mass += buckets_[bucket].mass;
    cut.count += buckets_[bucket++].count;
  }
  for (const Place& place : Sorted(bucket)) {
    cut.mass += WeightOf(place.token);
    ++cut.count;
    cut.token = place.token;
    if (cut.mass >= wanted) break;
  }
  return cut;
}

void Ranking::KeepCount(size_t count) {
  if (count >= count_) return;
  count_ = count;
  mass_ = 0;
  size_t bucket = 0;
  for (; buckets_[bucket].count <= count; ++bucket) {
    count -= buckets_[bucket].count;
    mass_ += buckets_[bucket].mass;
  }
  if (count == 0) return;
  for (const Place& place : Sorted(bucket).first(count)) mass_ += WeightOf(place.token);
}

void Ranking::KeepMass(double share) {
  const Cut cut = CutAtMass(reference::ChoiceShare(share, mass_));
  count_ = cut.count;
  mass_ = cut.mass;
}

void Ranking::KeepNear(float distance) {
  const auto last = static_cast<size_t>(reference::ChoiceBucket(
      distance < 2 * reference::kChoiceFarthest ? distance : 2 * reference::kChoiceFarthest));
  size_t count = 0;
  for (size_t bucket = 0; bucket < last; ++bucket) count += buckets_[bucket].count;
  if (last + 1 < kBuckets && buckets_[last].count > 0) {
    for (const Place& place : Sorted(last)) {
      count += reference::ChoiceDistance(largest_, place.logit, temperature_) <= distance;
    }
  }
  KeepCount(count);
}

void Ranking::DropLikely(float share) {
  const auto least =
      std::max<uint64_t>(1, static_cast<uint64_t>(double{share} * static_cast<double>(mass_)));
  uint64_t before = 0, last = 0;  // of those before the last likely one, and its own
  for (const Kept& kept : KeptFrom(least)) before += std::exchange(last, kept.weight);
  dropped_ = before;
}

std::vector<Ranking::Kept> Ranking::KeptFrom(uint64_t weight) const {
  std::vector<Place> places;
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (bucket_of_[i] + 1u < kBuckets && reference::ChoiceWeight(exps_[i]) >= weight) {
      places.push_back({logits_[i], static_cast<int32_t>(i)});
    }
  }
  Sort(&places);
  if (places.size() > count_) places.resize(count_);
  std::vector<Kept> kept;
  kept.reserve(places.size());
  for (const Place& place : places) kept.push_back({place.token, WeightOf(place.token)});
  return kept;
}

int32_t Ranking::At(double share) const {
  return CutAtMass(dropped_ + reference::ChoiceDraw(share, mass_ - dropped_)).token;
}

}  // namespace reprise
