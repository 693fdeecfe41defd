// SPDX-License-Identifier: Apache-2.0
#pragma once

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

// The one-way channel from the engine to the caller of one request. The engine never waits for a
// slow reader; what it holds is bounded by the request's max_tokens.
//
// Thread safety: one reader, one writer (the engine thread); Cancel from anywhere.
class TokenStream {
 public:
  // Counts the streams of an engine that were cancelled, so that it looks for them only then.
  using CancelCount = std::atomic<uint64_t>;

  explicit TokenStream(std::shared_ptr<CancelCount> cancels) : cancels_(std::move(cancels)) {
    tokens_.reserve(kUsualTokens);
  }

  struct Update {
    std::optional<ReuseReport> started;  // once, when the request begins to run
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
    if (!cancelled_.exchange(true, std::memory_order_relaxed)) {
      cancels_->fetch_add(1, std::memory_order_release);
    }
  }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // `notify` is called on the engine thread after every addition; it must be quick.
  void SetNotify(std::function<void()> notify);

  // Engine side.
  void Begin(const ReuseReport& report);
  void Add(GeneratedToken token);
  void Complete(Completion completion);

 private:
  static constexpr size_t kUsualTokens = 4;  // between two looks

  Update TakeLocked(std::vector<GeneratedToken>* spare);
  void Notify();

  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;  // guards what follows, up to the condition
  bool completed_ = false;
  bool waiting_ = false;  // somebody, for all
  std::vector<GeneratedToken> tokens_;
  std::function<void()> notify_;
  std::optional<ReuseReport> started_;
  std::optional<Completion> completion_;
  std::condition_variable changed_;
  const std::shared_ptr<CancelCount> cancels_;
};

}  // namespace reprise
