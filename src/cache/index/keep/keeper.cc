// SPDX-License-Identifier: Apache-2.0
// Keeper: room, and whose it is.
#include "cache/index/keep/keeper.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace reprise {
namespace {

constexpr double kAnyKey = std::numeric_limits<double>::infinity();

uint32_t Capacity(size_t budget, size_t unit_bytes) {
  if (unit_bytes == 0) return 0;
  return static_cast<uint32_t>(std::min<size_t>(budget / unit_bytes, UINT32_MAX - 1));
}

size_t BlockBytes(const StateSpec& spec, int32_t block_tokens) {
  return spec.kv_block_bytes() * size_t(block_tokens) / kBlockTokens;
}

// Arrays that are indexed by node keep the size they once had. So that this never takes the room of
// a request that runs alone, as many nodes (and snapshots) are allowed as fit beside one.
size_t NodeCountMax(const Keeper::Options& options) {
  // With its entry, marks and pin, in arrays that all double at the same node: up to 820 (a node
  // 160, its place among children 64, K/V 112, marks 80, entry 230, by node in four more 170).
  constexpr size_t kNodeBytes = 1024;
  constexpr size_t kNodesMin = 64;
  const auto context = static_cast<size_t>(options.cache.context_tokens);
  const size_t blocks = context / static_cast<size_t>(options.block_tokens) + 2;
  const size_t alone = blocks * BlockBytes(options.spec, options.block_tokens) +
                       2 * options.spec.state_bytes() + 4 * context * sizeof(TokenId);
  const size_t budget = options.cache.budget_bytes;
  return std::max(kNodesMin, (budget - std::min(budget, alone)) / kNodeBytes);
}

}  // namespace

Keeper::Keeper(Options options, RadixTree::Observer* observer)
    : options_(std::move(options)),
      block_bytes_(BlockBytes(options_.spec, options_.block_tokens)),
      state_bytes_(options_.spec.state_bytes()),
      cost_(options_.spec),
      tree_(observer),
      blocks_(Capacity(options_.cache.budget_bytes, block_bytes_), &actions_),
      node_count_max_(NodeCountMax(options_)),
      states_(static_cast<uint32_t>(
          std::min<size_t>(Capacity(options_.cache.budget_bytes, state_bytes_),
                           node_count_max_ + size_t(options_.cache.sequence_count)))),
      kv_(Kv::Make(options_.spec, &tree_, &blocks_, options_.block_tokens)),
      recurrent_(Recurrent::Make(options_.spec, &tree_)),
      order_(options_.cache.ttl_ms > 0),
      guard_(options_.cache.budget_bytes),
      pins_(&tree_, [this](NodeId node, bool below) { return HeldByPins(node, below); }),
      fresh_(&tree_, options_.cache.ttl_ms > 0 && recurrent_ == nullptr),
      records_(&tree_, options_.block_tokens) {
  if (!options_.policy) options_.policy = std::make_unique<CostPerBytePolicy>();
  if (kv_) components_.push_back(kv_.get());
  if (recurrent_) components_.push_back(recurrent_.get());
}

size_t Keeper::bytes_used() const {
  return blocks_.used_count() * block_bytes_ + states_.used_count() * state_bytes_ +
         bytes_metadata();
}

size_t Keeper::bytes_metadata() const {
  size_t components = 0;
  for (const Component* component : components_) components += component->bytes();
  return tree_.bytes() + components + order_.bytes() + blocks_.bytes() + states_.bytes() +
         tails_.bytes() + parked_.capacity() * sizeof(EntryId) + fresh_.bytes() +
         pins_.bytes_metadata() + records_.bytes() + (announcer_ ? announcer_->bytes() : 0) +
         BytesBeside();
}

size_t Keeper::BytesFree() const {
  const size_t taken = blocks_.leased_count() * block_bytes_ +
                       size_t(live_states_ + draft_states_) * state_bytes_ + bytes_metadata();
  return options_.cache.budget_bytes - std::min(options_.cache.budget_bytes, taken);
}

// Half of what is remembered only for reports. Returns true if that freed something.
bool Keeper::PurgeSomeGhosts() {
  const size_t before = tree_.ghost_token_count();
  tree_.PurgeGhosts(before / 2);
  return tree_.ghost_token_count() < before;
}

