// SPDX-License-Identifier: Apache-2.0
#include "engine/draft/mtp_drafter.h"

#include <algorithm>

#include "engine/request.h"
#include "engine/sight/sight.h"

namespace reprise {
namespace {

// Weight of the newest pass in what passes take.
constexpr double kNewest = 0.25;
// ... and a token's, in how many are rare.
constexpr double kNewestToken = 1.0 / 64;
// More rare tokens than that cost more right guesses than the others save time.
constexpr double kRareMax = 0.1;

}  // namespace

void MtpDrafter::Propose(std::span<DraftJob* const> jobs) {
  runs_.clear();
  for (DraftJob* job : jobs) {
    Run run;
    if (Plan(job, &run)) runs_.push_back(run);
  }
  if (runs_.empty()) return;
  // Runs that have ended are the last rows, so that those of the others stay where they are.
  std::stable_sort(runs_.begin(), runs_.end(),
                   [](const Run& a, const Run& b) { return a.drafts > b.drafts; });
  hidden_.resize(runs_.size() * static_cast<size_t>(executor_.card().dim));
  const int64_t begin_ns = clock_.NowNs();
  int32_t passes = 0;
  while (passes < runs_.front().drafts && Pass(passes).ok()) ++passes;
  if (passes == 0) return;
  const double ms = static_cast<double>(clock_.NowNs() - begin_ns) / 1e6 / passes;
  draft_ms_ = std::max(1e-6, draft_ms_ < 1e-5 ? ms : draft_ms_ + kNewest * (ms - draft_ms_));
}

size_t MtpDrafter::Width() const {
  const ModelCard& card = executor_.card();
  const bool common = card.common_tokens > 0 && rare_ <= kRareMax;
  return static_cast<size_t>(common ? card.common_tokens : card.vocab_size);
}

// Room for the rows, as the step that runs them will reserve it again. False: there is none.
bool MtpDrafter::Plan(DraftJob* job, Run* run) {
  if (job->count <= 0) return false;
  if (!cache_.Reserve(*job->lease, 1).ok()) return false;
  run->job = job;
  run->drafts = cache_.ReserveDrafts(*job->lease, 1, job->count);
  cache_.DropDrafts(*job->lease);  // only the step leaves states; what K/V takes stays
  return run->drafts > 0;
}

Status MtpDrafter::Pass(int32_t index) {
  tokens_.clear();
  slices_.clear();
  rows_.clear();
  places_.clear();
  bool seen = false;
  for (const Run& run : runs_) {
    if (index >= run.drafts) break;
    const Lease& lease = *run.job->lease;
    SequenceSlice slice;
    slice.row_begin = static_cast<uint32_t>(tokens_.size());
    slice.row_count = 1;
    slice.past = lease.extent() + index;
    slice.blocks = lease.blocks();
    slice.state = lease.state();
    slice.space = lease.space();
    slice.adapter = run.job->request->adapter.get();
    slices_.push_back(slice);
    rows_.push_back(slice.row_begin);
    const int32_t position = slice.past.logical;
    places_.push_back(run.job->has_pictures ? Sight(run.job->request->pictures).PlaceOf(position)
                                            : std::array{position, position, position});
    seen = seen || run.job->has_pictures;
    tokens_.push_back(index == 0 ? lease.last_token() : run.job->tokens.back());
    if (index > 0) continue;
    const bool rare = tokens_.back() >= executor_.card().common_tokens;
    rare_ += kNewestToken * ((rare ? 1 : 0) - rare_);
  }
  const ModelCard& card = executor_.card();
  const size_t width = Width();
  finite_.assign(tokens_.size(), 0);
  logits_.resize(tokens_.size() * width);
  const auto hidden = std::span(hidden_).first(tokens_.size() * static_cast<size_t>(card.dim));
  BatchView batch = {tokens_, slices_, rows_, finite_};
  if (seen) batch.places = places_;
  REPRISE_TRY(executor_.Predict(batch, cache_.memory(), index == 0, hidden, logits_));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    // A guess that is no number is one of any token: the step that runs it says no.
    const float* logits = logits_.data() + i * width;
    DraftJob& job = *runs_[i].job;
    job.tokens.push_back(static_cast<TokenId>(std::max_element(logits, logits + width) - logits));
    job.grade = DraftGrade::kMtp;
  }
  return OkStatus();
}

}  // namespace reprise
