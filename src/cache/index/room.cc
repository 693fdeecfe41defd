// SPDX-License-Identifier: Apache-2.0
// StateIndex: what running requests have, and what one more would take.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"

namespace reprise {
namespace {

// Loops over leases ask for what they need of those that come so much later.
constexpr size_t kNear = 8;

size_t BlocksBefore(int32_t position, int32_t block_tokens) {
  return static_cast<size_t>(position / block_tokens);
}

}  // namespace

bool StateIndex::GiveWay(size_t bytes) {
  const size_t before = bytes_used();
  while (bytes_used() + bytes > before &&
         EvictOne(EvictReason::kRunning, std::numeric_limits<double>::infinity(), PinsGo::kAll)) {
  }
  Settle();
  return bytes_used() < before;
}

size_t StateIndex::SetBudget(size_t bytes, size_t slice) {
  const size_t before = bytes_used();
  constexpr double kAnyKey = std::numeric_limits<double>::infinity();
  while (bytes_used() > bytes && bytes_used() + slice > before &&
         (EvictOne(EvictReason::kRunning, kAnyKey, PinsGo::kAll) || PurgeSomeGhosts())) {
  }
  options_.cache.budget_bytes = std::max(bytes, bytes_used());
  Settle();
  return options_.cache.budget_bytes;
}

// Up to the end of what is known and one block more; with a window, without what lies before it.
size_t StateIndex::BlocksNeeded(const LeaseRecord& r) const {
  const int32_t tokens = options_.block_tokens;
  const auto end =
      static_cast<int32_t>(r.tokens.size()) - (r.computed.logical - r.computed.physical);
  const size_t needed = BlocksBefore(end, tokens) + 2 - BlocksBefore(kv_->FirstNeeded(end), tokens);
  if (!r.canonical || r.kept_tokens == 0) return needed;
  // What the tree shares stays there when it is compacted: what is kept moves to blocks beside it.
  return needed + BlocksBefore(r.kept_tokens + tokens - 1, tokens);
}

size_t StateIndex::BytesWanted(const Lease& lease) {
  LeaseRecord& r = RecordOf(lease);
  CHECK(!r.started);
  if (!has_kv()) return state_bytes_;
  size_t held = 0;
  if (const MatchResult match = Match(r); match.usable > 0) {
    std::vector<BlockId> table;
    kv_->Collect(match.path, match.usable, &table);
    held = blocks_.CountLeased(table);
  }
  const size_t needed = BlocksNeeded(r);
  return state_bytes_ + (needed - std::min(needed, held)) * block_bytes_;
}

size_t StateIndex::BytesWantedByRunning() const {
  if (!has_kv()) return 0;
  size_t blocks = 0;
  const auto& records = flights_.records();
  for (size_t i = 0; i < records.size(); ++i) {
    if (i + kNear < records.size()) records[i + kNear].Prefetch();
    const LeaseRecord& r = records[i];
    if (!r.started || r.idle || r.load) continue;
    const size_t gone = BlocksBefore(kv_->FirstNeeded(r.computed.physical), options_.block_tokens);
    const size_t needed = BlocksNeeded(r), held = r.table.size() - std::min(r.table.size(), gone);
    blocks += needed - std::min(needed, held);
  }
  return blocks * block_bytes_;
}

// Blocks of its own are filled where they are, the others are replaced.
Status StateIndex::Compact(const Lease& lease, int32_t kept, bool alone,
                           const StateCache::MoveRows& move) {
  LeaseRecord& r = RecordOf(lease);
  CHECK(r.started && kept > 0 && kept < r.computed.physical);
  CHECK(options_.spec.bytes_per_token(StateKind::kFullKv) > 0);
  const auto tokens = static_cast<size_t>(options_.block_tokens);
  const size_t count = (static_cast<size_t>(kept) + tokens - 1) / tokens;
  const auto shared = [this](BlockId block) {
    return blocks_.tree_refs(block) > 0 || blocks_.lease_refs(block) > 1;
  };
  const auto missing = [&] {
    return static_cast<uint32_t>(std::count_if(r.table.begin(), r.table.begin() + count, shared));
  };
  FreePending(r);
  refusal_ = OkStatus();
  const auto fits = [&] {
    const uint32_t more = missing();
    if (more == 0) return true;
    return bytes_used() + more * block_bytes_ <= options_.cache.budget_bytes &&
           blocks_.used_count() + size_t{more} <= blocks_.capacity() && Backed({.blocks = more});
  };
  constexpr double kAnyKey = std::numeric_limits<double>::infinity();
  while (!fits() && (EvictOne(EvictReason::kRunning, kAnyKey, PinsGo::kAll) || PurgeSomeGhosts())) {
  }
  if (!fits() && alone) {
    // What is stored by now is what the lease holds itself: the tree gives it up. Records in lower
    // tiers stay, and who asks for the prompt again is told that it had to make room.
    CancelMovesOf(r.root);
    const std::vector<NodeId> nodes = tree_.NodesBelow(r.root);
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) kind_->DropAll(*node);
  }
  if (!fits()) {
    return NoRoom(
        "running requests leave no room to compact the state of one of them; run "
        "fewer at a time or raise the budget");
  }
  std::vector<BlockId> to(r.table.begin(), r.table.begin() + count);
  for (BlockId& block : to) {
    if (shared(block)) block = blocks_.Allocate(r.owner);
  }
  const Status moved = move(r.table, to);
  // Whichever of the two tables is not the lease's any more goes, but for what both have.
  std::vector<BlockId> gone = to;
  if (moved.ok()) gone.swap(r.table);
  for (size_t i = 0; i < gone.size(); ++i) {
    if (i >= r.table.size() || gone[i] != r.table[i]) blocks_.UnrefLease(gone[i]);
  }
  if (!moved.ok()) return moved;
  ++stats_.compactions;
  stats_.tokens_left_out += static_cast<uint64_t>(r.computed.physical - kept);
  stats_.bytes_left_out += (gone.size() - count) * block_bytes_;
  r.computed.physical = kept;
  r.shared_blocks = 0;
  r.ahead = false;
  r.canonical = false;
  r.planned.clear();
  UnparkAll();
  Settle();
  return OkStatus();
}

}  // namespace reprise
