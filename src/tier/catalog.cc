// SPDX-License-Identifier: Apache-2.0
#include "tier/catalog.h"

#include <algorithm>

#include "base/check.h"

namespace reprise {

RecordId Catalog::Add(std::string name, RecordFacts facts, uint64_t bytes, int64_t used_ms) {
  if (places_.contains(facts.path)) return RecordId();
  RecordId parent;
  if (facts.begin > 0) {
    const auto place = places_.find(facts.parent);
    if (place == places_.end() || place->second.position != facts.begin) return RecordId();
    parent = place->second.record;
    const RecordFacts& above = At(parent).facts;
    if (above.block_bytes != facts.block_bytes) return RecordId();
  }
  const RecordId id{next_++};
  places_[facts.path] = {id, facts.end};
  for (size_t i = 0; i < facts.marks.size(); ++i) {
    const int32_t at = (facts.begin / kBlockTokens + 1 + static_cast<int32_t>(i)) * kBlockTokens;
    places_.try_emplace(facts.marks[i], Place{id, at});
  }
  if (facts.end % kBlockTokens != 0) ++tails_[facts.base][facts.end % kBlockTokens];
  Record record;
  record.name = std::move(name);
  record.facts = std::move(facts);
  record.parent = parent;
  record.bytes = bytes;
  record.used_ms = used_ms;
  records_.emplace(id, std::move(record));
  bytes_ += bytes;
  leaves_.insert({used_ms, id.value});
  if (parent.valid()) {
    const bool was_leaf = IsLeaf(At(parent));
    ++At(parent).children;
    Requeue(parent, was_leaf, At(parent).used_ms);
  }
  return id;
}

// The record's place among the leaves, after something has changed.
void Catalog::Requeue(RecordId id, bool was_leaf, int64_t was_used_ms) {
  if (was_leaf) leaves_.erase({was_used_ms, id.value});
  if (IsLeaf(At(id))) leaves_.insert({At(id).used_ms, id.value});
}

void Catalog::Remove(RecordId id) {
  const Record record = std::move(At(id));
  CHECK(IsLeaf(record));
  leaves_.erase({record.used_ms, id.value});
  const auto forget = [&](const PathId& path) {
    const auto place = places_.find(path);
    if (place != places_.end() && place->second.record == id) places_.erase(place);
  };
  forget(record.facts.path);
  for (const PathId& mark : record.facts.marks) forget(mark);
  if (const int32_t tail = record.facts.end % kBlockTokens; tail != 0) {
    const auto tails = tails_.find(record.facts.base);
    if (--tails->second[tail] == 0) tails->second.erase(tail);
    if (tails->second.empty()) tails_.erase(tails);
  }
  bytes_ -= record.bytes;
  const RecordId parent = record.parent;
  const int64_t used_ms = record.used_ms;
  records_.erase(id);
  if (!parent.valid()) return;
  const bool was_leaf = IsLeaf(At(parent));
  const int64_t was_used_ms = At(parent).used_ms;
  --At(parent).children;
  At(parent).used_ms = std::max(was_used_ms, used_ms);
  Requeue(parent, was_leaf, was_used_ms);
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
        const auto place = places_.find(path.At(begin + tail->first));
        if (place != places_.end()) return place->second;
      }
    }
    if (block == 0) break;
    ++probes_;
    if (const auto place = places_.find(path.grid(block)); place != places_.end()) {
      return place->second;
    }
  }
  return std::nullopt;
}

std::optional<RecordId> Catalog::OldestLeaf() const {
  if (leaves_.empty()) return std::nullopt;
  return RecordId{leaves_.begin()->second};
}

std::vector<RecordId> Catalog::Below(RecordId id) const {
  std::vector<RecordId> found{id};
  for (size_t i = 0; i < found.size(); ++i) {
    if (records_.at(found[i]).children == 0) continue;
    for (const auto& [other, record] : records_) {
      if (record.parent == found[i]) found.push_back(other);
    }
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace reprise
