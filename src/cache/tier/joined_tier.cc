// SPDX-License-Identifier: Apache-2.0
#include "cache/tier/joined_tier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise {

size_t JoinedTier::level_of(TierRecordId record) const {
  const auto at = where_.find(record);
  if (at == where_.end() || at->second[0] || !at->second[1]) return 0;
  return 1 + tiers_[1]->level_of(record);
}

bool JoinedTier::Continues(TierRecordId record) const {
  const auto at = where_.find(record);
  if (at == where_.end()) return false;
  return std::equal(tiers_.begin(), tiers_.end(), at->second.begin(),
                    [&](const auto& tier, bool has) { return has && tier->Continues(record); });
}

void JoinedTier::Open(const StateMemory& memory, DeviceMemory& device) {
  for (const auto& tier : tiers_) tier->Open(memory, device);
}

void JoinedTier::AddRoots(const NamespaceKey& key, std::vector<PathId>* roots) const {
  for (const auto& tier : tiers_) tier->AddRoots(key, roots);
}

// The index knows a record by its place: it gives the second one the id of the first.
void JoinedTier::Find(const NamespaceKey& key, const PromptPaths& prompt, const Found& found) {
  for (size_t i = 0; i < kBoth; ++i) {
    tiers_[i]->Find(key, prompt, [&](const FoundRecord& record) {
      const TierRecordId id = found(record);
      if (id.valid()) where_[id][i] = true;
      return id;
    });
  }
}

// Questions are those of the one tier that has to be asked.
uint64_t JoinedTier::Ask(const NamespaceKey& key, std::span<const TokenId> prompt) {
  for (const auto& tier : tiers_) {
    if (tier->shared()) return tier->Ask(key, prompt);
  }
  return 0;
}

void JoinedTier::Begin(const Move& move) {
  Joined& joined = moves_[move.id];
  joined.kind = move.kind;
  joined.record = move.records.back().id;
  joined.done.id = move.id;
  if (move.kind == Move::Kind::kSpill) {
    const auto at = where_.find(joined.record);  // one of them may have it
    const Has has = at == where_.end() ? Has() : at->second;
    for (size_t i = 0; i < kBoth; ++i) {
      joined.pending[i] = !has[i] || !tiers_[i]->Continues(joined.record);
    }
    joined.told = has[0] || has[1];
  } else {
    joined.pending[level_of(joined.record) > 0 ? 1 : 0] = true;
  }
  for (size_t i = 0; i < kBoth; ++i) {
    if (joined.pending[i]) tiers_[i]->Begin(move);
  }
}

// What one of them has stored already stays there, to be found again.
void JoinedTier::Cancel(uint64_t move) {
  const auto at = moves_.find(move);
  CHECK(at != moves_.end());
  const Joined joined = at->second;
  moves_.erase(at);
  for (size_t i = 0; i < kBoth; ++i) {
    if (joined.pending[i]) tiers_[i]->Cancel(move);
  }
  if (joined.kind == Move::Kind::kSpill && !joined.told) Remove(joined.record);
}

void JoinedTier::Remove(TierRecordId record) {
  where_.erase(record);
  for (const auto& tier : tiers_) tier->Remove(record);
}

void JoinedTier::Reset(const NamespaceKey* key) {
  for (const auto& tier : tiers_) tier->Reset(key);
}

void JoinedTier::Hear(size_t tier, News heard, News* news) {
  for (const MoveDone& done : heard.done) {
    const auto at = moves_.find(done.id);
    CHECK(at != moves_.end() && at->second.pending[tier]);
    Joined& joined = at->second;
    joined.pending[tier] = done.more;  // that one may be several, too
    if (done.ok && joined.kind == Move::Kind::kSpill) {
      // What was told of may be forgotten by now.
      const bool forgotten = joined.told && !where_.contains(joined.record);
      forgotten ? tiers_[tier]->Remove(joined.record) : void(where_[joined.record][tier] = true);
    }
    joined.done.ok |= done.ok;
    joined.done.bytes = std::max(joined.done.bytes, done.bytes);
    joined.done.ns = std::max(joined.done.ns, done.ns);
    joined.done.level = tier == 0 ? 0 : 1 + done.level;
    joined.done.more = joined.pending[0] || joined.pending[1];
    if (joined.done.more && (!done.ok || joined.told)) continue;
    joined.told = true;
    news->done.push_back(joined.done);
    if (joined.done.more) continue;
    moves_.erase(at);
  }
  for (const TierRecordId lost : heard.lost) {
    const auto at = where_.find(lost);
    if (at == where_.end()) continue;
    at->second[tier] = false;
    if (at->second[0] || at->second[1]) continue;
    where_.erase(at);
    news->lost.push_back(lost);
  }
  news->more |= heard.more;
  news->answered.insert(news->answered.end(), heard.answered.begin(), heard.answered.end());
}

Tier::News JoinedTier::Poll(When when) {
  News news;
  for (size_t i = 0; i < kBoth; ++i) Hear(i, tiers_[i]->Poll(when), &news);
  return news;
}

void JoinedTier::AddTo(CacheStats* stats) const {
  for (const auto& tier : tiers_) tier->AddTo(stats);
}

}  // namespace reprise
