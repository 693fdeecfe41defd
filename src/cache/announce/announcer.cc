// SPDX-License-Identifier: Apache-2.0
#include "cache/announce/announcer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "state/virtual_tokens.h"

namespace reprise {
namespace {

// A name that is the same for the same tokens on every server that has the same model and adapter.
// SHA-256: a client must not be able to choose tokens whose block is taken for another one.
uint64_t HashBlock(uint64_t parent, std::span<const TokenId> tokens) {
  std::string bytes(sizeof(parent), '\0');
  bytes.reserve(sizeof(parent) + tokens.size_bytes());
  std::memcpy(bytes.data(), &parent, sizeof(parent));
  VirtualTokens::Get().Spell(tokens, &bytes);
  const auto digest = Sha256(bytes);
  uint64_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof(hash));
  return hash;
}

}  // namespace

Announcer::Announcer(State state) : state_(std::move(state)) {}

Announcer::Told& Announcer::ToldOf(NodeId node) {
  told_.Grow(size_t{node.value} + 1);
  return told_[node.value];
}

// A list that becomes much shorter gives back its memory.
template <typename Change>
void Announcer::Edit(Told& told, const Change& change) {
  constexpr size_t kSpare = 64;
  hash_bytes_ -= told.hashes.capacity() * sizeof(uint64_t);
  change();
  if (told.hashes.capacity() > 2 * told.hashes.size() + kSpare) told.hashes.shrink_to_fit();
  hash_bytes_ += told.hashes.capacity() * sizeof(uint64_t);
}

size_t Announcer::bytes() const {
  return told_.bytes() + hash_bytes_ + marked_.capacity() * sizeof(NodeId) +
         lost_.capacity() * sizeof(uint64_t);
}

// What a node has decides about those above it, too: whoever is marked, those above it are.
void Announcer::Touch(NodeId node) {
  for (; !state_.tree->IsRoot(node); node = state_.tree->parent(node)) {
    Told& told = ToldOf(node);
    if (told.marked) return;
    told.marked = true;
    marked_.push_back(node);
  }
}

void Announcer::OnSplit(NodeId upper, NodeId lower) {
  told_.Grow(size_t{std::max(upper.value, lower.value)} + 1);
  {
    Told& above = told_[upper.value];
    Told& below = told_[lower.value];
    const size_t count = std::min(below.hashes.size(), BlocksUpTo(upper, state_.tree->end(upper)));
    const auto cut = below.hashes.begin() + static_cast<ptrdiff_t>(count);
    Edit(above, [&] {
      above = Told();
      above.hashes.assign(below.hashes.begin(), cut);
      above.epoch = below.epoch;
    });
    Edit(below, [&] { below.hashes.erase(below.hashes.begin(), cut); });
    // Which half has what keeps both alive is not known before they are judged.
    above.alive = below.alive;
    above.alive_children = below.alive ? 1 : 0;
  }
  Touch(upper);
  Touch(lower);
}

void Announcer::OnRemove(NodeId node) {
  if (node.value >= told_.size()) return;
  Told& told = told_[node.value];
  count_ -= told.hashes.size();
  if (!IsLost(told)) lost_.insert(lost_.end(), told.hashes.begin(), told.hashes.end());
  const NodeId above = state_.tree->parent(node);
  if (told.alive && !state_.tree->IsRoot(above)) {
    --ToldOf(above).alive_children;
    Touch(above);
  }
  Edit(told, [&] { told = Told(); });
}

bool Announcer::IsShared(NodeId node) const {
  while (!state_.tree->IsRoot(node)) node = state_.tree->parent(node);
  return state_.shared(node);
}

// The last position of the node, those below not counted, from which a request can go on.
int32_t Announcer::HeldTo(NodeId node) const {
  if (state_.full_kv != nullptr) return state_.full_kv->end(node);
  const int32_t end = state_.tree->end(node);
  return std::max(state_.serve(state_.tree->PathTo({node, end}), end), state_.tree->begin(node));
}

// Whole blocks that end in (begin, position] of the node.
size_t Announcer::BlocksUpTo(NodeId node, int32_t position) const {
  return static_cast<size_t>(position / state_.block_tokens -
                             state_.tree->begin(node) / state_.block_tokens);
}

size_t Announcer::Wanted(NodeId node) const {
  const bool below = told_[node.value].alive_children > 0;
  return BlocksUpTo(node, below ? state_.tree->end(node) : HeldTo(node));
}

void Announcer::Judge(NodeId node) {
  Told& told = told_[node.value];
  const bool alive = told.alive_children > 0 || HeldTo(node) > state_.tree->begin(node);
  if (alive == told.alive) return;
  told.alive = alive;
  const NodeId above = state_.tree->parent(node);
  if (state_.tree->IsRoot(above)) return;
  uint32_t& children = ToldOf(above).alive_children;
  alive ? ++children : --children;
}

void Announcer::Shrink(NodeId node, size_t count, std::vector<uint64_t>* lost) {
  std::vector<uint64_t>& hashes = told_[node.value].hashes;
  if (hashes.size() <= count) return;
  count_ -= hashes.size() - count;
  // The last first: a block goes before the one that it continues.
  if (!IsLost(told_[node.value])) {
    lost->insert(lost->end(), hashes.rbegin(), hashes.rend() - static_cast<ptrdiff_t>(count));
  }
  Edit(told_[node.value], [&] { hashes.resize(count); });
}

