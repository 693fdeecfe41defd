// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "api/ops/exposition.h"
#include "engine/request.h"

namespace reprise::api {

enum class StopKind;
class Service;

// What the APIs measure themselves; the engine and the cache count the rest.
//
// Thread safety: all methods from any thread.
class Metrics {
 public:
  Metrics();

  void Observe(const Completion& completion, StopKind stop);
  void CountAnswer(int status);

  // GET /metrics: everything, under names of our own.
  std::string FormatOwn(Service* service) const;
  // GET /metrics/vllm: what boards and gateways made for vLLM read, under its names
  // (docs/adr/0005-two-metrics-pages.md).
  std::string FormatVllm(Service* service) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_token_seconds_;
  Histogram token_seconds_;
  Histogram total_seconds_;
  Histogram queue_seconds_;
  Histogram prefill_seconds_;
  Histogram decode_seconds_;
  Histogram inference_seconds_;
  Histogram prompt_tokens_;
  Histogram generated_tokens_;
  uint64_t prompt_tokens_sum_ = 0;
  uint64_t cached_tokens_sum_ = 0;
  uint64_t generated_tokens_sum_ = 0;
  uint64_t finished_length_ = 0;
  uint64_t finished_stop_ = 0;           // for any other reason
  std::array<uint64_t, 600> answers_{};  // by HTTP status
};

}  // namespace reprise::api
