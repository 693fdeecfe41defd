// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cache/component/recurrent.h"
#include "cache/state_cache.h"
#include "cache/tier/tier.h"
#include "cache/tree/radix_tree.h"

namespace reprise {

// A move between the tiers that is under way. A load has a lease of its own, like a request whose
// rows a tier computes; a spill has one that holds the blocks which are read.
struct Transfer {
  Move::Kind kind = Move::Kind::kSpill;
  NamespaceKey key;
  std::vector<TokenId> tokens;
  uint32_t seat = 0;                  // of its lease
  TierRecordId record;                // kSpill: the one in the making
  EntryId entry;                      // kSpill: the snapshot that is read
  std::vector<TierRecordId> sources;  // kFetch
  bool stored = false;                // kSpill: a level has it, whatever becomes of this
  bool lags = false;                  // ... since it began: a slower level still reads
};

// What may be worth a record: a place where somebody may go on.
struct SpillWish {
  RadixTree::Place place;
  SnapshotReason reason = SnapshotReason::kReplyEnd;
};

}  // namespace reprise
