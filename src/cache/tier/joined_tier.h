// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

#include "cache/tier/tier.h"

namespace reprise {

// Two tiers as one: `near` (level 0, a disk) is read before `far` (level 1, a store; if that is two
// again, levels 1 and 2). What goes down goes to both, each as its own rules let it in; one of them
// is enough. A record that both have is one record. One of them may fail or lose what it has: the
// other one serves. Each takes what goes down at its own speed: what one of them has is found
// before the other one has it, too (MoveDone::more).
//
// Each tier finds what a record continues by itself, so both can have different chains of records
// that end at the same place.
//
// Thread safety: none.
class JoinedTier : public Tier {
 public:
  // REQUIRES: `near` is one.
  JoinedTier(std::unique_ptr<Tier> near, std::unique_ptr<Tier> far)
      : tiers_{std::move(near), std::move(far)} {}

  std::string_view name() const override { return tiers_[0]->name(); }
  std::string_view name_of(size_t level) const override {
    return level == 0 ? tiers_[0]->name() : tiers_[1]->name_of(level - 1);
  }
  size_t level_of(TierRecordId record) const override;
  bool shared() const override { return tiers_[0]->shared() || tiers_[1]->shared(); }
  bool rounds() const override { return tiers_[0]->rounds() || tiers_[1]->rounds(); }
  bool Continues(TierRecordId record) const override;
  void Open(const StateMemory& memory, DeviceMemory& device) override;
  void AddRoots(const NamespaceKey& key, std::vector<PathId>* roots) const override;
  void Find(const NamespaceKey& key, const PromptPaths& prompt, const Found& found) override;
  uint64_t Ask(const NamespaceKey& key, std::span<const TokenId> prompt) override;
  void Begin(const Move& move) override;
  void Cancel(uint64_t move) override;
  void Remove(TierRecordId record) override;
  void Reset(const NamespaceKey* key) override;
  News Poll(When when) override;
  void AddTo(CacheStats* stats) const override;

 private:
  static constexpr size_t kBoth = 2;
  using Has = std::array<bool, kBoth>;

  // A move that has not come to its end on all levels that it is for.
  struct Joined {
    Move::Kind kind = Move::Kind::kSpill;
    TierRecordId record;
    Has pending = {};
    bool told = false;  // a spill of which one has come to a good end
    MoveDone done;
  };
  void Hear(size_t tier, News heard, News* news);

  const std::array<std::unique_ptr<Tier>, kBoth> tiers_;
  std::unordered_map<TierRecordId, Has> where_;  // who has a record
  std::map<uint64_t, Joined> moves_;
};

}  // namespace reprise
