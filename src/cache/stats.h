// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tier/tier_stats.h"

namespace reprise {

// What the cache says about itself: the report of one request (DESIGN.md 6.8), and counters since
// start. All plain data: the engine thread copies them into an immutable snapshot for the others.

// Why the tokens behind `used_tokens` had to be computed.
enum class MissReason : uint8_t {
  kNone,            // everything but the last prompt token was reused
  kNew,             // the stored path ended; what follows had never been seen
  kCold,            // nothing stored begins like this prompt
  kDiverged,        // the prompt leaves every stored path at `diverged_at`
  kNoSnapshot,      // K/V goes on, but no recurrent state was taken between here and there
  kEvicted,         // it was stored once and had to make room
  kTooLarge,        // a state for this position did not fit the budget
  kOtherNamespace,  // the same tenant has it under another model, adapter or numerics digest
  kTooShort,        // below the request's min_cache_tokens
  kDisabled,        // the request or the server switched reuse off
  kCheaper,         // a lower tier has it, but computing it was sooner done
};
inline constexpr int kMissReasonCount = 11;
std::string_view NameOf(MissReason reason);  // "cold", "no_snapshot_here", ...

struct ReuseReport {
  int32_t prompt_tokens = 0;
  int32_t known_tokens = 0;  // common prefix with anything stored now or evicted lately
  int32_t kv_tokens = 0;     // prefix whose K/V is held
  int32_t state_tokens = 0;  // deepest position at or below it with recurrent state
  int32_t used_tokens = 0;   // what this request starts from
  // The deepest position at which this request found or left state, so far, for others to start
  // from; may lie behind the prompt.
  int32_t stored_tokens = 0;
  MissReason reason = MissReason::kCold;
  int32_t diverged_at = -1;     // token position, where the reason has one
  int32_t snapshots_taken = 0;  // by this request, so far; rungs for edits not counted
  int32_t snapshots_declined = 0;
  int64_t restore_ns = 0;
  int32_t loaded_tokens = 0;  // of those used: what a lower tier gave for this request
  int64_t load_ns = 0;        // what that took
  uint64_t load_bytes = 0;    // what had to be read for it
  // Lossy: so many rows of K/V stand for the prompt while the reply is decoded; 0: all.
  int32_t kept_tokens = 0;
  bool rounded = false;  // lossy: it starts from state that a lower tier may have rounded
  // Percent of the K/V of each part of the prompt, all as long, that are among them.
  std::vector<uint8_t> kept_along;
  std::string_view load_tier;  // which one that was: "disk", "store"
};

// Why a snapshot was taken; also its class in the eviction order (policy/value.h).
enum class SnapshotReason : uint8_t {
  kSystem,      // after system prompt and tools
  kMessage,     // after a message
  kPromptEnd,   // the place most often read back
  kBreakpoint,  // asked for by the client
  kBranch,      // a second request left a stored path here
  kLadder,      // a rung inside a long message
  kReplyEnd,    // after the generated tokens
  kEdit,        // a rung of the ladder from the end of a prompt: an edit near it starts here
};
inline constexpr int kSnapshotReasonCount = 8;
std::string_view NameOf(SnapshotReason reason);

enum class EvictReason : uint8_t {
  kRunning,     // a running request needed the bytes
  kSnapshot,    // a more valuable snapshot needed them
  kMetadata,    // the tree itself grew
  kEntryLimit,  // max_entries
  kExpired,     // ttl
  kReset,       // asked for
};
inline constexpr int kEvictReasonCount = 6;
std::string_view NameOf(EvictReason reason);

// Counts of values in [2^(i-1), 2^i); bucket 0 counts zeros, the last one everything above.
struct Log2Histogram {
  static constexpr int kBuckets = 24;
  std::array<uint64_t, kBuckets> counts{};
  uint64_t total = 0;
  uint64_t sum = 0;

