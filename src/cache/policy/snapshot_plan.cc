// SPDX-License-Identifier: Apache-2.0
#include "cache/policy/snapshot_plan.h"

#include <algorithm>

#include "base/check.h"

namespace reprise {
namespace {

// The opening of a reply that a template adds behind the last message, in tokens, at most.
constexpr int32_t kReplyOpeningMax = 32;

class Planner {
 public:
  explicit Planner(const SnapshotPlanInput& input) : in_(input) {}

  std::vector<PlannedSnapshot> Plan() {
    const int32_t last_message = FindLastMessage();
    for (const Boundary& b : in_.boundaries) {
      if (b.kind == BoundaryKind::kBreakpoint) Add(b.position, SnapshotReason::kBreakpoint, 1, 1);
    }
    const int32_t gap = in_.gap, shared = std::min(in_.gap, in_.shared_gap);
    Add(last_message, SnapshotReason::kPromptEnd, gap, gap);
    // Other conversations start where system and tools end, and where a branch was seen: what
    // follows closely does not make up for these.
    for (const Boundary& b : in_.boundaries) {
      if (b.kind == BoundaryKind::kSystem) Add(b.position, SnapshotReason::kSystem, shared, 1);
    }
    if (in_.branch > 0) Add(in_.branch, SnapshotReason::kBranch, shared, 1);
    for (auto b = in_.boundaries.rbegin(); b != in_.boundaries.rend(); ++b) {
      if (b->kind == BoundaryKind::kMessage) Add(b->position, SnapshotReason::kMessage, gap, gap);
    }
    if (in_.ladder > 0) AddLadder();
    if (in_.rung_gap > 0) AddRungs();
    return std::move(planned_);
  }

 private:
  int32_t FindLastMessage() const {
    if (!in_.boundaries.empty()) {
      const int32_t position = in_.boundaries.back().position;
      if (position < in_.prompt_tokens && in_.prompt_tokens - position <= kReplyOpeningMax) {
        return position;
      }
    }
    return in_.prompt_tokens - 1;
  }

  void AddLadder() {
    const int64_t first = in_.matched / in_.ladder + 1;
    for (int64_t rung = first * in_.ladder; rung < in_.prompt_tokens; rung += in_.ladder) {
      // A rung stands half a step away from anything else.
      Add(static_cast<int32_t>(rung), SnapshotReason::kLadder, in_.ladder / 2, in_.ladder / 2);
    }
  }

  void AddRungs() {
    constexpr int32_t kFarthest = 16'384;  // as far as prompts of 32,768 tokens need
    in_.count_max = INT32_MAX;
    for (int32_t back = 64; back <= kFarthest; back *= 2) {
      Add(in_.prompt_tokens - back, SnapshotReason::kEdit, in_.rung_gap, 1);
    }
  }

  // At least `before` behind the one above it (or what is matched), and `after` above the next.
  void Add(int32_t position, SnapshotReason reason, int32_t before, int32_t after) {
    if (in_.grid > 1) position = position / in_.grid * in_.grid;
    if (position <= in_.matched || position >= in_.prompt_tokens) return;
    if (static_cast<int32_t>(planned_.size()) >= in_.count_max) return;
    const auto next =
        std::lower_bound(planned_.begin(), planned_.end(), position,
                         [](const PlannedSnapshot& one, int32_t p) { return one.position < p; });
    const int32_t last = next == planned_.begin() ? in_.matched : (next - 1)->position;
    if (position - last < before) return;
    if (next != planned_.end() && next->position - position < after) return;
    planned_.insert(next, {position, reason});
  }

  SnapshotPlanInput in_;
  std::vector<PlannedSnapshot> planned_;
};

}  // namespace

std::vector<PlannedSnapshot> PlanSnapshots(const SnapshotPlanInput& input) {
  CHECK(input.grid >= 1 && input.gap >= 1);
  return Planner(input).Plan();
}

}  // namespace reprise
