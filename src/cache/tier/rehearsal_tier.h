// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "cache/tier/tier.h"

namespace reprise {

// A lower tier in this process's memory that behaves as badly as a real one may, by seed: moves
// take any number of polls and end in any order, fail, and are cancelled half-way; records vanish.
// For simulations and audits: it shows whether those above keep to the rules.
//
// A spill reads memory at the last moment that it may; a fetch fills memory with noise at the
// first. So whoever frees, overwrites or reads what a move still holds gives a wrong answer.
//
// Thread safety: none.
class RehearsalTier : public Tier {
 public:
  struct Options {
    uint64_t seed = 0;
    int polls_max = 20;       // that a move takes
    int percent_failing = 5;  // of moves
    int percent_lost = 1;     // of polls in which a record vanishes
    int64_t ns_per_byte = 1;  // what is reported
    bool lies = false;        // one bit of what it gives back is wrong, and it says nothing
  };
  // What outlives the tier, as a disk does: the records of each namespace.
  struct Kept {
    NamespaceKey key;
    RecordHead head;  // its ids are those of the life in which it was written
    std::vector<TokenId> tokens;
    std::map<int32_t, std::vector<std::byte>> blocks;  // by their place in the grid
    std::vector<std::byte> state;
  };
  using Folder = std::map<TierRecordId, Kept>;

  // `folder` may be null; else it must outlive the tier, which begins with what is in it.
  explicit RehearsalTier(const Options& options, Folder* folder = nullptr);

  std::string_view name() const override { return "rehearsal"; }
  void Open(const StateMemory& memory, DeviceMemory& device) override;
  void Find(const NamespaceKey& key, const PromptPaths& prompt, const Found& found) override;
  void Begin(const Move& move) override;
  void Cancel(uint64_t move) override;
  void Remove(TierRecordId record) override;
  void Reset(const NamespaceKey* key) override;
  News Poll(When) override;

 private:
  struct Pending {
    Move move;
    int polls_left = 0;
  };
  void Scribble(const Move& move);
  size_t Write(const Move& move);
  size_t Read(const Move& move);  // 0: a record is not there any more

  const Options options_;
  Rng rng_;
  StateMemory memory_;
  DeviceMemory* device_ = nullptr;
  Folder own_;
  Folder* folder_;  // of this life
  Folder earlier_;  // what was there, until it is found
  std::map<TierRecordId, TierRecordId> renamed_;
  std::vector<Pending> pending_;
};

}  // namespace reprise
