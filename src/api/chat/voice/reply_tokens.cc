// SPDX-License-Identifier: Apache-2.0
#include "api/chat/voice/reply_tokens.h"

#include <string>

namespace reprise::api {

ReplyToken Describe(const Tokenizer& tokenizer, const GeneratedToken& token) {
  ReplyToken described;
  described.id = token.chosen.token;
  described.bytes = std::string(tokenizer.TokenBytes(token.chosen.token));
  described.logprob = token.chosen.logprob;
  for (const TokenLogprob& other : token.top) {
    described.top.push_back(
        {other.token, std::string(tokenizer.TokenBytes(other.token)), other.logprob, {}});
  }
  return described;
}

std::vector<ReplyToken> ReplyTokens::TakeSent() {
  size_t told = 0;
  while (told < held_.size() && held_[told].first < sent_bytes_) ++told;
  const auto end = held_.begin() + static_cast<ptrdiff_t>(told);
  std::vector<ReplyToken> tokens;
  tokens.reserve(told);
  for (auto it = held_.begin(); it != end; ++it) tokens.push_back(std::move(it->second));
  held_.erase(held_.begin(), end);
  return tokens;
}

}  // namespace reprise::api
