// SPDX-License-Identifier: Apache-2.0
// StateIndex: rows of a step that may turn out not to be tokens of their lease.
//
// A draft's K/V goes where the next token's would; while it is not committed it lies behind
// computed(), and the next step writes over it. A recurrent state has one place only, so the step
// leaves a state after each row that may be the last one to hold, and Commit goes on from one to
// the next:
//
//   rows           x       d0      d1      d2           x: the token that plain decoding runs
//   the step       T0      T1      T2      live         leaves its states here
//   Commit(1)      live is T0 now; behind it T1, T2 and the last one
//   Commit(1)      d0 was right: live is T1, T0 is free
//   DropDrafts     the others are free
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"

namespace reprise {
namespace {

// Of the budget, what drafts may take at the cost of what is cached.
constexpr size_t kDraftPart = 16;

}  // namespace

int32_t StateIndex::ReserveDrafts(const Lease& lease, int32_t token_count, int32_t draft_count) {
  LeaseRecord& record = RecordOf(lease);
  CHECK(record.started && record.draft_states.empty() && token_count > 0);
  // Who is to leave a snapshot soon is at its prompt: drafts are for replies.
  const bool plans =
      !record.planned.empty() && record.planned.back().position > record.computed.logical;
  if (plans || !record.pending.empty() || draft_count <= 0) return 0;
  int32_t count = TakeDraftBlocks(record, token_count, draft_count);
  if (record.state.valid()) count = TakeDraftStates(record, count);
  Settle();
  return count;
}

// Returns for how many there are.
int32_t StateIndex::TakeDraftBlocks(LeaseRecord& record, int32_t token_count, int32_t draft_count) {
  if (!has_kv()) return draft_count;
  const int32_t end = record.computed.physical + token_count + draft_count;
  const int32_t limit = std::min(end, options_.cache.context_tokens);
  int32_t count = std::max(0, limit - record.computed.physical - token_count);
  const BlockNeed need = NeedOf(record, token_count + count);
  CHECK(!need.copy);
  if (need.more > 0) {
    if (MakeRoom({.blocks = need.more}, 0, EvictReason::kRunning, false)) {
      for (uint32_t i = 0; i < need.more; ++i) {
        record.table.push_back(blocks_.Allocate(record.owner));
      }
    } else {
      count = std::min(count, record.rows_free(options_.block_tokens) - token_count);
    }
  }
  // What was taken ahead has rows now.
  const int32_t left = record.rows_free(options_.block_tokens) - token_count - count;
  record.ahead = record.ahead && left >= options_.block_tokens;
  return count;
}

// What is free is free; for more than a part of the budget nothing that is cached goes.
int32_t StateIndex::TakeDraftStates(LeaseRecord& record, int32_t draft_count) {
  const size_t part = options_.cache.budget_bytes / kDraftPart;
  while (static_cast<int32_t>(record.draft_states.size()) < draft_count) {
    const bool fits = bytes_used() + state_bytes_ <= options_.cache.budget_bytes &&
                      !states_.full() && Backed({.states = 1});
    const bool small = (static_cast<size_t>(draft_states_) + 1) * state_bytes_ <= part;
    if (!fits && !(small && MakeRoom({.states = 1}, 0, EvictReason::kRunning, false))) break;
    record.draft_states.push_back(AllocateState());
    ++draft_states_;
  }
  record.ran_drafts = false;
  return static_cast<int32_t>(record.draft_states.size());
}

// The lease was committed up to the next state that the step has left. The first time, all drafts
// are still to come, so that where the step ended becomes the last of the states behind it.
void StateIndex::PassDraft(LeaseRecord& record) {
  std::vector<StateId>& states = record.draft_states;
  std::swap(record.state, states.front());
  std::rotate(states.begin(), states.begin() + 1, states.end());
  if (!std::exchange(record.ran_drafts, true)) return;
  FreeState(states.back());
  states.pop_back();
  --draft_states_;
}

void StateIndex::FreeDrafts(LeaseRecord& record) {
  for (const StateId state : record.draft_states) FreeState(state);
  draft_states_ -= static_cast<int32_t>(record.draft_states.size());
  record.draft_states.clear();
}

void StateIndex::DropDrafts(const Lease& lease) { FreeDrafts(RecordOf(lease)); }

void StateIndex::TokensBehind(const Lease& lease, size_t count,
                              std::vector<TokenId>* tokens) const {
  const LeaseRecord& one = record(lease);
  CHECK(one.started);
  if (!one.read) return;
  RadixTree::Cursor at = tree_.Resolve(one.cursor);
  auto own = std::span<const TokenId>(one.tokens).subspan(static_cast<size_t>(one.published));
  for (;;) {
    const auto run = tree_.run(at.node).subspan(size_t(at.position - tree_.begin(at.node)));
    const size_t known = std::min(run.size(), own.size());
    if (!std::equal(own.begin(), own.begin() + static_cast<ptrdiff_t>(known), run.begin())) return;
    own = own.subspan(known);
    const auto more = run.subspan(known).first(std::min(count, run.size() - known));
    tokens->insert(tokens->end(), more.begin(), more.end());
    count -= more.size();
    if (count == 0) return;
    // Where nothing says which way to go, the child that was added last.
    const NodeId next = own.empty() ? tree_.first_child(at.node) : tree_.child(at.node, own[0]);
    if (!next.valid()) return;
    at = {next, tree_.begin(next)};
  }
}

}  // namespace reprise
