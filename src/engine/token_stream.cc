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

void TokenStream::TakeLocked(Update* update) {
  update->started = std::exchange(started_, std::nullopt);
  update->computed = std::exchange(computed_, std::nullopt);
  for (uint32_t i = 0; i < first_count_; ++i) update->tokens.push_back(std::move(first_[i]));
  for (GeneratedToken& token : more_) update->tokens.push_back(std::move(token));
  first_count_ = 0;
  more_.clear();
  update->completion = std::exchange(completion_, std::nullopt);
}

TokenStream::Update TokenStream::Poll() {
  Update update;
  update.tokens.reserve(kUsualTokens);  // without the lock
  std::lock_guard lock(mutex_);
  TakeLocked(&update);
  return update;
}

TokenStream::Update TokenStream::WaitForAll() {
  Update update;
  std::unique_lock lock(mutex_);
  waiting_ = true;
  changed_.wait(lock, [&] { return completed_; });
  waiting_ = false;
  TakeLocked(&update);
  return update;
}

void TokenStream::SetNotify(std::function<void()> notify) {
  std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
  notifies_ = notify_ != nullptr;
}

void TokenStream::Begin(const ReuseReport& report) {
  std::lock_guard lock(mutex_);
  started_ = report;
  Notify();
}

void TokenStream::Advance(int32_t computed) {
  std::lock_guard lock(mutex_);
  computed_ = computed;
  Notify();
}

void TokenStream::Add(GeneratedToken&& token) {
  std::lock_guard lock(mutex_);
  CHECK(!completed_);
  if (first_count_ < kUsualTokens) {
    first_[first_count_++] = std::move(token);
  } else {
    more_.push_back(std::move(token));
  }
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
  if (notifies_) notify_();
}

}  // namespace reprise
