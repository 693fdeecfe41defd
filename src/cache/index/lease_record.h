// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cache/component/recurrent.h"
#include "cache/policy/scan_guard.h"
#include "cache/policy/snapshot_plan.h"
#include "cache/state_cache.h"
#include "cache/stats.h"
#include "cache/tree/radix_tree.h"
#include "state/batch.h"
#include "state/ids.h"

namespace reprise {

// What a walk along a prompt has found.
struct MatchResult {
  RadixTree::Path path;
  int32_t known = 0;
  int32_t kv = 0;
  int32_t servable = 0;  // deepest position <= limit that every component can serve
  int32_t usable = 0;    // the same, or 0 if the request does not want so little
};

// What a step takes beside the blocks that a lease has.
struct BlockNeed {
  uint32_t more = 0;
  bool copy = false;  // of the shared block that it continues in
  uint32_t count() const { return more + (copy ? 1 : 0); }
};

// What the index knows about one lease.
//
//  tokens      [0, prompt_tokens)        the prompt
//              [prompt_tokens, size)     appended
//  positions   [0, published)            in the tree, or known not to be wanted there
//              [published, computed)     state is in the blocks and the live state
//              [computed, reserved)      blocks exist
//  table       [0, shared_blocks)        adopted or published whole: read only
//              [shared_blocks, size)     allocated here: this lease appends rows
struct LeaseRecord : LeaseState {
  // What every step looks at.
  uint64_t id = 0;    // 0: free record
  uint32_t seat = 0;  // of Flights
  bool canonical = true;
  bool write = true;
  bool idle = false;
  bool load = false;        // no request: a lower tier fills its blocks and its state
  bool ran_drafts = false;  // the rows of the step that are no drafts are committed
  bool ahead = false;       // the last block of the table was taken before there are rows for it
  uint32_t owner = 0;       // its tenant (tenants.h)
  int32_t published = 0;
  int32_t shared_blocks = 0;
  int32_t min_cache_tokens = 0;
  int32_t kept_tokens = 0;
  std::vector<PlannedSnapshot> planned;         // ascending, all behind `computed`
  std::vector<SnapshotReason> pending_reasons;  // of those that are pending

  bool read = true;
  NodeId root;  // of its namespace; referenced, so that the id stays its own
  std::vector<Boundary> boundaries;
  int64_t pin_ms = 0;
  int32_t replay_tokens = 1;
  RadixTree::Cursor cursor;  // behind `published`; referenced once started
  int32_t snapshot_at = 0;   // the last snapshot restored or taken
  ReuseReport report;

  EntryId reads;       // the snapshot that its state is filled from; until it reserves
  uint32_t turns = 0;  // of the conversation that it continues
  // What the request brought: the tokens that were never seen before, and a sixteenth of all.
  int32_t bulk_tokens = 0;
  uint64_t session = 0;        // a name of it, and of the tenant; 0: none
  bool low = false;            // CacheRequest
  bool beside = false;         // something of its session's that nobody has come back to yet
  ScanGuard::Subject subject;  // what it comes back to
  bool cold = false;           // the subject has not come back, or after too long a time
  RadixTree::Place place;      // where the match of its prompt has ended so far
  struct Wait {
    Awaited for_what;    // lease_id 0: nobody
    uint32_t seat = 0;   // of the flight
    int32_t common = 0;  // tokens that both prompts have
  };
  Wait wait;
  uint64_t flights_seen = 0;  // flights that took off up to then are not worth waiting for
  uint64_t take_off = 0;      // which flight it is, in the order of their start
  bool passengers = false;    // somebody may wait for it
  bool sought = false;        // a tier was asked what it has of the prompt
  uint64_t asked = 0;         // the question that it has not answered yet; 0: none
  bool waited = false;        // FindAwaited found someone
  bool computes = false;      // a lower tier has more, but loading it would take longer
  int32_t loads = 0;          // that it has waited for
  Awaited loaded;             // the last of them,
  int32_t loaded_from = 0;    // and what was in memory when it began
  size_t bytes = 0;           // charged as metadata once it runs: who waits takes nothing

  // Rows that its blocks still have room for.
  int32_t rows_free(int32_t block_tokens) const {
    return static_cast<int32_t>(table.size()) * block_tokens - computed.physical;
  }
  // Sequences that started together are as long as each other: what every block needs once, each
  // does at a row of its own, so many after (or before) the others' first.
  int32_t turn_of(int32_t rows) const {
    return static_cast<int32_t>(id % static_cast<uint64_t>(rows));
  }
  // What is left to run, whatever is stored: at least a token.
  int32_t limit() const { return std::max(0, prompt_tokens - replay_tokens); }
  bool may_publish() const { return started && write && canonical && !poisoned; }
  bool in_flight() const { return may_publish() && !idle && computed.logical < prompt_tokens; }
};

}  // namespace reprise
