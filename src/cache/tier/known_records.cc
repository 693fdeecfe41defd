// SPDX-License-Identifier: Apache-2.0
#include "cache/tier/known_records.h"

#include <utility>

namespace reprise {
namespace {

SnapshotReason ReasonOf(const RecordFacts& facts) {
  const bool known = facts.reason < static_cast<uint32_t>(kSnapshotReasonCount);
  return known ? static_cast<SnapshotReason>(facts.reason) : SnapshotReason::kPromptEnd;
}

}  // namespace

void KnownRecords::Know(TierRecordId id, const Catalog::Place& place) {
  if (!places_.try_emplace(id, place).second) return;
  known_as_[place.record].push_back(id);
}

void KnownRecords::Renew(TierRecordId id, const Catalog::Place& place) {
  Forget(id);
  Know(id, place);
}

std::optional<Catalog::Place> KnownRecords::PlaceOf(TierRecordId id) const {
  const auto place = places_.find(id);
  return place != places_.end() ? std::optional(place->second) : std::nullopt;
}

void KnownRecords::Forget(TierRecordId id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  const auto known = known_as_.find(place->second.record);
  std::erase(known->second, id);
  if (known->second.empty()) known_as_.erase(known);
  places_.erase(place);
}

std::vector<TierRecordId> KnownRecords::Lose(RecordId record) {
  const auto known = known_as_.find(record);
  if (known == known_as_.end()) return {};
  const std::vector<TierRecordId> ids = std::move(known->second);
  known_as_.erase(known);
  for (const TierRecordId id : ids) places_.erase(id);
  return ids;
}

void KnownRecords::Tell(const Catalog& catalog, const PromptPath& path, const StateShape& shape,
                        const Tier::Found& found) {
  const auto deepest = catalog.Find(path, path.size());
  if (!deepest) return;
  std::vector<Catalog::Place> chain;
  for (Catalog::Place at = *deepest; at.record.valid();) {
    const Catalog::Record& record = catalog[at.record];
    if (record.facts.block_bytes != shape.block_bytes ||
        record.facts.state_bytes != shape.state_bytes) {
      return;
    }
    chain.push_back(at);
    at = {record.parent, record.facts.begin};
  }
  TierRecordId parent;
  for (auto place = chain.rbegin(); place != chain.rend(); ++place) {
    const RecordFacts& facts = catalog[place->record].facts;
    const TierRecordId id = found({.parent = parent,
                                   .first_block = static_cast<int32_t>(facts.first_block),
                                   .position = place->position,
                                   .reason = ReasonOf(facts)});
    if (!id.valid()) return;
    Know(id, *place);
    parent = id;
  }
}

}  // namespace reprise
