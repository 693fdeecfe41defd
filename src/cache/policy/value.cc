// SPDX-License-Identifier: Apache-2.0
#include "cache/policy/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reprise {
namespace {

constexpr double kLainMax = 14;  // half-lives: more says no more

// How likely an entry is read back, beside the learnt share of the ends: what several conversations
// share outlives each of them; the places a conversation has passed serve only edits.
double WeightOf(const EntryFacts& facts) {
  if (facts.superseded) return 1. / 8;
  if (facts.beside) return 1. / 64;
  if (!facts.is_snapshot) return 1;
  switch (facts.reason) {
    case SnapshotReason::kPromptEnd:
    case SnapshotReason::kReplyEnd:
      return 1;
    case SnapshotReason::kSystem:
    case SnapshotReason::kBreakpoint:
    case SnapshotReason::kBranch:
      return 1. / 2;
    case SnapshotReason::kMessage:
    case SnapshotReason::kLadder:
    case SnapshotReason::kEdit:
      return 0.038;
  }
  return 1;
}

}  // namespace

CostModel::CostModel(const StateSpec& spec)
    : token_cost_(spec.token_cost > 0 ? spec.token_cost : 1),
      token_cost_per_position_(std::max(0.0, spec.token_cost_per_position)) {}

double CostModel::Recompute(int32_t from, int32_t to) const {
  const double a = from, b = to;
  return (b - a) * (token_cost_ + token_cost_per_position_ * (a + b) / 2);
}

double BulkSlope::BulkOf(int32_t tokens, double flat_tokens) {
  return std::log2(1 + std::max(0, tokens) / flat_tokens);
}

void BulkSlope::NoteEnd(int32_t tokens) {
  constexpr double kMemory = 4096;  // ends that the means look back on
  ends_ = std::min(ends_ + 1, kMemory);
  const double off = BulkOf(tokens) - mean_;
  mean_ += off / ends_;
  variance_ += (off * (BulkOf(tokens) - mean_) - variance_) / ends_;
}

void BulkSlope::NoteReuse(int32_t tokens) {
  constexpr double kMemory = 1024;
  reuses_ = std::min(reuses_ + 1, kMemory);
  mean_continued_ += (BulkOf(tokens) - mean_continued_) / reuses_;
}

double BulkSlope::slope() const {
  constexpr double kExpected = 0.35;  // on public conversations, measured by what is found again
  constexpr double kTrust = 20;       // reuses that the expectation alone counts for
  constexpr double kVariance = 0.1;   // where all bring about as much
  constexpr double kSlopeMax = 0.5;
  constexpr double kLn2 = 0.6931471805599453;
  const double seen = (mean_ - mean_continued_) / (kLn2 * std::max(variance_, kVariance));
  return std::clamp(kExpected + seen * reuses_ / (reuses_ + kTrust), 0.0, kSlopeMax);
}

// As expected, until there is something to go by. Never so little that such an end would not be
// kept long enough to show that it is wanted.
double CostPerBytePolicy::Ends::share(double expected, double trust) const {
  return std::max(1. / 16, (continued + trust * expected) / (std::max(left, continued) + trust));
}

size_t CostPerBytePolicy::IndexOf(EndKind end, uint32_t turns) {
  return static_cast<size_t>(end) * kTurns + std::min(turns, kTurns - 1);
}

// Half of the first turns; later ones as the turn before.
double CostPerBytePolicy::Expected(size_t i) const {
  return i % kTurns == 0 ? 0.5 : shares_[i - 1];
}

double CostPerBytePolicy::ShareOf(size_t i) const {
  constexpr double kTrust = 3.8, kTrustOfTails = 6;  // ends that the expectation counts for
  const bool tail = i / kTurns == static_cast<size_t>(EndKind::kTail);
  return ends_[i].share(Expected(i), tail ? kTrustOfTails : kTrust);
}

double CostPerBytePolicy::share(EndKind end, uint32_t turns) const {
  return end == EndKind::kNone ? 1 : shares_[IndexOf(end, turns)];
}

CostPerBytePolicy::CostPerBytePolicy(double half_life_ms)
    : learns_(half_life_ms == 0),
      half_life_ms_(learns_ ? kFirstHalfLifeMs : half_life_ms),
      log_age_(std::log2(half_life_ms_)) {
  Refresh();
}

void CostPerBytePolicy::Refresh() {
  if (learns_) half_life_ms_ = std::exp2(log_age_);
  slope_ = bulk_.slope();
  lain_ = HalfLivesLain();
  for (size_t i = 0; i < ends_.size(); ++i) shares_[i] = ShareOf(i);
  RefreshTails();
}

// Odds tell "hardly ever" from "rarely" better than shares do, but "nearly always" from "always",
// too, which says nothing: hence the limit.
void CostPerBytePolicy::RefreshTails() {
  constexpr double kShareMax = 0.95;
  constexpr double kAlike = 2;  // log2: as far apart odds may be without meaning anything
  constexpr double kPower = 1.3;
  const auto log_odds = [this, kShareMax](uint32_t turns) {
    const double share = std::min(shares_[IndexOf(EndKind::kTail, turns)], kShareMax);
    return std::log2(share / (1 - share));
  };
  double best = -std::numeric_limits<double>::infinity();
  for (uint32_t turns = 0; turns < kTurns; ++turns) {
    const bool seen = ends_[IndexOf(EndKind::kTail, turns)].left > 0;
    if (seen) best = std::max(best, log_odds(turns));
  }
  for (uint32_t turns = 0; turns < kTurns; ++turns) {
    tails_[turns] = kPower * std::min(0., log_odds(turns) - best + kAlike);
  }
}

