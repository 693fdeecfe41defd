// SPDX-License-Identifier: Apache-2.0
#include "sample/ranking.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/table.h"

namespace reprise {
namespace {

constexpr float kFarthest = 30;  // in temperatures
constexpr float kPerUnit = 16;   // buckets for each of them

}  // namespace

float Largest(std::span<const float> values) {
  // As many chains as a vector has lanes: the compiler makes vectors of them.
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> most;
  most.fill(-std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      most[lane] = value > most[lane] ? value : most[lane];
    }
  }
  for (; i < values.size(); ++i) most[0] = std::max(most[0], values[i]);
  return *std::max_element(most.begin(), most.end());
}

void Ranking::Rank(const cpu::KernelTable& table, std::span<const float> logits,
                   float temperature) {
  static_assert(static_cast<size_t>(kFarthest * kPerUnit) + 1 == kBuckets);
  logits_ = logits;
  sorted_bucket_ = kBuckets;
  const size_t count = logits.size();
  const float best = Largest(logits);
  weights_.resize(count);
  bucket_of_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    // What is left out is not to become infinite: it is no weight, but goes through the same sums.
    const float distance = (best - logits[i]) / temperature;
    weights_[i] = -(distance < 2 * kFarthest ? distance : 2 * kFarthest);
  }
  for (size_t i = 0; i < count; ++i) {
    const int bucket = static_cast<int>(weights_[i] * -kPerUnit);
    bucket_of_[i] = static_cast<uint16_t>(std::min(bucket, static_cast<int>(kBuckets)));
  }
  table.softmax(weights_.data(), static_cast<int64_t>(count), weights_.data());
  buckets_.fill({});
  for (size_t i = 0; i < count; ++i) {
    Bucket& bucket = buckets_[bucket_of_[i]];
    ++bucket.count;
    bucket.mass += static_cast<double>(weights_[i]);
    bucket.most = weights_[i] > bucket.most ? weights_[i] : bucket.most;
  }
  last_ = kBuckets - 1;
  while (buckets_[last_].count == 0) --last_;  // the best one is in the first
  last_count_ = buckets_[last_].count;
}

size_t Ranking::CountIn(size_t bucket) const {
  return bucket == last_ ? last_count_ : buckets_[bucket].count;
}

double Ranking::MassIn(size_t bucket) {
  if (CountIn(bucket) == buckets_[bucket].count) return buckets_[bucket].mass;
  double mass = 0;
  for (const Place& place : Sorted(bucket).first(CountIn(bucket))) {
    mass += static_cast<double>(place.weight);
  }
  return mass;
}

double Ranking::Mass() {
  double mass = 0;
  for (size_t i = 0; i <= last_; ++i) mass += MassIn(i);
  return mass;
}

std::span<const Ranking::Place> Ranking::Sorted(size_t bucket) {
  if (bucket == sorted_bucket_) return sorted_;
  sorted_bucket_ = bucket;
  sorted_.clear();
  for (size_t i = 0; i < bucket_of_.size(); ++i) {
    if (bucket_of_[i] != bucket) continue;
    sorted_.push_back({logits_[i], static_cast<int32_t>(i), weights_[i]});
  }
  std::sort(sorted_.begin(), sorted_.end(), [](const Place& a, const Place& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
  return sorted_;
}

void Ranking::KeepCount(size_t count) {
  for (size_t i = 0; i <= last_; ++i) {
    const size_t here = CountIn(i);
    if (here >= count) {
      last_ = i;
      last_count_ = count;
      return;
    }
    count -= here;
  }
}

void Ranking::KeepMass(double share) {
  double wanted = share * Mass();
  for (size_t i = 0; i <= last_; ++i) {
    const size_t here = CountIn(i);
    if (here == 0) continue;
    const double mass = MassIn(i);
    if (mass < wanted) {
      wanted -= mass;
      continue;
    }
    size_t kept = 0;
    while (kept < here && (kept == 0 || wanted > 0)) {
      wanted -= static_cast<double>(Sorted(i)[kept++].weight);
    }
    last_ = i;
    last_count_ = kept;
    return;
  }
}

void Ranking::KeepAbove(float share) {
  const float least = share * buckets_[0].most;
  while (last_ > 0 && (buckets_[last_].count == 0 || buckets_[last_].most < least)) {
    --last_;
    last_count_ = buckets_[last_].count;
  }
  const std::span<const Place> places = Sorted(last_);
  while (last_count_ > 1 && places[last_count_ - 1].weight < least) --last_count_;
}

int32_t Ranking::At(double share) {
  double left = share * Mass();
  for (size_t i = 0; i < last_; ++i) {
    const double mass = buckets_[i].mass;
    if (left < mass) return Walk(i, left);
    left -= mass;
  }
  return Walk(last_, left);
}

// The last one, should rounding have left some of `left`.
int32_t Ranking::Walk(size_t bucket, double left) {
  const std::span<const Place> places = Sorted(bucket).first(CountIn(bucket));
  for (const Place& place : places) {
    left -= static_cast<double>(place.weight);
    if (left < 0) return place.token;
  }
  return places.back().token;
}

}  // namespace reprise
