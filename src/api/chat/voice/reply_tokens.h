// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "api/chat/reply.h"

namespace reprise::api {

// A generated token as the APIs show it: with its text, its probability and its rivals'.
ReplyToken Describe(const Tokenizer& tokenizer, const GeneratedToken& token);

// ReplyTokens holds the tokens of one choice back until their text is sent: it may turn out to be
// part of a stop string, and then neither is told.
//
// Thread safety: none. Costs: O(tokens that are held).
class ReplyTokens {
 public:
  // A token whose text is the next that Read counts.
  void Hold(ReplyToken token) { held_.emplace_back(text_bytes_, std::move(token)); }

  void Read(size_t bytes) { text_bytes_ += bytes; }  // text of tokens
  void Sent(size_t bytes) { sent_bytes_ += bytes; }  // and how much of it is sent
  void SentSoFar() { sent_bytes_ = text_bytes_; }
  void SentAll() { sent_bytes_ = SIZE_MAX / 2; }  // nothing is held back any more

  // Those whose text has begun to be sent, and that were not taken yet.
  std::vector<ReplyToken> TakeSent();
  // A stop was reached: the text of the others is never sent.
  void Drop() { held_.clear(); }

 private:
  std::vector<std::pair<size_t, ReplyToken>> held_;  // and where its text begins
  size_t text_bytes_ = 0;
  size_t sent_bytes_ = 0;
};

}  // namespace reprise::api
