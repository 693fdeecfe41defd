// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "engine/engine.h"

namespace reprise {

// A clock that tests move by hand.
class ManualClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void AdvanceMs(int64_t ms) { AdvanceNs(ms * 1'000'000); }
  void AdvanceNs(int64_t ns) { now_ns_ += ns; }

 private:
  int64_t now_ns_ = 1'000'000'000;
};

// An engine stepped by the test, with verbs of one line.
class EngineFixture {
 public:
  explicit EngineFixture(Executor& executor, CacheOptions cache_options = {},
                         EngineOptions engine_options = {}) {
    SetLogLevel(LogLevel::kWarning);
    if (cache_options.budget_bytes == 0) cache_options.budget_bytes = size_t{64} << 20;
    auto cache = StateCache::Create(executor.card().state, cache_options, executor.memory());
    EXPECT_TRUE(cache.ok()) << cache.status().message();
    engine_options.context_tokens = cache_options.context_tokens;
    engine_ = std::make_unique<Engine>(executor, std::move(*cache), engine_options, clock_);
  }

  Engine& engine() { return *engine_; }
  StateCache& cache() { return engine_->cache(); }
  ManualClock& clock() { return clock_; }

  std::shared_ptr<TokenStream> Submit(GenerateRequest request) {
    auto stream = engine_->Submit(std::move(request));
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    return stream.ok() ? *stream : nullptr;
  }

  // Steps until nothing is left to do.
  void RunAll() {
    for (int step = 0; engine_->Step(); ++step) {
      ASSERT_LT(step, 100000);
      clock_.AdvanceMs(1);
    }
  }

  struct Answer {
    std::vector<TokenId> tokens;
    Completion completion;
    // Prompt tokens that were run through the model.
    int32_t computed() const { return completion.prompt_tokens - completion.report.used_tokens; }
  };

  Answer Ask(GenerateRequest request) {
    auto stream = Submit(std::move(request));
    RunAll();
    return Read(*stream);
  }

  static Answer Read(TokenStream& stream) {
    TokenStream::Update update = stream.Poll();
    Answer answer;
    for (const GeneratedToken& token : update.tokens) answer.tokens.push_back(token.chosen.token);
    EXPECT_TRUE(update.completion.has_value());
    if (update.completion) answer.completion = *update.completion;
    return answer;
  }

 private:
  ManualClock clock_;
  std::unique_ptr<Engine> engine_;
};

// A conversation as a chat template would render it: messages of tokens with a boundary after each.
class Conversation {
 public:
  explicit Conversation(int64_t vocab) : vocab_(vocab) {}

  // Appends a message of `count` tokens; equal seeds give equal messages.
  Conversation& Say(uint64_t seed, int32_t count) {
    Rng rng(seed);
    for (int32_t i = 0; i < count; ++i) {
      tokens_.push_back(static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocab_))));
    }
    return Close();
  }
  Conversation& Append(const std::vector<TokenId>& message) {
    tokens_.insert(tokens_.end(), message.begin(), message.end());
    return Close();
  }

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

  GenerateRequest Request(int32_t max_tokens) const {
    GenerateRequest request;
    request.prompt = tokens_;
    request.boundaries = boundaries_;
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    return request;
  }

 private:
  Conversation& Close() {
    boundaries_.push_back(
        {size(), boundaries_.empty() ? BoundaryKind::kSystem : BoundaryKind::kMessage});
    return *this;
  }

  int64_t vocab_;
  std::vector<TokenId> tokens_;
  std::vector<Boundary> boundaries_;
};

}  // namespace reprise
