// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>

#include "cache/stats.h"
#include "state/spec.h"

namespace reprise {

// The cost of computing tokens again, from the model's own figures.
class CostModel {
 public:
  explicit CostModel(const StateSpec& spec);
  // Of positions [from, to).
  double Recompute(int32_t from, int32_t to) const;

 private:
  double token_cost_;
  double token_cost_per_position_;
};

// Where a conversation can be continued. Traffic decides which of them matter: plain chat goes
// on behind the reply, reasoning models (whose thinking is taken out of the history) behind the
// prompt.
enum class EndKind : uint8_t { kTail, kPromptEnd, kReplyEnd, kNone };

struct EndFacts {
  EndKind kind = EndKind::kNone;
  uint32_t turns = 0;       // how often the conversation was continued before
  int32_t bulk_tokens = 0;  // what its last request brought (lease_record.h)
  int64_t now_ms = 0;
};

// What is known about an entry when its place in the eviction order is decided.
struct EntryFacts {
  // Recompute cost of what would be lost, and memory that would be won. K/V tails are all of one
  // size, and how deep they lie says nothing about whether they are wanted again: their cost is the
  // part of computing them that would be lost, their size 1.
  double cost = 0;
  double bytes = 0;
  int64_t used_ms = 0;
  EndKind end = EndKind::kNone;
  uint32_t turns = 0;       // how often it, or the conversation that it ends, was continued
  int32_t bulk_tokens = 0;  // what its request brought
  bool is_snapshot = false;
  SnapshotReason reason = SnapshotReason::kMessage;
  bool superseded = false;
  bool beside = false;  // index/lease_record.h
  bool low = false;     // the same: goes before all that is not
};

// The eviction order: the entry with the smallest key goes first. The order must not change with
// time alone, so that keys can stand in a heap.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual double Key(const EntryFacts& facts) const = 0;
  virtual bool resists_scans() const { return false; }  // cold entries may go first
  // What the policy may learn from: a request has left an end of its conversation behind; a later
  // one has continued such an end after it had lain for so long. NoteReuse returns true if all
  // keys should be computed anew.
  virtual void NoteEnd(const EndFacts&) {}
  virtual bool NoteReuse(const EndFacts&, int64_t /*age_ms*/) { return false; }
  // An end had to go for others after it had lain for so long.
  virtual void NoteEvicted(EndKind, int64_t /*age_ms*/) {}
};

// How much less an end is continued the more text its request brought, as a slope:
// 2^(-slope * bulk), where bulk is log2 of the tokens, flat before 1,200. In public conversations
// 65 of 100 requests with 500 new tokens are followed by another, 25 of 100 with 8,000: these
// brought a document. What the traffic here shows is added to that. Were all as likely, those that
// were continued would bring as much as all, in the mean; with a slope they bring less, by
// slope * ln 2 * variance.
class BulkSlope {
 public:
  static double BulkOf(int32_t tokens, double flat_tokens = 1200);
  void NoteEnd(int32_t tokens);
  void NoteReuse(int32_t tokens);
  // Never below 0: where the long ones are continued more often, age alone decides.
  double slope() const;

 private:
  double ends_ = 0;  // seen, as far as means look back
  double mean_ = 0;
  double variance_ = 0;
  double reuses_ = 0;
  double mean_continued_ = 0;
};

// What a byte saves, decayed since the entry was used:
//
//   worth(t) = weight * share * (cost / bytes)^0.3 * 2^(-(t - used) / half_life)
//
// Halving is the one decay under which two entries never change places while both are left alone:
// in log2 worth(t) the time t adds the same to all. So the key is a constant, and a plain heap is
// exact.
//
// Two things are learnt from the traffic. The half-life follows the time after which conversations
// really go on (seconds in a tool loop, minutes in a chat): the geometric mean of the ages at use.
// The share is that of the ends which were continued, by kind and by the number of turns before:
// in public chat traces 28 % of first prompts are followed by another, 42 % of second ones, 56 %,
// 61 %, 71 %; in tool loops nearly all. An end of a snapshot counts as not continued only after it
// has lain for a half-life: before that nothing is known about it.
//
// K/V tails all have one size, and what the share says about them is little beside their age: on
// public traces no order by share was better than the least recently used one on all. So that is
// the order among them, with two exceptions. Ends of a turn after which hardly anybody goes on (the
// odds are below a quarter of those of the likeliest turn) go before the others. And ends whose
// request brought much text go earlier (BulkSlope), those of snapshots, too. That holds where
// memory is short: an end that has lain for four half-lives is as unlikely to go on as any other.
class CostPerBytePolicy : public EvictionPolicy {
 public:
  static constexpr double kFirstHalfLifeMs = 120'000;  // before anything was used again
  static constexpr double kHalfLifeMsMin = 1'000;
  static constexpr double kHalfLifeMsMax = 86'400'000;
  static constexpr uint32_t kTurns = 16;  // more count as this many

  // A fixed half-life, if not 0.
  explicit CostPerBytePolicy(double half_life_ms = 0);
  double Key(const EntryFacts& facts) const override;
  bool resists_scans() const override { return true; }
  void NoteEnd(const EndFacts& end) override;
  bool NoteReuse(const EndFacts& end, int64_t age_ms) override;
  void NoteEvicted(EndKind end, int64_t age_ms) override;
  double half_life_ms() const { return half_life_ms_; }
  // The share of such ends that are continued, as the keys in use have it.
  double share(EndKind end, uint32_t turns) const;

 private:
  // log2 of what that makes of the worth of a snapshot, or of a K/V tail.
  double LogShareWorth(const EntryFacts& facts) const;
  struct Ends {
    double left = 0;
    double continued = 0;
    double share(double expected, double trust) const;
  };
  struct OpenEnd {  // left, and not known yet whether it is continued
    int64_t left_ms = 0;
    size_t index = 0;
  };
  static constexpr size_t kEndKinds = 3;
  static size_t IndexOf(EndKind end, uint32_t turns);
  double Expected(size_t index) const;
  double ShareOf(size_t index) const;
  void CountLeft(size_t index);
  double PatienceMs() const;
  // How long ends have lain when they go, in half-lives.
  double HalfLivesLain() const;
  // 1 where they go `soon` after they were left; 0 where they lie until it is `late`, when hardly
  // any would go on.
  double Fade(double soon, double late) const;
  void Refresh();
  void RefreshTails();

  const bool learns_;
  double half_life_ms_;  // that of the keys in use
  std::array<double, kEndKinds * kTurns> shares_;
  std::array<double, kTurns> tails_;  // log2 of the worth of K/V tails, by turn: 0 or less
  BulkSlope bulk_;                    // of K/V tails,
  double slope_ = 0;                  // as the keys in use have it
  double lain_ = 0;                   // in half-lives, too
  double evicted_age_ms_ = 0;         // running mean
  double evicted_ = 0;
  double log_age_;  // running mean of log2(age)
  uint64_t ages_ = 0;
  std::array<Ends, kEndKinds * kTurns> ends_;
  std::deque<OpenEnd> open_;                              // of snapshots, oldest first
  std::array<uint32_t, kEndKinds * kTurns> continued_{};  // of the open ones
};

// Least recently used, for comparison.
class LruPolicy : public EvictionPolicy {
 public:
  double Key(const EntryFacts& facts) const override { return static_cast<double>(facts.used_ms); }
};

}  // namespace reprise
