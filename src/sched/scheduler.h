// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/cost_curve.h"

namespace reprise {

// Decides who runs in a step and with how many rows: continuous batching with chunked prefill.
//
// Every decoding sequence gets its one row in every step, as long as prompts keep a quarter of the
// rows: a prompt is never kept waiting by streams, however many there are. What is left of the step
// goes to prompts, in chunks small enough that the step ends within the gap that streams were
// promised, by what such steps took (CostCurve): one long prompt slows the others down by a bounded
// amount and never stops them. Without streams a step takes as many rows as two such gaps have time
// for: a request that comes meanwhile waits no longer. Short prompts finish first, in steps as
// short as those of streams, but the oldest prompt always gets its share, so nothing starves. Idle
// work runs only alone, and so briefly that real work waits for the promised gap at most.
//
// A tenant crowds that runs more than its share while there are others. Its streams take turns, and
// its prompts have short chunks, so that a step takes a few times as long as one with a single
// stream; and all that it has stands aside for a step in which a prompt of another tenant ends. So
// whoever comes waits for little more than such a step, however much one tenant runs.
//
// Pure logic on numbers; no memory, no clock. Thread safety: none. Costs: O(n log n) in sequences.
struct SchedulerOptions {
  int32_t rows_max = 512;       // of one step
  int32_t rows_alone = 0;       // a step without streams may have, however long; 0: rows_max
  int32_t idle_rows_max = 128;  // of one step of idle work
  double gap_ms_max = 200;      // promised time between two tokens of a stream while others prefill
  double slow_down_max = 10;    // and how many times the time that it is without them; 0: no limit
  int32_t chunk_rows_min = 16;  // a prompt gets at least this much of a step, whatever the gap
};

// One sequence that could run now.
struct Runnable {
  int32_t rows_ready = 0;  // tokens known but not computed; 1 while decoding
  int32_t rows_max = 0;    // it may have in one step
  int32_t priority = 0;    // higher first
  uint64_t arrival = 0;    // lower first
  bool decoding = false;
  bool idle = false;  // work for a turn that may come
  bool crowds = false;  // its tenant has more than its share, and others are here, or were lately
};

// Drafted rows that a decoding sequence of the step could have behind its one.
struct DraftWish {
  int32_t rows = 0;       // that there are drafts for
  double acceptance = 0;  // of each, where those before it are accepted: in [0, 1)
};

// Row counts, parallel to the runnables; 0: not in this step.
using StepPlan = std::vector<int32_t>;

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options)
      : options_(options), rows_max_(options.rows_max) {}

  StepPlan Plan(std::span<const Runnable> runnables);

  // How many drafted rows the step that was planned last has beside its others, parallel to the
  // wishes: as many as let the tokens that are expected of a step, by what such steps took, come
  // sooner than without any, `count_max` in all; a prompt's row counts as a token, so who
  // speculates holds up nobody for less. Sizes that were never seen are tried, twice the largest at
  // most, and so are, now and then, drafts that are likely to be right but should not be worth it:
  // times change. O(rows log wishes).
  std::vector<int32_t> PlanDrafts(std::span<const DraftWish> wishes, int32_t count_max);

  // How many drafts of each of some sequences to ask a drafter for that takes `draft_ms` for one of
  // all, by how likely each is to be right; `most` at most. Now and then one that should not be
  // worth it: times change.
  int32_t DraftsWorth(std::span<const double> acceptance, double draft_ms, int32_t most);

  // What the step that was planned last took, with `rows` rows: keeps the curves that turn the
  // promised gap into rows.
  void Observe(int32_t rows, double ms, bool idle = false);

  // A step was too large for the device: none has more than so many rows until some have gone well.
  void Shrink(int32_t rows);

  // Rows that the step which was planned last could have beside those.
  int32_t rows_left() const { return rows_max_ - planned_rows_; }
  // Rows of prompt that fit beside so many streams, by the current estimate.
  int32_t gap_rows(int32_t streams = 0) const;

 private:
  enum class Company { kStreams, kPrompts, kBoth };

  // Time that a step with streams may take.
  double gap_ms() const;
  int32_t RowsAlone() const;
  int32_t KeptForPrompts(int32_t streams);
  bool CrowdStandsAside(std::span<const Runnable> runnables) const;
  double CrowdMs() const;
  size_t CrowdInStep();
  int32_t CrowdRows(int32_t streams) const;
  double MsWithDrafts(int32_t rows) const;

  const SchedulerOptions options_;
  int32_t rows_max_;                     // of one step, for now
  int32_t calm_ = 0;                     // steps that went well since that was set
  int32_t idle_rows_ = 1;                // that the gap has time for: found out from one on
  CostCurve alone_;                      // of steps with prompts alone
  CostCurve beside_;                     // of steps with streams and prompts
  CostCurve streams_;                    // of steps with streams alone, drafts included
  double stream_ms_ = 0;                 // of a step with streams alone; 0: not measured yet
  double lone_ms_ = 0;                   // and with a single one
  Company company_ = Company::kPrompts;  // in the step that was planned last
  int32_t planned_rows_ = 0;             // of that step, without its drafts
  bool drafts_ = false;                  // it has some
  uint32_t rests_ = 0;                   // steps with drafts that were not worth it, since a try
  uint32_t unasked_ = 0;                 // the same of drafts that take time
  uint64_t rotation_ = 0;                // where decoding starts when not all fit in a step
  uint64_t crowd_rotation_ = 0;          // and of those that crowd
  uint32_t crowd_steps_ = 0;             // steps with some of them
  bool stood_aside_ = false;             // they have, in the step that was planned last
  bool prompt_turn_ = false;             // whose step it is where a step has a single row
  // Runnables of the step that is planned: streams, those of tenants that crowd apart.
  std::vector<size_t> decoding_, crowd_, prompts_, idle_;
};

}  // namespace reprise
