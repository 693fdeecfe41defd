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
// What streams of a tenant beyond its share let a step take, times one with a single stream, where
// there are other tenants. They lose a third of their tokens at most: what a step costs without any
// row is no more than a step of one stream.
constexpr double kCrowdSlowDown = 3;
// In so many steps they look once what a single stream takes, and once whether more of them take
// less than it seems.
constexpr uint32_t kCrowdLooks = 128;
// Their prompts have that part of the least chunk, whatever it takes.
constexpr int32_t kCrowdChunk = 4;
// Steps that went well before a limit on their rows is raised again.
constexpr int32_t kCalmSteps = 64;
// The oldest prompt's part of a step when shorter ones overtake it.
constexpr int32_t kOldestShare = 4;

// Times what was expected, of a step with streams alone.
constexpr double kLongestStep = 2;

// Drafts must make a step's tokens come sooner by so much: less is within what measuring says.
constexpr double kDraftGainMin = 0.03;
// Drafts that are likelier than not to be right are tried now and then, whatever such steps seem to
// take. Where some are worth it, more of them are, once in so many steps. Where none are, a try
// costs more than it saves: it comes after so many steps, then after twice as many each time.
constexpr double kPromising = 0.5;
constexpr uint32_t kSomeMax = 16;
constexpr uint32_t kRestsMin = 64;
constexpr uint32_t kRestsMax = 1024;

// Whether there is a try in the n-th step in a row in which drafts are not worth it.
bool IsTry(uint32_t n) {
  uint32_t next = 0, gap = kRestsMin;
  for (; gap < kRestsMax; gap *= 2) {
    next += gap;
    if (n <= next) return n == next;
  }
  return (n - next) % kRestsMax == 0;
}

// One row for `count` of the streams, those whose turn it is.
void TakeTurns(std::span<const size_t> streams, size_t count, uint64_t* turn, StepPlan* plan) {
  if (streams.empty()) return;
  size_t next = *turn % streams.size();
  for (size_t i = 0; i < count; ++i) {
    (*plan)[streams[next]] = 1;
    next = next + 1 == streams.size() ? 0 : next + 1;
  }
  *turn = next;
}

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
    case Company::kStreams:
      // A step that takes long says little: others may have had the CPU.
      if (!drafts_) Follow(ms, &stream_ms_);
      if (!drafts_ && rows == 1) Follow(ms, &lone_ms_);
      if (streams_.known()) ms = std::min(ms, kLongestStep * streams_.Ms(rows));
      streams_.Observe(rows, ms);
      return;
    case Company::kPrompts:
      return alone_.Observe(rows, ms);
    case Company::kBoth:
      return beside_.Observe(rows, ms);
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

// Whether a prompt of a tenant that does not crowd ends in the step; never twice in a row.
bool Scheduler::CrowdStandsAside(std::span<const Runnable> runnables) const {
  const int32_t room = gap_rows(static_cast<int32_t>(decoding_.size()));
  return !stood_aside_ && std::any_of(prompts_.begin(), prompts_.end(), [&](size_t i) {
    return !runnables[i].crowds && runnables[i].rows_ready <= room;
  });
}

// What their rows let a step take.
double Scheduler::CrowdMs() const {
  return kCrowdSlowDown * (lone_ms_ > 0 ? lone_ms_ : streams_.Ms(1));
}

// How many streams of tenants that crowd the step has, beside those of others.
size_t Scheduler::CrowdInStep() {
  if (crowd_.empty()) return 0;
  const uint32_t turn = ++crowd_steps_ % kCrowdLooks;
  const bool pure = decoding_.empty() && prompts_.empty();
  if (pure && (lone_ms_ == 0 || turn == 0)) return 1;
  if (!streams_.known()) return crowd_.size();
  int32_t most = streams_.RowsWithin(CrowdMs());
  if (turn == kCrowdLooks / 2) most *= 2;
  most = std::max(1, most - static_cast<int32_t>(decoding_.size()));
  return std::min(crowd_.size(), static_cast<size_t>(most));
}

