// SPDX-License-Identifier: Apache-2.0
// Proves the law of the house on ids: whatever was matched, copied, evicted, refused or cancelled
// in between, the state a lease starts from is the state of exactly its own tokens.
//
// The memory here is fake: a row of a block holds the hash of all tokens up to it, a state
// the hash of all tokens so far. Random schedules run on every mix of state kinds, with
// large and tiny budgets and with allocations that fail at random; after each operation every
// invariant is checked, and every lookup is compared with a naive record of what was published.
#include "cache/index/state_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/rng.h"

namespace reprise {
namespace {

constexpr int32_t kTokens = 4;  // per block

StateSpec MakeSpec(bool full, int window, bool recurrent) {
  // 64 KiB for a block of 4 tokens, 128 KiB for a state: metadata is small beside them.
  StateSpec spec;
  spec.token_cost = 1000;
  spec.token_cost_per_position = 1;
  const StateTensor kv{"kv", {16, 256}, DType::kF32};
  if (full) spec.layers.push_back({0, StateKind::kFullKv, 0, {kv}});
  if (window > 0) spec.layers.push_back({1, StateKind::kWindowKv, window, {kv}});
  if (recurrent) {
    spec.layers.push_back({2, StateKind::kRecurrent, 0, {{"s", {128, 256}, DType::kF32}}});
  }
  return spec;
}

struct Mix {
  const char* name;
  bool full;
  int window;
  bool recurrent;
  size_t budget_kib;
  bool faults;
};

struct Running {
  Lease lease;
  std::string path;  // namespace, then tokens
};

class Schedule {
 public:
  Schedule(const Mix& mix, uint64_t seed) : mix_(mix), rng_(seed) {
    StateIndex::Options options;
    options.spec = MakeSpec(mix.full, mix.window, mix.recurrent);
    options.cache.budget_bytes = mix.budget_kib << 10;
    options.cache.sequence_count = 6;
    // Beside a context of 4096 tokens a tiny budget allows few nodes, beside one of 80 many.
    options.cache.context_tokens = rng_.Below(2) == 0 ? 80 : 4096;
    options.cache.snapshot_gap = 3;
    options.cache.ladder_tokens = 16;
    options.cache.ttl_ms = rng_.Below(3) == 0 ? 2000 : 0;
    options.cache.entry_count_max = rng_.Below(4) == 0 ? 6 : 0;
    options.block_tokens = kTokens;
    if (mix.faults) {  // some calls in a row, so that giving everything else up does not help
      options.back = [this](auto, auto) {
        if (faults_ == 0 && rng_.Below(8) == 0) faults_ = 1 + rng_.Below(64);
        if (faults_ == 0) return OkStatus();
        --faults_;
        return ResourceExhausted("the device has none");
      };
    }
    index_ = std::make_unique<StateIndex>(std::move(options));
  }

  void Step() {
    switch (rng_.Below(16)) {
      case 0:
      case 1:
        Acquire();
        break;
      case 2:
      case 3:
        Start();
        break;
      case 13:
        End();
        break;
      case 14:
        Rare();
        break;
      case 15:
        if (!waiting_.empty()) {
          const auto awaited = index_->FindAwaited(Pick(waiting_).lease);
          EXPECT_TRUE(!awaited || awaited->position > 0);
        }
        break;
      default:
        Compute();
    }
    Apply();
  }

  void Check() {
    const Status status = index_->CheckInvariants();
    ASSERT_TRUE(status.ok()) << status.message() << "\n" << index_->Dump();
  }

  size_t node_count() const { return index_->stats().nodes; }

  void Drain() {
    waiting_.clear();
    running_.clear();
    index_->Reset(nullptr);
    Apply();
    Check();
    const CacheStats stats = index_->stats();
    EXPECT_EQ(stats.bytes_leased + stats.bytes_cached, 0u);
    EXPECT_EQ(stats.nodes + stats.namespaces + stats.entries, 0u);
  }

