// SPDX-License-Identifier: Apache-2.0
#include "engine/audit/rehearsed_drafter.h"

#include "base/rng.h"

namespace reprise {
namespace {

uint64_t Add(uint64_t hash, TokenId token) {
  return Mix64(hash * 31 + static_cast<uint64_t>(token) + 1);
}

}  // namespace

void RehearsedDrafter::Hear(std::vector<TokenId> tokens, size_t prompt_tokens) {
  uint64_t hash = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i >= prompt_tokens) places_[hash] = {texts_.size(), i};
    hash = Add(hash, tokens[i]);
  }
  texts_.push_back(std::move(tokens));
}

void RehearsedDrafter::Propose(std::span<DraftJob* const> jobs) {
  for (DraftJob* job : jobs) {
    uint64_t hash = 0;
    for (const TokenId token : job->lease->tokens()) hash = Add(hash, token);
    Rng rng(options_.seed ^ hash);
    if (rng.Below(100) < options_.silent_percent) continue;
    const auto place = places_.find(hash);
    for (size_t i = 0; i < static_cast<size_t>(job->count); ++i) {
      const auto junk = static_cast<TokenId>(rng.Below(static_cast<uint64_t>(options_.vocab_size)));
      const bool lies = rng.Below(100) < options_.junk_percent;
      TokenId token = junk;
      if (place != places_.end() && !lies) {
        const std::vector<TokenId>& text = texts_[place->second.first];
        const size_t at = place->second.second + i;
        if (at == text.size()) break;
        token = text[at];
      }
      job->tokens.push_back(token);
    }
  }
}

}  // namespace reprise
