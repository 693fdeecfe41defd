// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/stats.h"

namespace reprise::api {

enum class StopKind;
class Service;

// A Prometheus histogram.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1, 0) {}
  void Add(double value);
  // `name` without suffix; `labels` without braces.
  void Write(const std::string& name, const std::string& labels, std::string* out) const;

 private:
  std::span<const double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

// What the APIs measure themselves; the engine and the cache count the rest.
//
// Thread safety: all methods from any thread.
class Metrics {
 public:
  Metrics();

  void Observe(const Completion& completion, StopKind stop);
  void CountAnswer(int status);

  // The page of GET /metrics, in Prometheus' text format.
  std::string Format(Service* service) const;

 private:
  void WriteOwn(Service* service, const EngineStats& stats, std::string* out) const;
  void WriteCompat(Service* service, const EngineStats& stats, std::string* out) const;

  mutable std::mutex mutex_;
  Histogram first_token_seconds_;
  Histogram token_seconds_;
  Histogram total_seconds_;
  Histogram queue_seconds_;
  Histogram prefill_seconds_;
  Histogram decode_seconds_;
  Histogram prompt_tokens_;
  Histogram generated_tokens_;
  uint64_t prompt_tokens_sum_ = 0;
  uint64_t cached_tokens_sum_ = 0;
  uint64_t generated_tokens_sum_ = 0;
  std::array<uint64_t, 4> finished_{};   // by StopKind
  std::array<uint64_t, 600> answers_{};  // by HTTP status
};

}  // namespace reprise::api