  void Add(uint64_t value);
};

struct CacheStats {
  // Lookups of started requests. tokens_prompt is tokens_reused plus the sum of tokens_missed.
  uint64_t lookups = 0;
  uint64_t lookups_exact = 0;  // all but the last token reused
  uint64_t lookups_partial = 0;
  uint64_t lookups_miss = 0;
  uint64_t tokens_prompt = 0;
  uint64_t tokens_reused = 0;
  uint64_t tokens_kv_matched = 0;     // K/V held along the prompt
  uint64_t tokens_state_matched = 0;  // ... of which behind a usable state
  std::array<uint64_t, kMissReasonCount> reasons{};
  std::array<uint64_t, kMissReasonCount> tokens_missed{};  // tokens computed, by reason
  Log2Histogram reused_per_request;
  Log2Histogram computed_per_request;
  Log2Histogram restore_us;

  std::array<uint64_t, kSnapshotReasonCount> snapshots_taken{};
  uint64_t snapshots_restored = 0;
  uint64_t snapshots_declined = 0;  // not worth, or not able, to make room
  uint64_t snapshots_not_finite = 0;
  std::array<uint64_t, kEvictReasonCount> snapshots_evicted{};
  std::array<uint64_t, kEvictReasonCount> blocks_evicted{};
  Log2Histogram evicted_age_ms;  // since the entry was last used
  uint64_t blocks_copied = 0;    // copy on write
  uint64_t memory_refused = 0;   // the device had less than the budget
  uint64_t compactions = 0;      // of running requests: K/V was left out (SnapKV),
  uint64_t tokens_left_out = 0;  // so many rows of it
  uint64_t bytes_left_out = 0;   // that running requests hold less because of it
  uint64_t waits = 0;            // requests that found another one computing their prefix

  // Lower tiers.
  uint64_t spills = 0;  // records that were written
  uint64_t spills_failed = 0;
  uint64_t loads = 0;
  uint64_t loads_failed = 0;
  uint64_t moves_cancelled = 0;  // because their memory was needed
  uint64_t bytes_spilled = 0;
  uint64_t bytes_loaded = 0;
  uint64_t tokens_loaded = 0;
  uint64_t records_lost = 0;  // a tier has dropped them or found them damaged

  // Now. bytes_leased + bytes_cached + bytes_metadata <= bytes_budget.
  size_t bytes_budget = 0;
  size_t bytes_leased = 0;    // blocks and states of running requests
  size_t bytes_cached = 0;    // blocks and snapshots that only the tree holds
  size_t bytes_metadata = 0;  // token runs, nodes, tables
  size_t bytes_snapshots = 0;
  size_t bytes_used_max = 0;
  uint64_t blocks_leased = 0;
  uint64_t blocks_cached = 0;
  uint64_t snapshots = 0;
  uint64_t entries = 0;
  uint64_t entries_pinned = 0;
  uint64_t nodes = 0;
  uint64_t tokens_stored = 0;
  uint64_t namespaces = 0;
  uint64_t leases = 0;
  uint64_t records = 0;          // that lower tiers have
  uint64_t moves_under_way = 0;  // between the tiers

  // Of lower tiers, the nearest first; those that are not there say so.
  std::array<TierStats, 3> tiers;
  void Add(const TierStats& tier);
};

// One line for the log: "reuse: 1480 of 1512 tokens (kv 1500, state 1480), no_snapshot_here at
// 1500".
std::string FormatReport(const ReuseReport& report);

// A picture of the tree for the page and for Dump(): nodes in depth-first order, children by their
// first token.
struct TreeNodeView {
  uint32_t id = 0;    // the same in every picture while the node lives
  int32_t depth = 0;  // nodes above it
  int32_t begin = 0;  // token positions [begin, end)
  int32_t end = 0;
  int32_t kv_end = 0;  // K/V held for [begin, kv_end)
  std::vector<int32_t> snapshots;
  int32_t lit_end = 0;  // [begin, lit_end) is part of the prompt that was asked about
  int64_t idle_ms = 0;  // since it was used
  bool leased = false;
  std::vector<int32_t> head;  // its first tokens
};

}  // namespace reprise