 private:
  static uint64_t HashOf(const std::string& path, size_t token_count) {
    uint64_t hash = 0;  // no tokens: a cleared state
    for (size_t i = 1; i <= token_count; ++i) hash = Mix64(hash + 1 + 256 * path[0] + path[i]);
    return hash;
  }
  static std::vector<TokenId> TokensOf(const std::string& path) {
    return {path.begin() + 1, path.end()};
  }
  Running& Pick(std::vector<Running>& list) { return list[rng_.Below(list.size())]; }
  bool evicts() const { return mix_.budget_kib < 100'000; }

  // A prompt that continues, edits or repeats an earlier one more often than not.
  std::string RandomPath() {
    std::string path(1, static_cast<char>('a' + rng_.Below(2)));
    if (!past_.empty() && rng_.Below(6) != 0) {
      const std::string& old = past_[rng_.Below(past_.size())];
      path = rng_.Below(3) == 0 ? old : old.substr(0, 1 + rng_.Below(old.size()));
    }
    const size_t extra = rng_.Below(14) + (path.size() < 2 ? 1 : 0);
    for (size_t i = 0; i < extra && path.size() < 60; ++i) {
      path.push_back(static_cast<char>(rng_.Below(3)));
    }
    return path;
  }

  void Acquire() {
    if (waiting_.size() > 4) return;
    const std::string path = RandomPath();
    const NamespaceKey key{path[0] == 'a' ? "model" : "other", "tenant"};
    const auto tokens = TokensOf(path);
    std::vector<Boundary> boundaries;
    for (int32_t p = 0; (p += 1 + int32_t(rng_.Below(9))) <= int32_t(tokens.size());) {
      boundaries.push_back({p, static_cast<BoundaryKind>(rng_.Below(3))});
    }
    CacheRequest request;
    request.key = &key;
    request.tokens = tokens;
    request.boundaries = boundaries;
    if (rng_.Below(8) == 0) request.pin_ms = 500;
    if (rng_.Below(8) == 0) request.min_cache_tokens = 5;
    request.read = rng_.Below(16) != 0;
    request.write = rng_.Below(16) != 0;
    request.idle = rng_.Below(8) == 0;
    waiting_.push_back({index_->Acquire(request), path});
    if (past_.size() > 40) past_.erase(past_.begin() + rng_.Below(past_.size()));
    past_.push_back(path);
  }

  // The deepest prefix that a naive record says can be served.
  int32_t Expected(const LeaseRecord& record, const std::string& path) const {
    if (!record.read) return 0;
    int32_t position = record.limit();
    while (position > 0 && !published_.contains(path.substr(0, 1 + position))) --position;
    return position >= record.min_cache_tokens ? position : 0;
  }

  void Start() {
    if (waiting_.empty()) return;
    const size_t i = rng_.Below(waiting_.size());
    Running& r = waiting_[i];
    const int32_t expected = Expected(index_->record(r.lease), r.path);
    if (!index_->Start(r.lease).ready()) return;
    Apply();
    const LeaseRecord& record = index_->record(r.lease);
    // Snapshots are recorded as they come and go, so the record is exact; K/V tails only as long
    // as nothing is evicted. A window may be gone although the snapshot is there.
    const bool exact = mix_.window == 0 ? mix_.recurrent || !evicts() : false;
    if (exact && !dropped_ && index_->options().ttl_ms == 0) {
      ASSERT_EQ(record.computed.logical, expected) << index_->Dump();
    }
    ASSERT_LE(record.computed.logical, expected);
    ASSERT_EQ(record.report.used_tokens, record.computed.logical);
    CheckState(r);
    running_.push_back(std::move(r));
    waiting_.erase(waiting_.begin() + i);
  }

  void CheckState(const Running& r) {
    const LeaseRecord& record = index_->record(r.lease);
    const int32_t window = mix_.full ? 0 : mix_.window;
    if (mix_.full || mix_.window > 0) {
      const int32_t first = window > 0 ? std::max(0, record.computed.logical - window + 1) : 0;
      for (int32_t p = first; p < record.computed.logical; ++p) {
        const BlockId block = record.table[p / kTokens];
        ASSERT_TRUE(block.valid());
        ASSERT_EQ(rows_[block.value * kTokens + p % kTokens], HashOf(r.path, p + 1))
            << "position " << p << " of lease " << record.id;
      }
    }
    if (mix_.recurrent) {
      ASSERT_EQ(states_[record.state.value], HashOf(r.path, record.computed.logical));
    }
  }

  void Compute() {
    if (running_.empty()) return;
    const size_t i = rng_.Below(running_.size());
    Running& r = running_[i];
    const LeaseRecord& record = index_->record(r.lease);
    if (record.computed.logical == int32_t(record.tokens.size())) {
      if (record.tokens.size() > 70) return;
      const TokenId token = static_cast<TokenId>(rng_.Below(3));
      index_->Append(r.lease, std::span(&token, 1));
      r.path.push_back(static_cast<char>(token));
    }
    CheckState(r);
    const int32_t left = int32_t(record.tokens.size()) - record.computed.logical;
    int32_t count = std::min(left, 1 + int32_t(rng_.Below(12)));
    if (!index_->Reserve(r.lease, count).ok()) return;
    Apply();
    CommitArgs args{count, rng_.Below(200) != 0, rng_.Below(100) != 0};
    for (int32_t p = record.computed.logical; p < record.computed.logical + count; ++p) {
      if (record.table.empty()) break;
      const uint64_t row = args.finite ? HashOf(r.path, p + 1) : 0;
      rows_[record.table[p / kTokens].value * kTokens + p % kTokens] = row;
    }
    for (const PendingSnapshot& one : record.pending) {
      ASSERT_LT(record.computed.logical, one.position);
      ASSERT_LT(one.position, record.computed.logical + count);
      states_[one.state.value] = HashOf(r.path, one.position);
    }
    if (mix_.recurrent) {
      states_[record.state.value] =
          args.finite ? HashOf(r.path, record.computed.logical + count) : 0;
    }
    const std::vector<PendingSnapshot> pending = record.pending;
    committing_ = &r;
    const bool ok = index_->Commit(r.lease, args).ok();
    Apply();
    committing_ = nullptr;
    // Pending snapshots that were not freed (or taken for something else) are entries now.
    for (const PendingSnapshot& one : pending) {
      if (!states_.contains(one.state.value)) continue;
      if (snapshot_paths_.contains(one.state.value)) continue;
      const std::string path = r.path.substr(0, 1 + one.position);
      snapshot_paths_[one.state.value] = path;
      ASSERT_TRUE(published_.insert(path).second);
    }
    ASSERT_EQ(ok, !record.poisoned);
    if (!ok) {
      running_.erase(running_.begin() + i);
    } else if (!mix_.recurrent && record.may_publish() &&
               record.prompt_tokens >= record.min_cache_tokens) {
      NotePublished(r.path, record.published);
    }
  }

  void NoteSnapshot(uint32_t state, const std::string& path) {
    ASSERT_EQ(states_[state], HashOf(path, path.size() - 1)) << "published what it was not";
    ASSERT_TRUE(published_.insert(path).second);
    snapshot_paths_[state] = path;
  }

  void NotePublished(const std::string& path, int32_t upto) {
    for (int32_t p = 1; p <= upto; ++p) published_.insert(path.substr(0, 1 + p));
  }

  void End() {
    if (running_.empty()) return;
    const size_t i = rng_.Below(running_.size());
    Running r = std::move(running_[i]);
    running_.erase(running_.begin() + i);
    if (rng_.Below(4) == 0) return;  // cancelled
    const LeaseRecord& record = index_->record(r.lease);
    const bool publishes =
        !mix_.recurrent && record.may_publish() && record.prompt_tokens >= record.min_cache_tokens;
    if (publishes) NotePublished(r.path, record.computed.logical);
    if (r.path.size() > 2 && past_.size() < 60) past_.push_back(r.path);
    const int32_t computed = record.computed.logical;
    const uint32_t live = record.state.value;
    index_->Finish(std::move(r.lease));
    Apply();
    // The live state was freed, or it is a snapshot now.
    if (states_.contains(live)) NoteSnapshot(live, r.path.substr(0, 1 + computed));
  }

  void Rare() {
    now_ms_ += int64_t(rng_.Below(300));
    index_->SetTime(now_ms_);
    const uint64_t what = rng_.Below(20);
    if (what == 0) {
      const NamespaceKey key{rng_.Below(2) == 0 ? "model" : "other", "tenant"};
      index_->Reset(&key);
      dropped_ = dropped_ || !mix_.recurrent;
    } else if (what < 4 && !past_.empty()) {
      const std::string& path = past_[rng_.Below(past_.size())];
      const NamespaceKey key{path[0] == 'a' ? "model" : "other", "tenant"};
      index_->Pin(key, TokensOf(path), rng_.Below(3) == 0 ? 0 : 400);
    } else if (what < 12) {
      const size_t before = index_->stats().entries;
      index_->Maintain();
      dropped_ = dropped_ || (!mix_.recurrent && index_->stats().entries < before);
    }
    if (index_->options().entry_count_max > 0 && !mix_.recurrent) dropped_ = true;
  }

  // The store, with hashes for bytes. Also keeps the naive record of snapshots.
  void Apply() {
    for (const Action& a : index_->actions()) {
      switch (a.verb) {
        case Action::Verb::kTakeBlock:
          rows_.resize(std::max<size_t>(rows_.size(), (a.to + 1) * kTokens));
          ASSERT_TRUE(used_blocks_.insert(a.to).second);
          for (int i = 0; i < kTokens; ++i) rows_[a.to * kTokens + i] = rng_.Next();
          break;
        case Action::Verb::kFreeBlock:
          ASSERT_EQ(used_blocks_.erase(a.from), 1u);
          for (int i = 0; i < kTokens; ++i) rows_[a.from * kTokens + i] = rng_.Next();
          break;
        case Action::Verb::kCopyBlock:
          std::copy_n(&rows_[a.from * kTokens], kTokens, &rows_[a.to * kTokens]);
          break;
        case Action::Verb::kTakeState:
          ASSERT_TRUE(states_.emplace(a.to, rng_.Next()).second);
          break;
        case Action::Verb::kFreeState:
          ASSERT_EQ(states_.erase(a.from), 1u);
          published_.erase(snapshot_paths_[a.from]);
          snapshot_paths_.erase(a.from);
          break;
        case Action::Verb::kCopyState:
          ASSERT_TRUE(states_.contains(a.from) && states_.contains(a.to));
          states_[a.to] = states_[a.from];
          if (committing_ != nullptr) {
            const int32_t at = index_->record(committing_->lease).computed.logical;
            NoteSnapshot(a.to, committing_->path.substr(0, 1 + at));
          }
          break;
        case Action::Verb::kClearState:
          states_[a.to] = 0;
          break;
      }
    }
    index_->actions().clear();
  }

  Mix mix_;
  Rng rng_;
  uint64_t faults_ = 0;  // so many more
  std::unique_ptr<StateIndex> index_;
  std::vector<std::string> past_;
  std::set<std::string> published_;  // prefixes with a snapshot; without recurrence, all published
  bool dropped_ = false;             // K/V went without the naive record hearing of it
  std::vector<Running> waiting_;
  std::vector<Running> running_;
  Running* committing_ = nullptr;
  int64_t now_ms_ = 0;
  std::vector<uint64_t> rows_;
  std::set<uint32_t> used_blocks_;
  std::map<uint32_t, uint64_t> states_;
  std::map<uint32_t, std::string> snapshot_paths_;
};

class StateIndexLaw : public testing::TestWithParam<Mix> {};

TEST_P(StateIndexLaw, HoldsUnderRandomSchedules) {
  const Mix& mix = GetParam();
  constexpr int kSeeds = 20, kSteps = 5000;  // 10 mixes: one million operations
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(mix, seed);
    for (int i = 0; i < kSteps; ++i) {
      schedule.Step();
      if (schedule.node_count() < 150 || i % 8 == 0) schedule.Check();
      ASSERT_FALSE(HasFailure()) << "at step " << i;
    }
    schedule.Drain();
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes, StateIndexLaw,
                         testing::Values(Mix{"full_large", true, 0, false, 1 << 20, false},
                                         Mix{"full_tiny", true, 0, false, 3000, false},
                                         Mix{"full_tiny_faults", true, 0, false, 3000, true},
                                         Mix{"hybrid_large", true, 0, true, 1 << 20, false},
                                         Mix{"hybrid_tiny", true, 0, true, 5000, false},
                                         Mix{"hybrid_tiny_faults", true, 0, true, 4000, true},
                                         Mix{"recurrent_tiny", false, 0, true, 2000, true},
                                         Mix{"window_tiny", false, 9, false, 3000, true},
                                         Mix{"window_recurrent_large", false, 9, true, 1 << 20,
                                             false},
                                         Mix{"window_recurrent_tiny", false, 9, true, 4000, true}),
                         [](const auto& mix) { return std::string(mix.param.name); });

}  // namespace
}  // namespace reprise
