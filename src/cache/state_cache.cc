// SPDX-License-Identifier: Apache-2.0
#include "cache/state_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "cache/index/state_index.h"
#include "cache/store/state_store.h"
#include "cache/tier/tier.h"

namespace reprise {
namespace {

// What one sequence of `context` tokens takes while it runs, and what it leaves behind.
struct SequenceSize {
  size_t kv_bytes = 0;
  size_t copy_bytes = 0;  // of the block that it continues in, while both are there
  size_t state_bytes = 0;
  size_t metadata_bytes = 0;

  size_t running() const { return kv_bytes + state_bytes; }
  size_t stored() const { return kv_bytes + state_bytes + metadata_bytes; }
  size_t least() const { return kv_bytes + copy_bytes + 2 * state_bytes + metadata_bytes; }
};

SequenceSize SizeOf(const StateSpec& spec, const CacheOptions& options) {
  const size_t blocks = (size_t(options.context_tokens) + kBlockTokens - 1) / kBlockTokens;
  SequenceSize size;
  size.kv_bytes = blocks * spec.kv_block_bytes();
  size.copy_bytes = spec.kv_block_bytes();
  size.state_bytes = spec.state_bytes();
  // Token runs, twice (tree and lease), a few nodes and tables.
  size.metadata_bytes = size_t(options.context_tokens) * 4 * sizeof(TokenId) + (64 << 10);
  return size;
}

double MiB(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

Status Validate(const StateSpec& spec, const CacheOptions& options) {
  if (spec.layers.empty()) {
    return InvalidArgument("this model declares no state; there is nothing to cache");
  }
  if (options.context_tokens < 1 || options.sequence_count < 1 || options.snapshot_grid < 1 ||
      options.snapshot_gap < 1 || options.ladder_tokens < 0 || options.entry_count_max < 0 ||
      options.ttl_ms < 0) {
    return InvalidArgument(
        "cache options must not be negative, and at least 1 where a number is "
        "needed (context, sequences, grid, gap)");
  }
  const SequenceSize size = SizeOf(spec, options);
  if (options.budget_bytes < size.least()) {
    return InvalidArgument(fmt::format(
        "a cache budget of {:.1f} MiB cannot hold one sequence of this model: {} tokens of K/V "
        "take "
        "{:.1f} MiB, a running state and a snapshot of it {:.1f} MiB each; give it at least {:.1f} "
        "MiB or shorten the context",
        MiB(options.budget_bytes), options.context_tokens, MiB(size.kv_bytes),
        MiB(size.state_bytes), MiB(size.least())));
  }
  return OkStatus();
}

}  // namespace

size_t LeastBudget(const StateSpec& spec, const CacheOptions& options) {
  return SizeOf(spec, options).least();
}

size_t DefaultBudget(const StateSpec& spec, size_t memory_bytes, const CacheOptions& options) {
  constexpr size_t kEntries = 64;
  const SequenceSize size = SizeOf(spec, options);
  const size_t wish = size_t(options.sequence_count) * size.running() + kEntries * size.stored();
  return std::min(std::max(wish, size.least()), memory_bytes / 4 * 3);
}

StateCache::StateCache() = default;
StateCache::~StateCache() {
  if (index_ != nullptr) index_->CancelMoves();
}

Result<std::unique_ptr<StateCache>> StateCache::Create(const StateSpec& spec,
                                                       const CacheOptions& options,
                                                       DeviceMemory& memory) {
  REPRISE_TRY(Validate(spec, options));
  std::unique_ptr<StateCache> cache(new StateCache());
  StateIndex::Options index_options;
  index_options.spec = spec;
  index_options.cache = options;
  index_options.back = [&self = *cache](std::span<const BlockId> blocks,
                                        std::span<const StateId> states) {
    return self.Back(blocks, states);
  };
  index_options.fills_beside = StateStore::FillsBeside(spec, memory);
  cache->index_ = std::make_unique<StateIndex>(std::move(index_options));
  StateStore::Sizes sizes;
  sizes.block_count = cache->index_->block_capacity();
  sizes.state_count = cache->index_->state_capacity();
  REPRISE_ASSIGN(cache->store_, StateStore::Make(spec, sizes, memory));
  cache->memory_ = &memory;
  cache->least_budget_ = SizeOf(spec, options).least();
  cache->most_budget_ = options.budget_bytes;
  return cache;
}

void StateCache::AttachTier(std::unique_ptr<Tier> tier) {
  CHECK(tier_ == nullptr);
  tier_ = std::move(tier);
  store_->ClearTaken();
  tier_->Open(store_->memory(), *memory_);
  index_->SetTier(tier_.get());
}

size_t StateCache::moves_under_way() const { return index_->moves_under_way(); }

bool StateCache::StoreAll(std::chrono::milliseconds timeout) {
  if (tier_ == nullptr) return true;
  const auto end = std::chrono::steady_clock::now() + timeout;
  index_->WishAll();
  while (index_->wishes() || index_->moves_under_way() > 0) {
    if (std::chrono::steady_clock::now() >= end) return false;
    index_->Hear(tier_->Poll(Tier::When::kAtRest));
    (void)index_->Maintain();
    Begin();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// Lets the store do what the index has decided.
void StateCache::Apply() {
  Actions& actions = index_->actions();
  store_->Apply(actions);
  actions.clear();
}

// ... and the tier. Ends every operation.
void StateCache::Begin() {
  if (!index_->actions().empty()) Apply();
  for (const Move& move : index_->TakeMoves()) tier_->Begin(move);
}

// What was freed so far is free to be used again, or given back for these.
Status StateCache::Back(std::span<const BlockId> blocks, std::span<const StateId> states) {
  Apply();
  const Status backed = store_->Back(blocks, states, ResidentLimit());
  CountResident();
  if (!backed.ok()) ++index_->counters().memory_refused;
  return backed;
}

size_t StateCache::ResidentLimit() const {
  const size_t budget = index_->options().budget_bytes;
  return budget - std::min(budget, index_->bytes_metadata());
}

void StateCache::CountResident() {
  size_t& most = index_->counters().bytes_used_max;
  most = std::max(most, store_->resident_bytes() + index_->bytes_metadata());
}

void StateCache::Announce(TellBlocks told) {
  CHECK(told_ == nullptr);
  told_ = std::move(told);
  index_->Announce();
  Tell();
}

void StateCache::Tell() {
  if (told_ == nullptr) return;
  std::vector<BlockEvent> events = index_->TakeBlockEvents();
  if (!events.empty() && !told_(std::move(events))) index_->AnnounceAgain();
}

void StateCache::SetTime(int64_t now_ms) {
  if (tier_ != nullptr) index_->Hear(tier_->Poll(Tier::When::kBetweenSteps));
  index_->SetTime(now_ms);
  store_->SetTime(now_ms);
  Begin();
  Tell();
}

Lease StateCache::Acquire(const CacheRequest& request) {
  Lease lease = index_->Acquire(request);
  Begin();
  return lease;
}

bool StateCache::LookUp(const Lease& lease, int32_t* tokens_left) {
  return index_->LookUp(lease, tokens_left);
}

std::optional<Awaited> StateCache::FindAwaited(const Lease& lease) {
  const std::optional<Awaited> awaited = index_->FindAwaited(lease);
  Begin();
  return awaited;
}

StartAnswer StateCache::Start(Lease& lease) {
  StartAnswer answer = index_->Start(lease);
  const auto begin = std::chrono::steady_clock::now();
  Begin();
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  if (answer.ready()) {
    index_->NoteRestore(lease,
                        std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  }
  return answer;
}

bool StateCache::Filling(const Lease& lease) {
  return lease.state().valid() && store_->filling(lease.state());
}

void StateCache::AwaitFilled(const Lease& lease, std::chrono::nanoseconds timeout) {
  if (lease.state().valid()) store_->AwaitFilled(lease.state(), timeout);
}

Status StateCache::Reserve(Lease& lease, int32_t token_count) {
  if (lease.state().valid()) {
    const std::optional<int64_t> ns = store_->EndFilling(lease.state());
    if (ns) index_->NoteRestore(lease, *ns);
  }
  const Status status = index_->Reserve(lease, token_count);
  Begin();
  return status;
}

void StateCache::BackAhead(std::span<const NextRows> steps) {
  Units units;
  for (const NextRows& one : steps) {
    const Units more = index_->UnitsBehind(*one.lease, one.now, one.next);
    units.blocks += more.blocks;
    units.states += more.states;
  }
  if (units.blocks == 0 && units.states == 0) return;
  const auto [blocks, states] = index_->NextUnits(units);
  store_->BackAhead(blocks, states, ResidentLimit());
  CountResident();
}

int32_t StateCache::ReserveDrafts(Lease& lease, int32_t token_count, int32_t draft_count) {
  const int32_t reserved = index_->ReserveDrafts(lease, token_count, draft_count);
  Begin();
  return reserved;
}

void StateCache::DropDrafts(Lease& lease) {
  index_->DropDrafts(lease);
  Begin();
}

void StateCache::TokensBehind(const Lease& lease, size_t count,
                              std::vector<TokenId>* tokens) const {
  index_->TokensBehind(lease, count, tokens);
}

void StateCache::Append(Lease& lease, std::span<const TokenId> tokens) {
  index_->Append(lease, tokens);
}

Status StateCache::Commit(Lease& lease, const CommitArgs& args) {
  const Status status = index_->Commit(lease, args);
  Begin();
  return status;
}

Status StateCache::Compact(Lease& lease, int32_t kept, bool alone, const MoveRows& move) {
  const Status status =
      index_->Compact(lease, kept, alone, [&](std::span<const BlockId> from, auto to) {
        Apply();  // what `to` names comes into use
        return move(from, to);
      });
  Begin();
  return status;
}

ReuseReport StateCache::Finish(Lease lease, std::vector<TokenId>* storage) {
  const ReuseReport report = index_->Finish(std::move(lease), storage);
  Begin();
  return report;
}

size_t StateCache::BytesWanted(const Lease& lease) { return index_->BytesWanted(lease); }
size_t StateCache::BytesWantedByRunning() const { return index_->BytesWantedByRunning(); }

size_t StateCache::BytesFree() const { return index_->BytesFree(); }

bool StateCache::GiveWay(size_t bytes) {
  const bool evicted = index_->GiveWay(bytes);
  Apply();
  return store_->GiveBack(SIZE_MAX) || evicted;
}

size_t StateCache::SetBudget(size_t bytes) {
  constexpr size_t kSliceBytes = size_t{64} << 20;  // evicted by one call
  const size_t wanted = std::min(bytes, most_budget_);
  const size_t before = index_->options().budget_bytes;
  const size_t budget = index_->SetBudget(wanted, kSliceBytes);
  Apply();
  if (budget < before) (void)store_->GiveBack(SIZE_MAX);
  return budget;
}

size_t StateCache::resident_bytes() const {
  return store_->resident_bytes() + index_->bytes_metadata();
}

bool StateCache::Maintain() {
  constexpr size_t kGiveBackBytes = 64 << 20;  // per call
  // Pages cost four times the copy that fills them: a pause between two turns is no reason.
  constexpr int64_t kUnusedMs = 600'000;
  bool more = false;
  if (tier_ != nullptr) {
    const Tier::News news = tier_->Poll(Tier::When::kAtRest);
    index_->Hear(news);
    more = news.more;
  }
  more |= index_->Maintain();
  Begin();
  Tell();
  more |= index_->announces_more();
  return store_->GiveBack(kGiveBackBytes, kUnusedMs) || more;
}

int32_t StateCache::Pin(const NamespaceKey& key, std::span<const TokenId> tokens, int64_t pin_ms) {
  return index_->Pin(key, tokens, pin_ms);
}

void StateCache::Reset(const NamespaceKey& key) {
  index_->Reset(&key);
  if (tier_ != nullptr) tier_->Reset(&key);
  Begin();
  Tell();
}

void StateCache::ResetAll() {
  index_->Reset(nullptr);
  if (tier_ != nullptr) tier_->Reset(nullptr);
  Begin();
  Tell();
}

const StateMemory& StateCache::memory() const { return store_->memory(); }
const StateSpec& StateCache::spec() const { return index_->spec(); }
const CacheOptions& StateCache::options() const { return index_->options(); }
CacheStats StateCache::stats() const {
  CacheStats stats = index_->stats();
  if (tier_ != nullptr) tier_->AddTo(&stats);
  return stats;
}
std::string StateCache::Dump() const { return index_->Dump(); }
Status StateCache::CheckInvariants() const { return index_->CheckInvariants(); }
std::vector<TreeNodeView> StateCache::View(const NamespaceKey& key, size_t node_count_max,
                                           std::span<const TokenId> prompt) const {
  return index_->View(key, node_count_max, prompt);
}

Lease::Lease(Lease&& other) noexcept
    : index_(std::exchange(other.index_, nullptr)),
      at_(other.at_),
      seat_(other.seat_),
      id_(other.id_) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    if (index_ != nullptr) index_->Release(seat_, id_);
    index_ = std::exchange(other.index_, nullptr);
    at_ = other.at_;
    seat_ = other.seat_;
    id_ = other.id_;
  }
  return *this;
}

Lease::~Lease() {
  if (index_ != nullptr) index_->Release(seat_, id_);
}

const ReuseReport& Lease::report() const { return index_->record(*this).report; }

}  // namespace reprise
