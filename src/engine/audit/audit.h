// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cache/tier/tier.h"
#include "engine/audit/audit_pictures.h"
#include "engine/audit/schedule.h"
#include "model/executor.h"

namespace reprise {

// The proof of the law: runs a schedule through engine and cache and compares every logit that
// comes out, bit by bit, with the logits of the same tokens computed cold; those of requests that
// leave out K/V with a cold run that leaves out the same. A schedule with drafts is run without
// them before: then they know the answers, and every token must be the one that plain decoding
// chooses from these logits.
struct AuditDifference {
  int32_t request = 0;
  int32_t position = 0;
  int32_t token = 0;  // first logit that differs
  float expected = 0;
  float actual = 0;
  std::string text;  // a sentence; also for failures that are not a differing logit
};

struct AuditResult {
  std::optional<AuditDifference> difference;
  uint64_t logits_compared = 0;  // rows
  uint64_t tokens_prompt = 0;
  uint64_t tokens_reused = 0;
  uint64_t snapshots_restored = 0;
  uint64_t evicted = 0;  // blocks and snapshots
  uint64_t preemptions = 0;
  uint64_t steps = 0;
  uint64_t compactions = 0;  // K/V was left out
  uint64_t spills = 0;       // to the lower tier, and from it
  uint64_t loads = 0;
  uint64_t tokens_loaded = 0;
  uint64_t drafts = 0;  // that were run, and those of them that were kept
  uint64_t drafts_accepted = 0;
};

// Fills logits [tokens.size(), vocab] of a cold run over the tokens in a namespace
// (NamespaceKey::number; only fake models differ between namespaces).
using ColdLogits =
    std::function<void(uint32_t space, std::span<const TokenId> tokens, float* logits)>;

// What some requests of a schedule have: which adapter the request of that number has (null: none),
// asked when it comes, and a cold run with it, which counts from a position on.
struct AuditAdapters {
  std::function<std::shared_ptr<const Adapter>(size_t request)> choose;
  std::function<void(const Adapter& adapter, int32_t adapted_from, std::span<const TokenId> tokens,
                     float* logits)>
      cold;
};

// Test hooks: what a broken engine would do. Called before each step.
using Sabotage = std::function<void(StateCache&)>;

// Makes the lower tier of a schedule that has one, again after its restart; none: a RehearsalTier.
using MakeTier = std::function<Result<std::unique_ptr<Tier>>()>;

// With pictures, prompts show some, and `cold` knows them. REQUIRES: the schedule leaves out no
// K/V. Invariants of the cache are checked after every `invariant_interval` steps and at the end.
AuditResult RunSchedule(const Schedule& schedule, Executor& executor, const ColdLogits& cold,
                        int invariant_interval, const Sabotage& sabotage = {},
                        const MakeTier& make_tier = {}, const AuditAdapters& adapters = {},
                        const AuditPictures* pictures = nullptr);

// The smallest schedule found that still fails, by leaving out requests and options one at a time.
Schedule Shrink(const Schedule& failing, const std::function<bool(const Schedule&)>& fails);

}  // namespace reprise
