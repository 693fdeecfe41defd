// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/state_cache.h"
#include "cache/stats.h"

namespace reprise {

// A position at which prefill leaves a copy of the recurrent state.
struct PlannedSnapshot {
  int32_t position = 0;
  SnapshotReason reason = SnapshotReason::kMessage;

  friend bool operator==(const PlannedSnapshot&, const PlannedSnapshot&) = default;
};

struct SnapshotPlanInput {
  int32_t prompt_tokens = 0;
  int32_t matched = 0;  // prefill starts here
  int32_t branch = 0;   // the prompt leaves a stored path here, and no state was found near; or 0
  std::span<const Boundary> boundaries;
  int32_t grid = 1;
  int32_t gap = 64;
  int32_t shared_gap = 32;  // before places that other prompts start from
  int32_t ladder = 4096;
  // A rung of the ladder from the end stands so far behind the one above it; 0: there is none.
  int32_t rung_gap = 0;
  int32_t count_max = 64;
};

// Where this prompt's snapshots go, ascending, each in (matched, prompt_tokens): a snapshot leaves
// at least one token to run, so that an equal prompt still hits and gets its logits.
//
//   matched                          branch?            ladder rungs          prompt end
//     |---- system ----|-- user --|-- assistant --|-------- user (long) --------|assistant\n<think>
//                      ^ kSystem  ^ kMessage      ^ kMessage     ^      ^       ^ kPromptEnd
//
// The prompt end is the last boundary if little follows it (the opening of the reply, which the
// next turn may render differently), else the last token but one. Two planned are at least `gap`
// apart, and so is the first from `matched`; what means more wins: client breakpoints (which need
// no gap), prompt end, system and branch (which need `shared_gap` before them and nothing behind),
// messages from the last to the first, rungs of the ladder.
//
// A second ladder counts from the end of the prompt: 64, 128, 256, ... tokens before it (kEdit). An
// edit d tokens before the end then finds a state at most d + 64 tokens above it, and recomputes
// 2 d + 64 at most. It comes on top of count_max; what it may take is the evictor's business.
std::vector<PlannedSnapshot> PlanSnapshots(const SnapshotPlanInput& input);

}  // namespace reprise
