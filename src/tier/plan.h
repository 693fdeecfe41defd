// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tier/catalog.h"
#include "tier/path_id.h"
#include "tier/record.h"

namespace reprise {

// What a new record would hold, and which records have what is wanted, by a catalog.

struct StateShape {
  size_t block_bytes = 0;
  size_t state_bytes = 0;
};

// The state of [0, position) is to be stored.
struct StoreWish {
  int32_t position = 0;
  StateShape shape;
  PathId model;
  uint32_t reason = 0;
  int32_t first_block = 0;  // the first that is there to be stored
  bool alone = false;       // who goes on from there needs no block before it
  bool passed = false;      // nobody goes on from the records that begin at first_block or behind
  int64_t now_ms = 0;       // since 1970
};

struct RecordPlan {
  RecordFacts facts;
  RecordId parent;                 // the record that it continues
  std::vector<RecordId> replaced;  // go when this one is there, in this order
};
// A record of what the catalog has not yet of it. Nothing: it has all of it, or less than the new
// record would have to continue.
//
// A conversation leaves a record behind with every turn, each with a snapshot that hardly anybody
// goes on from once there is the next. So those that were passed are replaced by one that has their
// blocks, too, as long as these are no more than a snapshot. A conversation keeps no more snapshots
// than its blocks have bytes, but for two, and writes at most twice what it would.
// REQUIRES: 0 < position <= path.size().
std::optional<RecordPlan> PlanRecord(const Catalog& catalog, const PromptPath& path,
                                     const StoreWish& wish);

// What to read for the state at a place, for one that has blocks [0, first_block) already.
struct ReadPlan {
  struct Step {
    RecordId record;
    uint32_t first_block = 0;  // blocks wanted of it
    uint32_t block_count = 0;
    bool state = false;
  };
  int32_t position = 0;
  size_t bytes = 0;
  RecordId record;
  std::vector<Step> steps;
  uint32_t first_block = 0;
  uint32_t block_count = 0;
};
// Nothing: the record is gone, or there is a gap.
std::optional<ReadPlan> PlanRead(const Catalog& catalog, const Catalog::Place& place,
                                 uint32_t first_block);

}  // namespace reprise
