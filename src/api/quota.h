// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace reprise::api {

// What one key may use in a time. Each limit is a bucket that fills evenly and holds as much as its
// time brings: whoever was silent for a minute may use a minute's share at once.
//
// 1. A request begins only if every bucket has something. It then takes one from that of requests.
// 2. Tokens are taken as they are computed: those of a prompt that were not in the cache, and those
//    of the reply. Nobody knows before how many there will be, so the last request may take more
//    than there is; the next one waits until that is filled again.
//
// Thread safety: all methods from any thread.
class Quota {
 public:
  // 0: no limit.
  struct Limits {
    int64_t requests_per_minute = 0;
    int64_t tokens_per_minute = 0;
    int64_t tokens_per_day = 0;

    bool any() const { return requests_per_minute + tokens_per_minute + tokens_per_day > 0; }
  };
  struct Refusal {
    std::string limit;  // "60 requests per minute"
    int64_t seconds;    // until it makes sense to ask again
  };

  explicit Quota(const Limits& limits);

  // Begins a request, or says why it may not. `now_ms`: of a steady clock.
  std::optional<Refusal> Begin(int64_t now_ms);
  void Spend(int64_t tokens, int64_t now_ms);

 private:
  struct Bucket {
    const char* unit;
    double limit;
    double period_ms;
    double level;
    bool counts_tokens;
  };

  void Fill(int64_t now_ms);

  std::mutex mutex_;
  Bucket buckets_[3];
  int64_t filled_at_ms_ = -1;
};

}  // namespace reprise::api
