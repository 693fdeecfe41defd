// SPDX-License-Identifier: Apache-2.0
#include "sched/scheduler.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace reprise {
namespace {

// Weight of the newest observation: a machine that becomes busy is noticed within a few steps.
constexpr double kObservationWeight = 0.25;
// Gaps that a step without streams may last.
constexpr double kAloneGaps = 2;
// What streams leave of a step to prompts, however many streams there are: the part of a step.
constexpr int32_t kPromptShare = 4;
// Steps that went well before a limit on their rows is raised again.
constexpr int32_t kCalmSteps = 64;
// The oldest prompt's part of a step when shorter ones overtake it.
constexpr int32_t kOldestShare = 4;

void Follow(double measured, double* estimate) {
  *estimate = *estimate == 0 ? measured : *estimate + kObservationWeight * (measured - *estimate);
}

}  // namespace

void Scheduler::Shrink(int32_t rows) {
  rows_max_ = std::clamp(rows, 1, rows_max_);
  calm_ = 0;
}

void Scheduler::Observe(int32_t rows, double ms, bool idle) {
  if (rows_max_ < options_.rows_max && ++calm_ == kCalmSteps) {
    rows_max_ = std::min(2 * rows_max_, options_.rows_max);
    calm_ = 0;
  }
  if (idle) {
    // As many more rows as there is time left: a step has a cost of its own, so it takes less.
    const double fit = ms > 0 ? rows * options_.gap_ms_max / ms : options_.idle_rows_max;
    idle_rows_ =
        static_cast<int32_t>(std::clamp(fit, 1.0, static_cast<double>(options_.idle_rows_max)));
  }
  switch (company_) {
    case Company::kStreams: return Follow(ms, &stream_ms_);
    case Company::kPrompts: return alone_.Observe(rows, ms);
    case Company::kBoth: return beside_.Observe(rows, ms);
  }
}

double Scheduler::gap_ms() const {
  if (stream_ms_ == 0 || options_.slow_down_max == 0) return options_.gap_ms_max;
  return std::min(options_.gap_ms_max, options_.slow_down_max * stream_ms_);
}

// Until steps with both were as large as the gap allows, what prompts alone and streams alone take
// is a fair guess.
int32_t Scheduler::gap_rows(int32_t streams) const {
  if (!beside_.known() && !alone_.known()) {
    return std::min(rows_max_, 4 * options_.chunk_rows_min);
  }
  const int32_t both = beside_.known() ? beside_.RowsWithin(gap_ms()) : 0;
  int32_t rows = both - streams;
  if (both >= 2 * beside_.largest() && alone_.known()) {
    rows = std::max(rows, alone_.RowsWithin(gap_ms() - stream_ms_));
  }
  return std::min(std::max(rows, options_.chunk_rows_min), rows_max_);
}

int32_t Scheduler::RowsAlone() const {
  if (options_.rows_alone == 0) return rows_max_;
  const int32_t least = std::min(options_.rows_alone, rows_max_);
  if (!alone_.known()) return least;
  return std::clamp(alone_.RowsWithin(kAloneGaps * options_.gap_ms_max), least, rows_max_);
}

// Rows of a step that streams leave to prompts.
int32_t Scheduler::KeptForPrompts(int32_t streams) {
  const int32_t kept = std::min(gap_rows(streams), std::max(1, rows_max_ / kPromptShare));
  if (kept < rows_max_) return kept;
  prompt_turn_ = !prompt_turn_;
  return prompt_turn_ ? kept : 0;
}

StepPlan Scheduler::Plan(std::span<const Runnable> runnables) {
  StepPlan plan(runnables.size(), 0);
  std::vector<size_t>& decoding = decoding_;
  std::vector<size_t>& prompts = prompts_;
  std::vector<size_t>& idle = idle_;
  for (auto* list : {&decoding, &prompts, &idle}) list->clear();
  for (size_t i = 0; i < runnables.size(); ++i) {
    const Runnable& one = runnables[i];
    CHECK(one.rows_ready > 0 && one.rows_max > 0);
    (one.idle ? idle : one.decoding ? decoding : prompts).push_back(i);
  }
  company_ = decoding.empty()  ? Company::kPrompts
             : prompts.empty() ? Company::kStreams
                               : Company::kBoth;
  const auto streams = static_cast<int32_t>(std::min<size_t>(decoding.size(), rows_max_));
  int32_t left = RowsAlone();
  if (!decoding.empty()) {
    const int32_t kept = prompts.empty() ? 0 : KeptForPrompts(streams);
    const size_t count = std::min(decoding.size(), static_cast<size_t>(rows_max_ - kept));
    size_t next = rotation_ % decoding.size();
    for (size_t i = 0; i < count; ++i) {
      plan[decoding[next]] = 1;
      next = next + 1 == decoding.size() ? 0 : next + 1;
    }
    rotation_ = next;
    left = std::min(rows_max_ - static_cast<int32_t>(count), gap_rows(streams));
  }
  if (decoding.empty() && prompts.empty()) {
    prompts = idle;
    left = std::min(left, idle_rows_);
  }
  std::sort(prompts.begin(), prompts.end(), [&](size_t a, size_t b) {
    const Runnable& x = runnables[a];
    const Runnable& y = runnables[b];
    if (x.priority != y.priority) return x.priority > y.priority;
    if (x.rows_ready != y.rows_ready) return x.rows_ready < y.rows_ready;
    return x.arrival < y.arrival;
  });
  // A step in which a prompt ends is a stream's first: what does not end in it gets no more of it
  // than beside streams.
  const int32_t room = left;
  const bool ends = prompts.size() > 1 && runnables[prompts.front()].rows_ready <= room;
  const auto wanted = [&](size_t i) {
    const int32_t rows = std::min(runnables[i].rows_ready, runnables[i].rows_max);
    return ends && runnables[i].rows_ready > room ? std::min(rows, gap_rows(streams)) : rows;
  };
  if (prompts.size() > 1 && left > 0) {
    const size_t oldest = *std::min_element(
        prompts.begin(), prompts.end(),
        [&](size_t a, size_t b) { return runnables[a].arrival < runnables[b].arrival; });
    plan[oldest] = std::min(wanted(oldest), std::max(1, left / kOldestShare));
    left -= plan[oldest];
  }
  for (const size_t i : prompts) {
    const int32_t more = std::min(wanted(i) - plan[i], left);
    plan[i] += more;
    left -= more;
  }
  return plan;
}

}  // namespace reprise
