// SPDX-License-Identifier: Apache-2.0
#include "tier/catalog.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise {

// With nothing lost all are sound.
bool Catalog::Sound(RecordId id) const {
  if (!losing()) return true;
  if (records_.at(id).space->lost) return false;
  for (; id.valid(); id = records_.at(id).parent) {
    ++steps_;
    if (records_.at(id).lost) return false;
  }
  return true;
}

std::optional<Catalog::Place> Catalog::SoundPlace(const PathId& path) const {
  const auto place = places_.find(path);
  if (place == places_.end() || !Sound(place->second.record)) return std::nullopt;
  return place->second;
}

RecordId* Catalog::FirstOf(const Record& record) {
  return record.parent.valid() ? &At(record.parent).first : &record.space->first;
}

// Into the list of those that continue the same.
void Catalog::Join(RecordId id) {
  Record& record = At(id);
  RecordId* first = FirstOf(record);
  record.before = RecordId();
  record.behind = *first;
  if (first->valid()) At(*first).before = id;
  *first = id;
}

void Catalog::Part(RecordId id) {
  const Record& record = At(id);
  if (record.before.valid()) {
    At(record.before).behind = record.behind;
  } else {
    *FirstOf(record) = record.behind;
  }
  if (record.behind.valid()) At(record.behind).before = record.before;
}

// A place that a lost record has is taken over.
void Catalog::AddPlaces(RecordId id) {
  const RecordFacts& facts = At(id).facts;
  places_[facts.path] = {id, facts.end};
  for (size_t i = 0; i < facts.marks.size(); ++i) {
    const int32_t at = (facts.begin / kBlockTokens + 1 + static_cast<int32_t>(i)) * kBlockTokens;
    const auto [place, is_new] = places_.try_emplace(facts.marks[i], Place{id, at});
    if (!is_new && !Sound(place->second.record)) place->second = {id, at};
  }
  if (facts.end % kBlockTokens != 0) ++tails_[facts.base][facts.end % kBlockTokens];
}

void Catalog::RemovePlaces(RecordId id) {
  const RecordFacts& facts = At(id).facts;
  const auto forget = [&](const PathId& path) {
    const auto place = places_.find(path);
    if (place != places_.end() && place->second.record == id) places_.erase(place);
  };
  forget(facts.path);
  for (const PathId& mark : facts.marks) forget(mark);
  if (const int32_t tail = facts.end % kBlockTokens; tail != 0) {
    const auto tails = tails_.find(facts.base);
    if (--tails->second[tail] == 0) tails->second.erase(tail);
    if (tails->second.empty()) tails_.erase(tails);
  }
}

RecordId Catalog::Add(std::string name, RecordFacts facts, uint64_t bytes, int64_t used_ms) {
  if (SoundPlace(facts.path)) return RecordId();
  RecordId parent;
  if (facts.begin > 0) {
    const auto place = SoundPlace(facts.parent);
    if (!place || place->position != facts.begin) return RecordId();
    parent = place->record;
    const RecordFacts& above = At(parent).facts;
    if (above.block_bytes != facts.block_bytes) return RecordId();
  }
  const RecordId id{next_++};
  const uint32_t owner = OwnerOf(facts.space);
  auto [space, is_new] = space_of_.try_emplace(facts.space);
  if (is_new) {
    space->second = spaces_.insert(spaces_.end(), Space{.id = facts.space, .first = {}});
    space->second->owner = owner;
    ++owners_[owner].spaces;
  }
  Record record;
  record.name = std::move(name);
  record.facts = std::move(facts);
  record.parent = parent;
  record.bytes = bytes;
  record.used_ms = used_ms;
  record.space = &*space->second;
  records_.emplace(id, std::move(record));
  AddPlaces(id);
  Join(id);
  bytes_ += bytes;
  owners_[At(id).space->owner].bytes += bytes;
  LeavesOf(At(id)).insert({used_ms, id.value});
  if (parent.valid()) {
    const bool was_leaf = IsLeaf(At(parent));
    ++At(parent).children;
    Requeue(parent, was_leaf, At(parent).used_ms);
  }
  return id;
}

