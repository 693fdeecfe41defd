// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "api/chat/kept_budget.h"
#include "api/chat/reply.h"
#include "base/account/account.h"

namespace reprise::api {

// ReplyRoom is what one reply keeps until it is complete: bytes of its request's account, and
// entries of log-probabilities (kept_budget.h), which are given back when it goes.
//
// Thread safety: none. The budget must outlive it.
class ReplyRoom {
 public:
  ReplyRoom(KeptBudget* kept, AccountPtr account) : kept_(*kept), account_(std::move(account)) {}
  ~ReplyRoom() { kept_.Give(entries_); }
  ReplyRoom(const ReplyRoom&) = delete;
  ReplyRoom& operator=(const ReplyRoom&) = delete;

  // Refuses what is certain to be too much before it is computed, and takes room for the scores of
  // the prompts.
  std::optional<ApiError> CheckEntries(const ReplyPlan& plan, int32_t context_tokens);
  // What the reply holds from its first to its last token, beyond the text; `choice_bytes` of it
  // for each choice.
  std::optional<ApiError> TakePlan(const ReplyPlan& plan, size_t choice_bytes);

  std::optional<ApiError> TakeText(size_t bytes);
  std::optional<ApiError> TakeEntries(size_t count);

 private:
  KeptBudget& kept_;
  const AccountPtr account_;
  size_t entries_ = 0;    // of the budget
  size_t text_room_ = 0;  // of the account: taken for text that was not said yet
};

}  // namespace reprise::api
