// SPDX-License-Identifier: Apache-2.0
#include "api/chat/voice/reply_room.h"

#include <fmt/format.h>

#include <algorithm>

namespace reprise::api {
namespace {

constexpr size_t kTextBytesAhead = size_t{4} << 10;  // that an account is asked for at a time

ApiError TooMuchKept() {
  return {400,
          fmt::format("an answer in one piece has at most {} log-probabilities (n x max_tokens "
                      "x (1 + top_logprobs)); ask for fewer, or for a stream",
                      KeptBudget::kReplyEntriesMax),
          "logprobs", "unsupported_value"};
}

}  // namespace

std::optional<ApiError> ReplyRoom::CheckEntries(const ReplyPlan& plan, int32_t context_tokens) {
  const size_t entries = 1 + static_cast<size_t>(std::max(0, plan.options.logprobs));
  const size_t choices = static_cast<size_t>(plan.options.choices);
  if (plan.keep_tokens && plan.options.max_tokens) {
    const size_t tokens = plan.prompts.size() * choices *
                          static_cast<size_t>(std::min(*plan.options.max_tokens, context_tokens));
    if (tokens * entries > KeptBudget::kReplyEntriesMax) return TooMuchKept();
  }
  if (!plan.score_prompt) return std::nullopt;
  size_t scored = 0;
  for (const Prompt& prompt : plan.prompts) scored += prompt.ids.size();
  return TakeEntries(scored * choices * entries);
}

std::optional<ApiError> ReplyRoom::TakePlan(const ReplyPlan& plan, size_t choice_bytes) {
  size_t bytes = plan.bytes_kept + plan.tools.size();
  for (const std::string& stop : plan.options.stop) bytes += stop.size() * (1 + sizeof(uint32_t));
  for (const Prompt& prompt : plan.prompts) {
    // Here, in the queue, and in the sequences that run beside each other.
    bytes += 4 * prompt.ids.size() * sizeof(TokenId) + prompt.boundaries.size() * sizeof(Boundary);
  }
  bytes += plan.prompts.size() * static_cast<size_t>(plan.options.choices) * choice_bytes;
  const Status taken = account_->TakeAnswer(bytes, "the reply");
  return taken.ok() ? std::nullopt : std::optional<ApiError>(ApiError::From(taken));
}

std::optional<ApiError> ReplyRoom::TakeText(size_t bytes) {
  if (bytes > text_room_) {
    const Status taken = account_->TakeAnswer(bytes + kTextBytesAhead, "the reply");
    if (!taken.ok()) return ApiError::From(taken);
    text_room_ += bytes + kTextBytesAhead;
  }
  text_room_ -= bytes;
  return std::nullopt;
}

std::optional<ApiError> ReplyRoom::TakeEntries(size_t count) {
  if (entries_ + count > KeptBudget::kReplyEntriesMax) return TooMuchKept();
  if (!kept_.Take(count)) {
    return ApiError{429, "the server keeps too many log-probabilities at the moment", "",
                    "rate_limit_exceeded"};
  }
  entries_ += count;
  return std::nullopt;
}

}  // namespace reprise::api
