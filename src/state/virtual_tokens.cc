// SPDX-License-Identifier: Apache-2.0
#include "state/virtual_tokens.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/sha256.h"

namespace reprise {

VirtualTokens& VirtualTokens::Get() {
  static VirtualTokens tokens;
  return tokens;
}

Result<TokenId> VirtualTokens::Take(const Name& name, int32_t count) {
  CHECK(count > 0);
  {
    const std::shared_lock lock(mutex_);
    const auto known = by_name_.find(name);
    if (known != by_name_.end()) return runs_[known->second].first;
  }
  const std::unique_lock lock(mutex_);
  const auto [known, added] = by_name_.try_emplace(name, runs_.size());
  if (!added) return runs_[known->second].first;
  const int64_t next = runs_.empty() ? INT32_MIN : int64_t{runs_.back().first} + runs_.back().count;
  if (runs_.size() == kRunsMax || next + count > 0) {
    by_name_.erase(known);
    return ResourceExhausted(
        "this server has seen more pictures than it has names for; restart it (what is stored on "
        "disk stays)");
  }
  runs_.push_back({static_cast<TokenId>(next), count, name});
  return runs_.back().first;
}

VirtualTokens::Place VirtualTokens::Find(TokenId token) const {
  const std::shared_lock lock(mutex_);
  const auto behind = std::upper_bound(runs_.begin(), runs_.end(), token,
                                       [](TokenId id, const Run& run) { return id < run.first; });
  CHECK(behind != runs_.begin());
  const Run& run = *(behind - 1);
  CHECK(token - run.first < run.count);
  return {run.name, token - run.first};
}

void VirtualTokens::Spell(std::span<const TokenId> tokens, std::string* out) const {
  const auto put = [out](uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(value >> shift));
  };
  for (const TokenId token : tokens) {
    if (!IsVirtual(token)) {
      put(static_cast<uint32_t>(token));
      continue;
    }
    const Place place = Find(token);
    put(UINT32_MAX);
    out->append(place.name.begin(), place.name.end());
    put(static_cast<uint32_t>(place.index));
  }
}

uint64_t VirtualTokens::Word(TokenId token) const {
  std::string spelt;
  Spell({&token, 1}, &spelt);
  const auto digest = Sha256(spelt);
  uint64_t word = 0;
  for (int i = 7; i >= 0; --i) word = word << 8 | digest[static_cast<size_t>(i)];
  return word;
}

}  // namespace reprise
