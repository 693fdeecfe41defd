// SPDX-License-Identifier: Apache-2.0
// Engine: drafts as rows of a step (draft/drafter.h), and what becomes of them.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/draft/constraint_ahead.h"
#include "engine/draft/mtp_drafter.h"
#include "engine/draft/text_drafters.h"
#include "engine/engine.h"
#include "engine/sequence.h"

namespace reprise {
namespace {

// Behind one token, with which they are 16 rows: products take those at a time. More are hardly
// ever right, and models with recurrent state keep one for each.
constexpr int32_t kDraftsMax = 15;
// Logits of a step that are there for drafts are kept to this many floats.
constexpr int64_t kDraftFloatsMax = int64_t{1} << 24;

}  // namespace

void Engine::MakeDrafters() {
  drafters_ = options_.speculation.drafters;
  drafters_.push_back(std::make_shared<PredictionDrafter>());
  drafters_.push_back(std::make_shared<TreeDrafter>(*cache_));
  drafters_.push_back(std::make_shared<NgramDrafter>());
  if (executor_.card().mtp_state) {
    drafters_.push_back(std::make_shared<MtpDrafter>(executor_, *cache_, clock_));
  }
  if (options_.speculation.model) drafters_.push_back(options_.speculation.model);
}

void Engine::PrepareSpeculation(Sequence& sequence) const {
  GenerateRequest& request = sequence.request;
  const Speculate mode = request.speculate.value_or(options_.speculation.mode);
  if (mode == Speculate::kOff || request.max_tokens < 2) return;
  sequence.speculation = std::make_unique<Speculation>(mode);
  sequence.speculates = true;
  if (chooses_ && request.constraint) {
    request.constraint = std::make_shared<ConstraintAhead>(std::move(request.constraint));
  }
  DraftMemory::Prediction& prediction = sequence.speculation->memory.prediction;
  prediction.tokens = std::move(request.prediction);
  prediction.seen = request.prompt.size();
}

SpeculationReport Engine::ReportOf(const Sequence& sequence) const {
  if (sequence.speculation) return sequence.speculation->report;
  SpeculationReport report;
  const GenerateRequest& request = sequence.request;
  const Speculate mode = request.speculate.value_or(options_.speculation.mode);
  if (mode == Speculate::kOff) report.rest = DraftRest::kOff;
  return report;
}

// How many drafts the sequence could have in the next step, whatever they are worth.
int32_t Engine::DraftsMax(const Sequence& sequence) const {
  const auto size = static_cast<int32_t>(sequence.lease.tokens().size());
  // The last token of a reply is not run.
  int32_t most = std::min({kDraftsMax, sequence.request.max_tokens - sequence.generated - 1,
                           context_tokens_ - size - 1});
  if (sequence.compaction) {
    most = std::min(most, sequence.compaction->UnwatchedFrom(sequence.lease.computed()) - 1);
  }
  return std::max(0, most);
}

// Drafts for the sequences of shares_ that decode: those that are proposed, and how many of them
// are run.
void Engine::PlanDrafts() {
  std::vector<DraftJob>& jobs = scratch_.jobs;
  std::vector<Share*>& drafting = scratch_.drafting;
  jobs.clear();
  drafting.clear();
  for (Share& share : shares_) {
    Sequence& sequence = *share.sequence;
    if (!sequence.speculates) continue;
    Speculation& speculation = *sequence.speculation;
    speculation.drafts.clear();
    if (sequence.generated == 0 || sequence.rows_ready() != 1) continue;
    if (sequence.slow) {
      speculation.report.rest = DraftRest::kSlow;
      continue;
    }
    DraftJob job;
    job.lease = &sequence.lease;
    job.request = &sequence.request;
    job.memory = &speculation.memory;
    job.mode = speculation.mode;
    job.has_pictures = sequence.sight != nullptr;
    job.count = DraftsMax(sequence);
    if (job.count == 0) continue;
    jobs.push_back(std::move(job));
    drafting.push_back(&share);
  }
  if (jobs.empty()) return;
  Propose();
  PlanWindows();
}

// The first drafter that has something is believed; one that improves, if what there is is less
// likely to be right and it has something itself.
void Engine::Propose() {
  std::vector<DraftJob>& jobs = scratch_.jobs;
  std::vector<DraftJob*> asked;
  std::vector<std::vector<TokenId>> before;  // what those had that are asked
  const auto wants = [&](const Drafter& drafter, const DraftJob& job) {
    if (job.tokens.empty() || !drafter.improves()) return job.tokens.empty();
    const auto i = static_cast<size_t>(&job - jobs.data());
    const Acceptance& acceptance = scratch_.drafting[i]->sequence->speculation->acceptance;
    return acceptance.Of(job.grade) < acceptance.Of(drafter.grade());
  };
  for (const auto& drafter : drafters_) {
    asked.clear();
    for (DraftJob& job : jobs) {
      if (drafter->Serves(job.mode) && wants(*drafter, job)) asked.push_back(&job);
    }
    if (asked.empty() || !AreWorthAsking(*drafter, asked)) continue;
    before.clear();
    for (DraftJob* job : asked) before.push_back(std::exchange(job->tokens, {}));
    drafter->Propose(asked);
    for (size_t at = 0; at < asked.size(); ++at) {
      DraftJob* const job = asked[at];
      if (job->tokens.empty() && !before[at].empty()) {
        job->tokens = std::move(before[at]);
        continue;
      }
      const size_t i = static_cast<size_t>(job - jobs.data());
      if (job->tokens.size() > static_cast<size_t>(job->count)) job->tokens.resize(job->count);
      // What a client predicts may have tokens that the model does not.
      const auto unknown = std::find_if(job->tokens.begin(), job->tokens.end(), [&](TokenId token) {
        return token < 0 || token >= executor_.card().vocab_size;
      });
      job->tokens.erase(unknown, job->tokens.end());
      Speculation& speculation = *scratch_.drafting[i]->sequence->speculation;
      speculation.drafts = job->tokens;
      speculation.grade = job->grade;
      speculation.source = drafter->source();
    }
  }
}

// Limits how many drafts each job asks for. False: none.
bool Engine::AreWorthAsking(const Drafter& drafter, std::span<DraftJob* const> asked) {
  if (drafter.draft_ms() <= 0) return true;
  int32_t most = options_.speculation.window;
  if (most <= 0) {
    std::vector<double> acceptance;
    for (const DraftJob* job : asked) {
      const auto i = static_cast<size_t>(job - scratch_.jobs.data());
      const Speculation& speculation = *scratch_.drafting[i]->sequence->speculation;
      acceptance.push_back(speculation.acceptance.Of(drafter.grade()));
    }
    most = scheduler_.DraftsWorth(acceptance, drafter.draft_ms(), kDraftsMax);
  }
  for (DraftJob* job : asked) {
    job->count = std::min(job->count, most);
    job->dear = most == 0;
  }
  return most > 0;
}

void Engine::PlanWindows() {
  const auto vocab = executor_.card().vocab_size;
  const auto shares = static_cast<int64_t>(shares_.size());
  int32_t left = static_cast<int32_t>(std::max<int64_t>(0, kDraftFloatsMax / vocab - shares));
  std::vector<int32_t> windows;
  const int32_t fixed = options_.speculation.window;
  if (fixed > 0) {
    left = std::min(left, scheduler_.rows_left());
    for (const DraftJob& job : scratch_.jobs) {
      const auto rows = static_cast<int32_t>(job.tokens.size());
      windows.push_back(std::min({rows, fixed, left}));
      left -= windows.back();
    }
  } else {
    std::vector<DraftWish> wishes;
    for (size_t i = 0; i < scratch_.jobs.size(); ++i) {
      const DraftJob& job = scratch_.jobs[i];
      const Speculation& speculation = *scratch_.drafting[i]->sequence->speculation;
      wishes.push_back(
          {static_cast<int32_t>(job.tokens.size()), speculation.acceptance.Of(job.grade)});
    }
    windows = scheduler_.PlanDrafts(wishes, left);
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    Share& share = *scratch_.drafting[i];
    share.drafts = windows[i];
    const bool nothing = scratch_.jobs[i].tokens.empty() && !scratch_.jobs[i].dear;
    share.sequence->speculation->report.rest = windows[i] > 0 ? DraftRest::kNone
                                               : nothing      ? DraftRest::kNothing
                                                              : DraftRest::kCost;
  }
}

// REQUIRES: the other rows of the share are reserved.
void Engine::ReserveDrafts(Share& share) {
  if (share.drafts == 0) return;
  share.drafts = cache_->ReserveDrafts(share.sequence->lease, share.rows, share.drafts);
  if (share.drafts == 0) share.sequence->speculation->report.rest = DraftRest::kMemory;
}

// False: a state of the step is not finite, perhaps only behind drafts that would not be kept. The
// sequence goes on from what is cached, without any, and so finds out.
bool Engine::BeginDrafts(const Share& share) {
  Sequence& sequence = *share.sequence;
  CountDrafts(sequence, {.run = static_cast<uint64_t>(share.drafts)});
  if (finite_[static_cast<size_t>(&share - shares_.data())] != 0) return true;
  sequence.speculates = false;
  sequence.speculation->report.rest = DraftRest::kSpoilt;
  SendBack(sequence, /*lost=*/true);
  return false;
}

void Engine::CountDrafts(const Sequence& sequence, DraftCount more) {
  Speculation& speculation = *sequence.speculation;
  for (DraftCounts* counts : {&speculation.report.drafts, &counters_.drafts}) {
    DraftCount& count = (*counts)[static_cast<size_t>(speculation.source)];
    count.run += more.run;
    count.accepted += more.accepted;
  }
}

// Every sequence has its first token of the step. Where that is the draft that was run behind it,
// the logits for the next one are there, too; and so on, in rounds, until every run of drafts has
// come to its end.
void Engine::TakeDrafts() {
  std::vector<Share*>& drafting = scratch_.drafting;
  drafting.clear();
  for (Share& share : shares_) {
    if (share.drafts > 0 && share.sequence->speculates) drafting.push_back(&share);
  }
  while (!drafting.empty()) {
    std::vector<StepSampler::Row>& rows = scratch_.rows;
    rows.clear();
    std::erase_if(drafting, [&](Share* share) { return !TakeDraft(*share); });
    if (chosen_on_device_) {
      for (const Share* share : drafting) {
        const auto behind = static_cast<size_t>(share->accepted);
        Continue(*share->sequence, choices_.Take(share->logit_begin + behind));
      }
      continue;
    }
    for (const Share* share : drafting) {
      const int32_t row = share->rows + share->accepted - 1;
      rows.push_back(RowOf(*share->sequence, LogitsOf(*share, row)));
    }
    const std::span<Result<Sampled>> sampled = sampler_.Sample(rows);
    for (size_t i = 0; i < drafting.size(); ++i) {
      Continue(*drafting[i]->sequence, std::move(sampled[i]));
    }
  }
  for (const Share& share : shares_) {
    if (share.sequence->speculates) NoteDrafts(share);
  }
}

// Commits drafts that are the tokens of the sequence, until it needs another token: then the logits
// behind the last of them choose it. False: the run of drafts has ended.
bool Engine::TakeDraft(Share& share) {
  Sequence& sequence = *share.sequence;
  // What takes long to ask for is asked beside other steps.
  if (sequence.finished || sequence.ahead) return false;
  const std::vector<TokenId>& drafts = sequence.speculation->drafts;
  const bool told = chosen_on_device_ && sequence.request.constraint;
  const auto last = told ? static_cast<int32_t>(AheadOf(sequence).masks().size()) : share.drafts;
  while (sequence.rows_ready() > 0) {
    const TokenId token = sequence.lease.tokens()[static_cast<size_t>(sequence.lease.computed())];
    if (share.accepted >= last || drafts[static_cast<size_t>(share.accepted)] != token) {
      return false;
    }
    if (!CommitRows(share, share.rows + share.accepted, 1)) return false;
    ++share.accepted;
    CountDrafts(sequence, {.accepted = 1});
  }
  if (!sequence.request.constraint || told) return true;
  sequence.FillAllowed();
  if (sequence.allowed_status.ok()) return true;
  Finish(sequence, FinishReason::kFailed, sequence.allowed_status);
  return false;
}

// What the step says about the drafts that were run, or about the first of those that were not.
void Engine::NoteDrafts(const Share& share) {
  Sequence& sequence = *share.sequence;
  Speculation& speculation = *sequence.speculation;
  const std::vector<TokenId> drafts = std::exchange(speculation.drafts, {});
  if (drafts.empty()) return;
  const auto note = [&](bool right) { speculation.acceptance.Note(speculation.grade, right); };
  if (share.drafts > 0) {
    for (int32_t i = 0; i < share.accepted; ++i) note(true);
    if (share.accepted < share.drafts && !sequence.finished) note(false);
    if (sequence.lease.valid() && sequence.lease.started()) cache_->DropDrafts(sequence.lease);
  } else if (!sequence.finished && sequence.rows_ready() > 0) {
    const auto next = static_cast<size_t>(sequence.lease.computed());
    note(sequence.lease.tokens()[next] == drafts[0]);
  }
}

}  // namespace reprise