// For running requests: everything that is only cached may go; pinned entries beyond the share of
// their tenant, then the others, last (for idle work: not at all).
bool Keeper::MakeRoom(const Units& units, size_t metadata, EvictReason why, bool even_pinned) {
  const size_t bytes = units.blocks * block_bytes_ + units.states * state_bytes_ + metadata;
  const Claiming claiming(&claim_, {claim_.owner, bytes, 0});
  const PinsGo pins = even_pinned ? PinsGo::kBeyondShare : PinsGo::kNone;
  refusal_ = OkStatus();
  while (bytes_used() + bytes > options_.cache.budget_bytes ||
         blocks_.used_count() + size_t{units.blocks} > blocks_.capacity() ||
         states_.used_count() + size_t{units.states} > states_.capacity()) {
    if (EvictOne(why, kAnyKey, pins) || PurgeSomeGhosts()) continue;
    if (!even_pinned) return false;
    if (!GiveUpAhead() && !EvictOne(why, kAnyKey, PinsGo::kAll) && !ForgetOldestRecord() &&
        !CancelOneMove()) {
      return false;
    }
  }
  while (!Backed(units)) {
    if (EvictOne(why, kAnyKey, pins)) continue;
    if (!even_pinned) return false;
    if (!GiveUpAhead() && !EvictOne(why, kAnyKey, PinsGo::kAll) && !CancelOneMove()) return false;
  }
  return true;
}

// Whether the device has memory for the units that would be taken next: the budget may be more than
// others have left of it.
bool Keeper::Backed(const Units& units) {
  if (!options_.back || (units.blocks == 0 && units.states == 0)) return true;
  refusal_ = options_.back(blocks_.Next(units.blocks), states_.Next(units.states));
  return refusal_.ok();
}

// Why MakeRoom found none: `sentence`, or what the device said.
Status Keeper::NoRoom(const std::string& sentence) const {
  if (refusal_.ok()) return ResourceExhausted(sentence);
  return ResourceExhausted(refusal_.message() +
                           ", and running requests hold the rest; run fewer at a time, shorten the "
                           "prompt or lower the budget");
}

// What this owner has cached, with what it is about to.
size_t Keeper::CachedBytesOf(uint32_t owner) const {
  const size_t snapshots = owner < snapshots_of_.size() ? snapshots_of_[owner] : 0;
  return blocks_.cached_count(owner) * block_bytes_ + snapshots * state_bytes_ +
         (owner == claim_.owner ? claim_.cached : 0);
}

// The owner's share of what running requests leave, what they are about to take taken off.
size_t Keeper::ShareOf(uint32_t owner) const {
  const size_t free = BytesFree();
  return tenants_.ShareOf(owner, free - std::min(free, claim_.running), [this](uint32_t other) {
    return other == claim_.owner || CachedBytesOf(other) > 0;
  });
}

// Those that have more than their share: at their cost room is made.
Tenants::Mask Keeper::OverShare() const {
  if (tenants_.size() <= 1) return Tenants::kAll;
  const size_t free = BytesFree(), pool = free - std::min(free, claim_.running);
  std::array<size_t, Tenants::kOwnersMax> bytes{};
  for (uint32_t owner = 0; owner < tenants_.size(); ++owner) bytes[owner] = CachedBytesOf(owner);
  return tenants_.OverShare(bytes, claim_.owner, pool);
}

// For a snapshot: only what is worth less than itself; or, as long as its tenant has less than its
// share, what others have above theirs.
bool Keeper::MakeRoomForSnapshot(double key, bool claims_share) {
  const Claiming claiming(&claim_, {claim_.owner, 0, state_bytes_});
  while (bytes_used() + state_bytes_ > options_.cache.budget_bytes || states_.full() ||
         !Backed({.states = 1})) {
    const bool due = claims_share && (OverShare() >> claim_.owner & 1) == 0;
    const bool made = due ? EvictOne(EvictReason::kSnapshot, kAnyKey, PinsGo::kBeyondShare)
                          : EvictOne(EvictReason::kSnapshot, key, PinsGo::kNone);
    if (!made && !GiveUpAhead()) return false;
  }
  return true;
}

size_t Keeper::LadderBytesMax() const {
  return static_cast<size_t>(static_cast<double>(options_.cache.budget_bytes) *
                             options_.ladder_share);
}

// For a rung: free memory within the ladders' share, or that of older rungs.
bool Keeper::MakeRoomForRung(double key) {
  while ((rung_count_ + 1) * state_bytes_ > LadderBytesMax()) {
    if (!EvictOne(EvictReason::kSnapshot, key, PinsGo::kNone)) return false;
  }
  return MakeRoomForSnapshot(key, false);
}

// A state that becomes, or was to become, a snapshot for this reason.
StateId Keeper::AllocateSnapshot(SnapshotReason reason) {
  if (reason == SnapshotReason::kEdit) ++rung_count_;
  return AllocateState();
}

void Keeper::FreeSnapshot(StateId state, SnapshotReason reason) {
  if (reason == SnapshotReason::kEdit) --rung_count_;
  FreeState(state);
}

StateId Keeper::AllocateState() {
  const StateId state = states_.Allocate();
  actions_.push_back({.verb = Action::Verb::kTakeState, .to = state.value});
  return state;
}

void Keeper::FreeState(StateId state) {
  states_.Free(state);
  actions_.push_back({.verb = Action::Verb::kFreeState, .from = state.value});
}

// What is kept at the node is more, or less, than before.
void Keeper::NoteChange(NodeId node) {
  if (announcer_) announcer_->Touch(node);
}

}  // namespace reprise