bool Catalog::Replace(RecordId id, std::string name, RecordFacts facts, uint64_t bytes) {
  const RecordFacts& old = At(id).facts;
  CHECK(facts.path == old.path && facts.end == old.end);
  const bool alike = facts.block_bytes == old.block_bytes && facts.state_bytes == old.state_bytes;
  // Others may continue it at each of its marks.
  if (!alike || !Sound(id) || facts.marks.size() < old.marks.size()) return false;
  RecordId parent;
  if (facts.begin > 0) {
    const auto place = SoundPlace(facts.parent);
    if (!place || place->position != facts.begin) return false;
    parent = place->record;
    for (RecordId above = parent; above.valid(); above = At(above).parent) {
      ++steps_;
      if (above == id) return false;
    }
  }
  RemovePlaces(id);
  if (parent != At(id).parent) {
    const RecordId was = At(id).parent;
    Part(id);
    At(id).parent = parent;
    Join(id);
    for (const RecordId above : {was, parent}) {
      if (!above.valid()) continue;
      const bool was_leaf = IsLeaf(At(above));
      At(above).children += above == parent ? 1u : -1u;
      Requeue(above, was_leaf, At(above).used_ms);
    }
  }
  Record& record = At(id);
  bytes_ += bytes - record.bytes;
  owners_[record.space->owner].bytes += bytes - record.bytes;
  record.name = std::move(name);
  record.facts = std::move(facts);
  record.bytes = bytes;
  AddPlaces(id);
  return true;
}

// The record's place among the leaves, after something has changed.
void Catalog::Requeue(RecordId id, bool was_leaf, int64_t was_used_ms) {
  if (was_leaf) LeavesOf(At(id)).erase({was_used_ms, id.value});
  if (IsLeaf(At(id))) LeavesOf(At(id)).insert({At(id).used_ms, id.value});
}

void Catalog::Remove(RecordId id) {
  CHECK(IsLeaf(At(id)));
  const int64_t used_ms = At(id).used_ms;
  const RecordId parent = At(id).parent;
  Space* const space = At(id).space;
  LeavesOf(At(id)).erase({used_ms, id.value});
  RemovePlaces(id);
  Part(id);
  bytes_ -= At(id).bytes;
  owners_[space->owner].bytes -= At(id).bytes;
  records_.erase(id);
  if (parent.valid()) {
    const bool was_leaf = IsLeaf(At(parent));
    const int64_t was_used_ms = At(parent).used_ms;
    --At(parent).children;
    At(parent).used_ms = std::max(was_used_ms, used_ms);
    Requeue(parent, was_leaf, was_used_ms);
    return;
  }
  if (space->first.valid() || space->lost) return;  // a lost one goes with NextLost
  const auto at = space_of_.find(space->id);
  --owners_[space->owner].spaces;
  spaces_.erase(at->second);
  space_of_.erase(at);
}

void Catalog::Lose(RecordId id) {
  if (std::exchange(At(id).lost, true)) return;
  lost_.push_back(id);
}

void Catalog::LoseSpace(const PathId& space) {
  const auto at = space_of_.find(space);
  if (at == space_of_.end()) return;
  at->second->lost = true;
  lost_spaces_.splice(lost_spaces_.end(), spaces_, at->second);
  space_of_.erase(at);
}

void Catalog::LoseAll() {
  for (Space& space : spaces_) space.lost = true;
  lost_spaces_.splice(lost_spaces_.end(), spaces_);
  space_of_.clear();
}

