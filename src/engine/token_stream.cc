// SPDX-License-Identifier: Apache-2.0
#include "engine/token_stream.h"

#include <utility>

#include "base/check.h"

namespace reprise {

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndToken:
      return "end_token";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kFailed:
      return "failed";
  }
  return "unknown";
}

TokenStream::Update TokenStream::TakeLocked(std::vector<GeneratedToken>* spare) {
  Update update;
  update.started = std::exchange(started_, std::nullopt);
  if (!tokens_.empty()) {
    update.tokens.swap(tokens_);
    tokens_.swap(*spare);
  }
  update.completion = std::exchange(completion_, std::nullopt);
  return update;
}

TokenStream::Update TokenStream::Poll() {
  std::vector<GeneratedToken> spare;  // for the next tokens: the engine's thread allocates nothing
  spare.reserve(kUsualTokens);
  std::lock_guard lock(mutex_);
  return TakeLocked(&spare);
}

TokenStream::Update TokenStream::WaitForAll() {
  std::vector<GeneratedToken> none;
  std::unique_lock lock(mutex_);
  waiting_ = true;
  changed_.wait(lock, [&] { return completed_; });
  waiting_ = false;
  return TakeLocked(&none);
}

void TokenStream::SetNotify(std::function<void()> notify) {
  std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
}

void TokenStream::Begin(const ReuseReport& report) {
  std::lock_guard lock(mutex_);
  started_ = report;
  Notify();
}

void TokenStream::Add(GeneratedToken token) {
  std::lock_guard lock(mutex_);
  CHECK(!completed_);
  tokens_.push_back(std::move(token));
  Notify();
}

void TokenStream::Complete(Completion completion) {
  std::lock_guard lock(mutex_);
  CHECK(!completed_);
  completed_ = true;
  completion_ = std::move(completion);
  Notify();
}

void TokenStream::Notify() {
  if (waiting_ && completed_) changed_.notify_all();
  if (notify_) notify_();
}

}  // namespace reprise