// Tokens [begin, end) of the path that ends in the node.
std::vector<TokenId> Announcer::TokensOf(NodeId node, int32_t begin, int32_t end) const {
  std::vector<TokenId> tokens(static_cast<size_t>(end - begin));
  for (; !state_.tree->IsRoot(node) && end > begin; node = state_.tree->parent(node)) {
    const int32_t from = std::max(begin, state_.tree->begin(node));
    const auto run = state_.tree->run(node).subspan(from - state_.tree->begin(node), end - from);
    std::copy(run.begin(), run.end(), tokens.begin() + (from - begin));
    end = from;
  }
  return tokens;
}

// The last block above those that end in the node.
std::optional<uint64_t> Announcer::LastAbove(NodeId node) const {
  if (state_.tree->begin(node) < state_.block_tokens) return std::nullopt;
  for (NodeId at = state_.tree->parent(node);; at = state_.tree->parent(at)) {
    CHECK(!state_.tree->IsRoot(at));  // what is alive below has all blocks above it announced
    if (!told_[at.value].hashes.empty()) return told_[at.value].hashes.back();
  }
}

// What stands for the block before the first one.
uint64_t Announcer::FirstParent(NodeId node) const {
  while (!state_.tree->IsRoot(node)) node = state_.tree->parent(node);
  const auto digest = Sha256(state_.digest(node));
  uint64_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof(hash));
  return hash;
}

void Announcer::Restart() {
  ++epoch_;
  begun_ = false;
  lost_.clear();
  repeated_ = 0;
}

// Tells anew what was lost of the node and of those above it. Returns how many blocks that were.
size_t Announcer::RepeatPath(NodeId node, std::vector<BlockEvent>* events) {
  std::vector<NodeId> lost;
  for (; !state_.tree->IsRoot(node); node = state_.tree->parent(node)) {
    if (IsLost(ToldOf(node))) lost.push_back(node);
  }
  size_t count = 0;
  for (auto at = lost.rbegin(); at != lost.rend(); ++at) {
    Told& told = told_[at->value];
    told.epoch = epoch_;
    const int32_t size = state_.block_tokens, first = state_.tree->begin(*at) / size;
    const auto added = static_cast<int32_t>(told.hashes.size());
    BlockEvent event;
    event.kind = BlockEvent::Kind::kStored;
    event.hashes = told.hashes;
    event.parent = LastAbove(*at);
    event.tokens = TokensOf(*at, first * size, (first + added) * size);
    events->push_back(std::move(event));
    count += static_cast<size_t>(added);
  }
  return count;
}

void Announcer::RepeatSome(std::vector<BlockEvent>* events) {
  constexpr size_t kBlocks = 512, kLooks = 4096;  // about 0.1 ms
  size_t blocks = 0;
  for (size_t looks = 0; repeats() && blocks < kBlocks && looks < kLooks; ++looks, ++repeated_) {
    const NodeId node{static_cast<uint32_t>(repeated_)};
    if (IsLost(told_[node.value])) blocks += RepeatPath(node, events);
  }
}

void Announcer::Grow(NodeId node, size_t count, std::vector<BlockEvent>* events) {
  Told& told = told_[node.value];
  if (told.hashes.size() >= count) return;
  if (repeats()) (void)RepeatPath(node, events);
  const int32_t size = state_.block_tokens;
  const int32_t first = state_.tree->begin(node) / size + static_cast<int32_t>(told.hashes.size());
  BlockEvent event;
  event.kind = BlockEvent::Kind::kStored;
  event.parent = told.hashes.empty() ? LastAbove(node) : told.hashes.back();
  const auto added = static_cast<int32_t>(count - told.hashes.size());
  event.tokens = TokensOf(node, first * size, (first + added) * size);
  uint64_t hash = event.parent ? *event.parent : FirstParent(node);
  for (int32_t i = 0; i < added; ++i) {
    hash = HashBlock(hash, std::span(event.tokens).subspan(static_cast<size_t>(i) * size, size));
    event.hashes.push_back(hash);
  }
  Edit(told,
       [&] { told.hashes.insert(told.hashes.end(), event.hashes.begin(), event.hashes.end()); });
  told.epoch = epoch_;
  count_ += event.hashes.size();
  events->push_back(std::move(event));
}

std::vector<BlockEvent> Announcer::Take() {
  std::vector<BlockEvent> events;
  if (!std::exchange(begun_, true)) events.push_back({BlockEvent::Kind::kCleared});
  if (marked_.empty() && lost_.empty() && !repeats()) return events;
  std::vector<NodeId> nodes;
  for (const NodeId node : std::exchange(marked_, {})) {
    // One that has gone is not marked any more; one that came in its place is, if it was touched.
    if (!std::exchange(told_[node.value].marked, false)) continue;
    if (IsShared(node)) nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.end(), [this](NodeId a, NodeId b) {
    return state_.tree->begin(a) != state_.tree->begin(b)
               ? state_.tree->begin(a) < state_.tree->begin(b)
               : a.value < b.value;
  });
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) Judge(*node);
  BlockEvent removed;
  removed.kind = BlockEvent::Kind::kRemoved;
  removed.hashes = std::exchange(lost_, {});
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    Shrink(*node, Wanted(*node), &removed.hashes);
  }
  if (!removed.hashes.empty()) events.push_back(std::move(removed));
  for (const NodeId node : nodes) Grow(node, Wanted(node), &events);
  RepeatSome(&events);
  return events;
}

}  // namespace reprise
