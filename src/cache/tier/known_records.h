// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "cache/tier/tier.h"
#include "tier/catalog.h"
#include "tier/plan.h"

namespace reprise {

// Which records of a catalog the index knows, by its own ids: a record of a model without recurrent
// state can be cut at the end of any block, and each of these places is a record to the index.
//
// Thread safety: none.
class KnownRecords {
 public:
  // A record that is known stays what it is known as.
  void Know(TierRecordId id, const Catalog::Place& place);
  // ... or is known as another one of the same state from now on.
  void Renew(TierRecordId id, const Catalog::Place& place);
  std::optional<Catalog::Place> PlaceOf(TierRecordId id) const;
  void Forget(TierRecordId id);
  // The record is gone: those by which it was known.
  std::vector<TierRecordId> Lose(RecordId record);
  // Tier::Find: tells of the chain of records that leads deepest along the path.
  void Tell(const Catalog& catalog, const PromptPath& path, const StateShape& shape,
            const Tier::Found& found);

 private:
  std::unordered_map<TierRecordId, Catalog::Place> places_;
  std::unordered_map<RecordId, std::vector<TierRecordId>> known_as_;
};

}  // namespace reprise
