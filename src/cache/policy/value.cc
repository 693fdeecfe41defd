// SPDX-License-Identifier: Apache-2.0
#include "cache/policy/value.h"

#include <algorithm>
#include <cmath>

namespace reprise {
namespace {

// How likely an entry of this kind is read back, relative to a message in the middle of a
// conversation. Prompt ends are (85 % of what public agent traces read back); what several
// conversations share outlives each of them; the places a conversation has passed serve only edits.
double WeightOf(const EntryFacts& facts) {
  double weight = 1;
  if (facts.is_snapshot) {
    switch (facts.reason) {
      case SnapshotReason::kPromptEnd:
        weight = 8;
        break;
      case SnapshotReason::kSystem:
      case SnapshotReason::kBreakpoint:
      case SnapshotReason::kBranch:
      case SnapshotReason::kReplyEnd:
        weight = 4;
        break;
      case SnapshotReason::kMessage:
      case SnapshotReason::kLadder:
        weight = 1;
        break;
    }
    if (facts.superseded) weight = std::min(weight, 0.5);
  } else if (facts.superseded) {
    weight = 0.5;
  }
  return weight * (1 + std::min(facts.uses, 8u));
}

}  // namespace

CostModel::CostModel(const StateSpec& spec)
    : token_cost_(spec.token_cost > 0 ? spec.token_cost : 1),
      token_cost_per_position_(std::max(0.0, spec.token_cost_per_position)) {}

double CostModel::Recompute(int32_t from, int32_t to) const {
  const double a = from, b = to;
  return (b - a) * (token_cost_ + token_cost_per_position_ * (a + b) / 2);
}

double CostPerBytePolicy::Key(const EntryFacts& facts) const {
  const double worth = WeightOf(facts) * std::max(facts.cost, 1e-9) / std::max(facts.bytes, 1.0);
  return static_cast<double>(facts.used_ms) + half_life_ms_ * std::log2(worth);
}

}  // namespace reprise