// Rows of their prompts that the step has beside so many streams.
int32_t Scheduler::CrowdRows(int32_t streams) const {
  if (!streams_.known()) return rows_max_;
  const double ms = CrowdMs();
  const int32_t rows = (beside_.known() ? beside_ : streams_).RowsWithin(ms) - streams;
  return std::max(rows, std::max(1, options_.chunk_rows_min / kCrowdChunk));
}

StepPlan Scheduler::Plan(std::span<const Runnable> runnables) {
  StepPlan plan(runnables.size(), 0);
  std::vector<size_t>& decoding = decoding_;
  std::vector<size_t>& crowd = crowd_;
  std::vector<size_t>& prompts = prompts_;
  std::vector<size_t>& idle = idle_;
  for (auto* list : {&decoding, &crowd, &prompts, &idle}) list->clear();
  bool crowded = false;
  for (size_t i = 0; i < runnables.size(); ++i) {
    const Runnable& one = runnables[i];
    CHECK(one.rows_ready > 0 && one.rows_max > 0);
    (one.idle ? idle : !one.decoding ? prompts : one.crowds ? crowd : decoding).push_back(i);
    crowded = crowded || one.crowds;
  }
  const bool alone = decoding.empty() && crowd.empty();  // prompts, without streams
  stood_aside_ = crowded && CrowdStandsAside(runnables);
  if (stood_aside_) std::erase_if(prompts, [&](size_t i) { return runnables[i].crowds; });
  const size_t crowding = stood_aside_ ? 0 : CrowdInStep();
  const auto streams =
      static_cast<int32_t>(std::min<size_t>(decoding.size() + crowding, rows_max_));
  company_ = streams == 0      ? Company::kPrompts
             : prompts.empty() ? Company::kStreams
                               : Company::kBoth;
  int32_t left = RowsAlone();
  if (!alone) {
    const int32_t kept = prompts.empty() ? 0 : KeptForPrompts(streams);
    const size_t room = static_cast<size_t>(rows_max_ - kept);
    const size_t count = std::min(decoding.size(), room);
    const size_t crowd_count = std::min(crowding, room - count);
    TakeTurns(decoding, count, &rotation_, &plan);
    TakeTurns(crowd, crowd_count, &crowd_rotation_, &plan);
    left = std::min(rows_max_ - static_cast<int32_t>(count + crowd_count), gap_rows(streams));
  }
  if (alone && prompts.empty()) {
    prompts = idle;
    left = std::min(left, idle_rows_);
  }
  std::sort(prompts.begin(), prompts.end(), [&](size_t a, size_t b) {
    const Runnable& x = runnables[a];
    const Runnable& y = runnables[b];
    if (x.priority != y.priority) return x.priority > y.priority;
    if (x.crowds != y.crowds) return y.crowds;
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
  int32_t crowd_left = crowded ? CrowdRows(streams) : 0;
  const auto give = [&](size_t i, int32_t most) {
    const Runnable& one = runnables[i];
    const int32_t rows = std::min({wanted(i) - plan[i], most, one.crowds ? crowd_left : most});
    plan[i] += rows;
    left -= rows;
    if (one.crowds) crowd_left -= rows;
  };
  if (prompts.size() > 1 && left > 0) {
    const size_t oldest = *std::min_element(
        prompts.begin(), prompts.end(),
        [&](size_t a, size_t b) { return runnables[a].arrival < runnables[b].arrival; });
    give(oldest, std::max(1, left / kOldestShare));
  }
  for (const size_t i : prompts) give(i, left);
  drafts_ = false;
  planned_rows_ = std::accumulate(plan.begin(), plan.end(), 0);
  return plan;
}

// Of the step that was planned last, if it had so many rows. Where no larger one was ever seen,
// more rows cost nothing until it is known.
double Scheduler::MsWithDrafts(int32_t rows) const {
  const CostCurve& curve = company_ == Company::kBoth ? beside_ : streams_;
  return curve.Ms(curve.largest() > planned_rows_ ? rows : std::min(rows, curve.largest()));
}

int32_t Scheduler::DraftsWorth(std::span<const double> acceptance, double draft_ms, int32_t most) {
  const CostCurve& curve = company_ == Company::kBoth ? beside_ : streams_;
  if (company_ == Company::kPrompts || !curve.known() || planned_rows_ == 0) return 0;
  const auto sequences = static_cast<int32_t>(acceptance.size());
  std::vector<double> gains(acceptance.size(), 1);
  double tokens = planned_rows_;
  double best = tokens / MsWithDrafts(planned_rows_) * (1 + kDraftGainMin);
  int32_t count = 0;
  for (int32_t k = 1; k <= most && planned_rows_ + k * sequences <= rows_max_; ++k) {
    for (size_t i = 0; i < gains.size(); ++i) tokens += gains[i] *= acceptance[i];
    const double rate = tokens / (MsWithDrafts(planned_rows_ + k * sequences) + k * draft_ms);
    if (rate <= best) continue;
    best = rate;
    count = k;
  }
  if (count == 0 && IsTry(++unasked_)) return std::min(1, most);
  if (count > 0) unasked_ = 0;
  return count;
}

std::vector<int32_t> Scheduler::PlanDrafts(std::span<const DraftWish> wishes, int32_t count_max) {
  struct Next {
    double gain;  // tokens that the next row of the wish is expected to add
    size_t wish;
    bool operator<(const Next& other) const {
      return gain != other.gain ? gain < other.gain : wish > other.wish;
    }
  };
  std::vector<int32_t> plan(wishes.size(), 0);
  const CostCurve& curve = company_ == Company::kBoth ? beside_ : streams_;
  if (company_ == Company::kPrompts || !curve.known() || planned_rows_ == 0) return plan;
  std::vector<Next> next;
  for (size_t i = 0; i < wishes.size(); ++i) {
    if (wishes[i].rows > 0) next.push_back({wishes[i].acceptance, i});
  }
  if (next.empty()) return plan;
  std::make_heap(next.begin(), next.end());
  const int32_t rows_max = std::min(
      {rows_max_, planned_rows_ + count_max, 2 * std::max(curve.largest(), planned_rows_) + 1});
  // Rows in the order of what they add, each behind those before it of its sequence; the best rate
  // on the way says how many.
  std::vector<size_t> order;
  double tokens = planned_rows_;
  double best = tokens / MsWithDrafts(planned_rows_) * (1 + kDraftGainMin);
  size_t best_count = 0;
  size_t promising = 0;  // of the order: they are likelier than not to be right
  while (!next.empty() && planned_rows_ + static_cast<int32_t>(order.size()) < rows_max) {
    std::pop_heap(next.begin(), next.end());
    const Next one = next.back();
    next.pop_back();
    order.push_back(one.wish);
    if (one.gain >= kPromising) promising = order.size();
    tokens += one.gain;
    const double rate = tokens / MsWithDrafts(planned_rows_ + static_cast<int32_t>(order.size()));
    if (rate > best) {
      best = rate;
      best_count = order.size();
    }
    const DraftWish& wish = wishes[one.wish];
    if (++plan[one.wish] == wish.rows) continue;
    next.push_back({one.gain * wish.acceptance, one.wish});
    std::push_heap(next.begin(), next.end());
  }
  std::fill(plan.begin(), plan.end(), 0);
  if (promising > best_count && best_count == 0) {
    if (IsTry(++rests_)) best_count = 1;
  } else if (promising > best_count && ++rests_ >= kSomeMax) {
    best_count = std::min(promising, 2 * best_count + 1);
    rests_ = 0;
  }
  for (size_t i = 0; i < best_count; ++i) ++plan[order[i]];
  drafts_ = best_count > 0;
  return plan;
}

}  // namespace reprise
