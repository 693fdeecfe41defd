// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/stats.h"
#include "state/batch.h"
#include "state/ids.h"

namespace reprise {

class StateCache;
class StateIndex;

// Memory for the state after tokens [0, position), waiting to be filled by a step.
struct PendingSnapshot {
  int32_t position = 0;
  StateId state;
};

// Where a lease stands: what every step looks at, together (up to `last` one line of the
// processor's cache).
struct alignas(64) LeaseState {
  std::vector<TokenId> tokens;  // prompt and appended tokens
  std::vector<BlockId> table;
  Extent computed;  // positions whose state it holds, and the rows of K/V for them
  int32_t prompt_tokens = 0;
  StateId state;     // the live one; invalid if the model has no recurrent state
  TokenId last = 0;  // of the tokens, whose end lies far from here
  // Snapshots taken from the pool for the step under way; published or freed by Commit.
  std::vector<PendingSnapshot> pending;
  // Taken for the drafts of the step under way (ReserveDrafts); empty between steps.
  std::vector<StateId> draft_states;
  bool started = false;
  bool poisoned = false;
  uint32_t space = 0;  // NamespaceKey::number of the request

  // Brings near what the next accesses need, for whoever walks many.
  void Prefetch() const {
    __builtin_prefetch(this);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + 64);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + 128);
  }
};

// The right to use a matched prefix and the memory of one running sequence. Move-only; the
// destructor releases everything.
// REQUIRES: does not outlive its cache. Spans are valid until the next call on the cache.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  bool valid() const { return index_ != nullptr; }
  uint64_t id() const { return id_; }  // unique in the life of the cache
  bool started() const { return at_->started; }
  std::span<const TokenId> tokens() const { return at_->tokens; }  // prompt and appended tokens
  TokenId last_token() const { return at_->last; }
  int32_t prompt_tokens() const { return at_->prompt_tokens; }
  int32_t computed() const { return at_->computed.logical; }  // positions whose state it holds
  Extent extent() const { return at_->computed; }  // the same, and the rows that stand for them
  // Block table: block i covers positions [64 i, 64 i + 64). Covers all reserved positions. For
  // models with window K/V only, the ids of blocks that lie wholly before the window are invalid.
  std::span<const BlockId> blocks() const { return at_->table; }
  StateId state() const { return at_->state; }   // invalid if the model has no recurrent state
  uint32_t space() const { return at_->space; }  // NamespaceKey::number of its request
  // Snapshots that the step reserved last is to fill on its way, ascending: positions strictly
  // between computed() and the end of the step. (The state at its end is saved by Commit.)
  std::span<const PendingSnapshot> pending() const { return at_->pending; }
  // Where the step that drafts were reserved for is to leave the recurrent state on its way, too:
  // after the last row that is no draft, then after each draft but the last.
  std::span<const StateId> draft_states() const { return at_->draft_states; }
  bool poisoned() const { return at_->poisoned; }  // a state was not finite
  // Final after Start, but for what was stored (stored_tokens, snapshots_*).
  const ReuseReport& report() const;

  // Brings near what the next accesses need, for whoever walks many leases,
  void Prefetch() const { at_->Prefetch(); }
  // and where its tokens end.
  void PrefetchEnd() const { __builtin_prefetch(at_->tokens.data() + at_->tokens.size(), 1); }

 private:
  friend class StateCache;
  friend class StateIndex;
  Lease(StateIndex* index, LeaseState* at, uint32_t seat, uint64_t id)
      : index_(index), at_(at), seat_(seat), id_(id) {}

  StateIndex* index_ = nullptr;
  LeaseState* at_ = nullptr;  // the part of the index's record that callers see
  uint32_t seat_ = 0;
  uint64_t id_ = 0;
};

// A lease with a step of `now` tokens under way, and as many as `next` to follow.
struct NextRows {
  const Lease* lease;
  int32_t now, next;
};

}  // namespace reprise