double CostPerBytePolicy::LogShareWorth(const EntryFacts& facts) const {
  constexpr double kSnapshotSlope = 0.2, kFlatTokens = 1500;
  constexpr double kUses = 0.036;  // what was used more often is a little likelier to be again
  if (facts.end == EndKind::kNone) {
    return kUses * std::log2(1 + std::min(facts.turns, kTurns - 1));
  }
  if (facts.end == EndKind::kTail) {
    const double bulk = Fade(2, 4) * BulkSlope::BulkOf(facts.bulk_tokens);
    return Fade(7.4, kLainMax) * tails_[std::min(facts.turns, kTurns - 1)] - slope_ * bulk;
  }
  const double bulk = Fade(2.3, 4) * BulkSlope::BulkOf(facts.bulk_tokens, kFlatTokens);
  return std::log2(share(facts.end, facts.turns)) - kSnapshotSlope * bulk;
}

double CostPerBytePolicy::Key(const EntryFacts& facts) const {
  // Measured on the conversation and tool traces (docs/cache.md). The plain product saves most
  // computation but gives token hits away for a few deep prompts; with these powers both stay
  // above LRU.
  constexpr double kCostPower = 0.3;
  const double saved = std::max(facts.cost, 1e-9) / std::max(facts.bytes, 1.0);
  const double log_worth =
      std::log2(WeightOf(facts)) + LogShareWorth(facts) + kCostPower * std::log2(saved);
  return static_cast<double>(facts.used_ms) + half_life_ms_ * log_worth;
}

void CostPerBytePolicy::CountLeft(size_t i) {
  constexpr double kMemory = 1024;  // ends that a share looks back on
  Ends& ends = ends_[i];
  if (++ends.left < kMemory) return;
  ends.left /= 2;
  ends.continued /= 2;
}

// An end of a snapshot that lies for longer counts as one that is not continued.
double CostPerBytePolicy::PatienceMs() const { return std::exp2(log_age_); }

double CostPerBytePolicy::HalfLivesLain() const {
  return evicted_ == 0 ? 0 : std::min(kLainMax, evicted_age_ms_ / half_life_ms_);
}

double CostPerBytePolicy::Fade(double soon, double late) const {
  return std::clamp((late - lain_) / (late - soon), 0., 1.);
}

void CostPerBytePolicy::NoteEvicted(EndKind end, int64_t age_ms) {
  constexpr double kMemory = 1024;
  if (end == EndKind::kNone) return;
  evicted_ = std::min(evicted_ + 1, kMemory);
  evicted_age_ms_ += (static_cast<double>(age_ms) - evicted_age_ms_) / evicted_;
}

void CostPerBytePolicy::NoteEnd(const EndFacts& end) {
  constexpr size_t kOpenMax = 4096;
  if (end.kind == EndKind::kNone) return;
  const size_t index = IndexOf(end.kind, end.turns);
  if (end.kind == EndKind::kTail) {
    bulk_.NoteEnd(end.bulk_tokens);
    return CountLeft(index);
  }
  open_.push_back({end.now_ms, index});
  const double now_ms = static_cast<double>(end.now_ms);
  while (!open_.empty() && (open_.size() > kOpenMax ||
                            static_cast<double>(open_.front().left_ms) + PatienceMs() < now_ms)) {
    const size_t i = open_.front().index;
    open_.pop_front();
    continued_[i] > 0 ? void(--continued_[i]) : CountLeft(i);  // those were counted when they were
  }
}

bool CostPerBytePolicy::NoteReuse(const EndFacts& end, int64_t age_ms) {
  constexpr uint64_t kMemory = 1024;   // uses that the mean age looks back on
  constexpr double kDriftMax = 0.322;  // log2(1.25): keys are refreshed at a quarter more or less
  constexpr double kSlopeDriftMax = 0.05, kLainDriftMax = 0.3;
  if (end.kind == EndKind::kNone) return false;
  const size_t i = IndexOf(end.kind, end.turns);
  ++ends_[i].continued;
  if (end.kind == EndKind::kTail) {
    bulk_.NoteReuse(end.bulk_tokens);
  } else if (static_cast<double>(age_ms) < PatienceMs()) {
    ++continued_[i];
    ++ends_[i].left;
  }
  ages_ = std::min(ages_ + 1, kMemory);
  const double age = std::clamp(static_cast<double>(age_ms), kHalfLifeMsMin, kHalfLifeMsMax);
  log_age_ += (std::log2(age) - log_age_) / static_cast<double>(ages_ + 8);
  if ((!learns_ || std::abs(log_age_ - std::log2(half_life_ms_)) < kDriftMax) &&
      std::abs(std::log2(ShareOf(i) / shares_[i])) < kDriftMax &&
      std::abs(bulk_.slope() - slope_) < kSlopeDriftMax &&
      std::abs(HalfLivesLain() - lain_) < kLainDriftMax) {
    return false;
  }
  Refresh();
  return true;
}

}  // namespace reprise
