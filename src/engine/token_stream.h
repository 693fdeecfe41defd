// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace reprise {

// Which streams of an engine were cancelled, by the arrival of their requests.
//
// Thread safety: all.
class Cancels {
 public:
  void Add(uint64_t arrival) {
    std::lock_guard lock(mutex_);
    arrivals_.push_back(arrival);
    any_.store(true, std::memory_order_release);
  }
  // Appends those that were added since, and forgets them. Costs a load if there are none.
  void Take(std::vector<uint64_t>* arrivals) {
    if (!any_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(mutex_);
    arrivals->insert(arrivals->end(), arrivals_.begin(), arrivals_.end());
    arrivals_.clear();
    any_.store(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<uint64_t> arrivals_;
};

// The one-way channel from the engine to the caller of one request. The engine never waits for a
// slow reader; what it holds is bounded by the request's max_tokens.
//
// Thread safety: one reader, one writer (the engine thread); Cancel from anywhere.
class alignas(64) TokenStream {
 public:
  TokenStream(std::shared_ptr<Cancels> cancels, uint64_t arrival)
      : cancels_(std::move(cancels)), arrival_(arrival) {}

  struct Update {
    std::optional<ReuseReport> started;  // once, when the request begins to run
    std::optional<int32_t> computed;     // tokens that have state, if tell_progress asked
    // Since the last update, in order. Where log probabilities are asked for, an end token is the
    // last of them; it counts as none.
    std::vector<GeneratedToken> tokens;
    std::optional<Completion> completion;  // set in the last one
  };

  // What is new, without waiting.
  Update Poll();
  // Waits for the completion and hands out everything not yet read.
  Update WaitForAll();

  // The engine stops working on the request before its next step; the stream then completes with
  // kCancelled. What was computed so far stays in the cache.
  void Cancel() {
    if (!cancelled_.exchange(true, std::memory_order_relaxed)) cancels_->Add(arrival_);
  }

  // `notify` is called on the engine thread after every addition; it must be quick.
  void SetNotify(std::function<void()> notify);

  // Engine side.
  void Begin(const ReuseReport& report);
  void Advance(int32_t computed);
  void Add(GeneratedToken&& token);
  void Complete(Completion completion);

 private:
  static constexpr size_t kUsualTokens = 4;  // between two looks

  void TakeLocked(Update* update);
  void Notify();

  // What every step looks at comes first.
  std::mutex mutex_;  // guards what follows, up to the condition
  bool completed_ = false;
  bool waiting_ = false;   // somebody, for all
  bool notifies_ = false;  // there is a notify_, which lies further away
  // Not read yet. The first ones are kept here, where the engine's thread is anyway.
  uint32_t first_count_ = 0;
  std::array<GeneratedToken, kUsualTokens> first_;
  std::vector<GeneratedToken> more_;
  std::function<void()> notify_;
  std::optional<ReuseReport> started_;
  std::optional<int32_t> computed_;
  std::optional<Completion> completion_;
  std::condition_variable changed_;
  std::atomic<bool> cancelled_{false};
  const std::shared_ptr<Cancels> cancels_;
  const uint64_t arrival_;
};

}  // namespace reprise