// What lies on the way down to the one that is removed is what is removed next: so all of them
// together take about two steps each.
std::optional<RecordId> Catalog::NextLost() {
  while (!lost_.empty() || !lost_spaces_.empty()) {
    ++steps_;
    if (lost_.empty()) {
      if (const RecordId first = lost_spaces_.front().first; first.valid()) {
        lost_.push_front(first);
      } else {
        --owners_[lost_spaces_.front().owner].spaces;
        lost_spaces_.pop_front();
      }
      continue;
    }
    const auto at = records_.find(lost_.front());
    if (at == records_.end()) {
      lost_.pop_front();
    } else if (at->second.first.valid()) {
      lost_.push_front(at->second.first);
    } else {
      return at->second.holds == 0 ? std::optional(at->first) : std::nullopt;
    }
  }
  return std::nullopt;
}

void Catalog::Touch(RecordId id, int64_t used_ms) {
  for (; id.valid(); id = At(id).parent) {
    const int64_t was_used_ms = At(id).used_ms;
    At(id).used_ms = std::max(was_used_ms, used_ms);
    Requeue(id, IsLeaf(At(id)), was_used_ms);
  }
}

void Catalog::Hold(RecordId id) {
  const bool was_leaf = IsLeaf(At(id));
  ++At(id).holds;
  Requeue(id, was_leaf, At(id).used_ms);
}

void Catalog::Release(RecordId id) {
  CHECK(At(id).holds > 0);
  --At(id).holds;
  Requeue(id, false, At(id).used_ms);
}

std::optional<Catalog::Place> Catalog::Find(const PromptPath& path, int32_t limit) const {
  limit = std::min(limit, path.size());
  for (int32_t block = limit / kBlockTokens; block >= 0; --block) {
    const int32_t begin = block * kBlockTokens;
    ++probes_;
    if (const auto tails = tails_.find(path.grid(block)); tails != tails_.end()) {
      for (auto tail = tails->second.rbegin(); tail != tails->second.rend(); ++tail) {
        if (begin + tail->first > limit) continue;
        ++probes_;
        if (const auto place = SoundPlace(path.At(begin + tail->first))) return place;
      }
    }
    if (block == 0) break;
    ++probes_;
    if (const auto place = SoundPlace(path.grid(block))) return place;
  }
  return std::nullopt;
}

std::optional<RecordId> Catalog::EndLeaf(bool oldest) const {
  const std::pair<int64_t, uint32_t>* end = nullptr;
  for (const Owner& owner : owners_) {
    if (owner.leaves.empty()) continue;
    const auto& leaf = oldest ? *owner.leaves.begin() : *owner.leaves.rbegin();
    if (end == nullptr || (leaf < *end) == oldest) end = &leaf;
  }
  return end != nullptr ? std::optional(RecordId{end->second}) : std::nullopt;
}

uint32_t Catalog::OwnerOf(const PathId& space) const {
  const auto known = space_of_.find(space);
  if (known != space_of_.end()) return known->second->owner;
  const auto free = std::find_if(owners_.begin(), owners_.end() - 1,
                                 [](const Owner& one) { return one.spaces == 0; });
  return static_cast<uint32_t>(free - owners_.begin());
}

std::optional<RecordId> Catalog::NextToGo(const PathId& space, uint64_t bytes,
                                          uint64_t bytes_max) const {
  const uint32_t claimant = OwnerOf(space);
  const OwnerMask over = OwnersOverShare(
      kOwnersMax, claimant, static_cast<double>(bytes_max),
      [&](uint32_t i) { return owners_[i].bytes + (i == claimant ? bytes : 0); },
      [](uint32_t) { return 1; });
  if (over == 0) return OldestLeaf();
  const std::pair<int64_t, uint32_t>* oldest = nullptr;
  for (uint32_t i = 0; i < kOwnersMax; ++i) {
    if ((over >> i & 1) == 0 || owners_[i].leaves.empty()) continue;
    const auto& leaf = *owners_[i].leaves.begin();
    if (oldest == nullptr || leaf < *oldest) oldest = &leaf;
  }
  return oldest != nullptr ? std::optional(RecordId{oldest->second}) : std::nullopt;
}

}  // namespace reprise
