// SPDX-License-Identifier: Apache-2.0
#include "engine/draft/model_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/request.h"

namespace reprise {
namespace {

// Where there was no room for the state of a sequence, it is tried again so many tokens later.
constexpr size_t kLookGap = 64;
// Weight of the newest pass in what passes take.
constexpr double kNewest = 0.25;

}  // namespace

Result<std::shared_ptr<ModelDrafter>> ModelDrafter::Create(Executor& executor,
                                                           const CacheOptions& options,
                                                           const Clock& clock) {
  REPRISE_ASSIGN(auto cache,
                 StateCache::Create(executor.card().state, options, executor.memory()));
  return std::shared_ptr<ModelDrafter>(
      new ModelDrafter(executor, std::move(cache), options.context_tokens, clock));
}

ModelDrafter::ModelDrafter(Executor& executor, std::unique_ptr<StateCache> cache,
                           int32_t context_tokens, const Clock& clock)
    : executor_(executor),
      cache_(std::move(cache)),
      context_tokens_(context_tokens),
      clock_(clock) {}

void ModelDrafter::Propose(std::span<DraftJob* const> jobs) {
  cache_->SetTime(clock_.NowMs());
  runs_.clear();
  int32_t left = kRowsMax;
  int32_t most = 0;
  for (DraftJob* job : jobs) {
    Run run;
    if (left == 0 || !Follow(job) || !Plan(job, left, &run)) continue;
    left -= run.rows;
    most = std::max(most, run.drafts);
    runs_.push_back(run);
  }
  if (runs_.empty()) return;
  Status passed = Pass(0);
  const int64_t begin_ns = clock_.NowNs();
  int32_t passes = 0;
  for (int32_t i = 1; i < most && passed.ok(); ++i, ++passes) passed = Pass(i);
  if (passes > 0) {
    const double ms = static_cast<double>(clock_.NowNs() - begin_ns) / 1e6 / passes;
    draft_ms_ = std::max(1e-6, draft_ms_ < 1e-5 ? ms : draft_ms_ + kNewest * (ms - draft_ms_));
  }
  for (const Run& run : runs_) {
    DraftMemory::Model& own = run.job->memory->model;
    if (passed.ok()) {
      passed = cache_->Commit(own.lease, {.token_count = run.rows, .finite = run.finite});
      if (passed.ok()) cache_->DropDrafts(own.lease);
    }
    if (passed.ok()) continue;
    // Its state is lost, or was never any.
    own.lease = Lease();
    own.look_at = run.job->lease->tokens().size() + kLookGap;
    own.over = !run.finite;
    if (own.over) passed = OkStatus();  // of this sequence alone
    run.job->tokens.clear();
  }
}

void ModelDrafter::End(DraftMemory* memory) {
  Lease& lease = memory->model.lease;
  if (lease.valid() && lease.started()) cache_->Finish(std::move(lease));
  lease = Lease();
}

// Brings the lease of the small model to the tokens of the sequence. False: not in this step.
bool ModelDrafter::Follow(DraftJob* job) {
  DraftMemory::Model& own = job->memory->model;
  const auto tokens = job->lease->tokens();
  const auto vocab = static_cast<TokenId>(executor_.card().vocab_size);
  // Those below 0 stand for a picture.
  const auto known = [&](TokenId token) { return token >= 0 && token < vocab; };
  while (own.known < tokens.size() && known(tokens[own.known])) ++own.known;
  own.over = own.over || own.known < tokens.size() ||
             tokens.size() + static_cast<size_t>(job->count) >=
                 static_cast<size_t>(context_tokens_);
  if (own.over) {
    own.lease = Lease();
    return false;
  }
  if (!own.lease.valid() && !Start(job)) return false;
  cache_->Append(own.lease, tokens.subspan(own.lease.tokens().size()));
  return !cache_->Filling(own.lease);
}

bool ModelDrafter::Start(DraftJob* job) {
  DraftMemory::Model& own = job->memory->model;
  const auto tokens = job->lease->tokens();
  if (tokens.size() < own.look_at) return false;
  const GenerateRequest& request = *job->request;
  const NamespaceKey key{executor_.card().digest, request.salt};
  CacheRequest wanted;
  wanted.key = &key;
  wanted.tokens = tokens;
  wanted.boundaries = request.boundaries;
  wanted.min_cache_tokens = request.min_cache_tokens;
  wanted.read = request.cache_read;
  wanted.write = request.cache_write;
  wanted.session = request.session;
  wanted.low = request.cache_low;
  wanted.tenant = request.tenant;
  wanted.tenant_weight = request.tenant_weight;
  own.lease = cache_->Acquire(wanted);
  if (cache_->Start(own.lease).ready()) return true;
  own.lease = Lease();
  own.look_at = tokens.size() + kLookGap;
  return false;
}

// What the sequence has in the passes. False: there is no room for it.
bool ModelDrafter::Plan(DraftJob* job, int32_t rows_max, Run* run) {
  Lease& lease = job->memory->model.lease;
  const int32_t behind = static_cast<int32_t>(lease.tokens().size()) - lease.computed();
  if (behind == 0) return false;  // the step that should have followed has failed
  run->job = job;
  run->rows = std::min(behind, rows_max);
  if (!cache_->Reserve(lease, run->rows).ok()) {
    job->memory->model.look_at = lease.tokens().size() + kLookGap;
    lease = Lease();  // others need the room
    return false;
  }
  run->state = lease.state();
  if (run->rows < behind) return true;
  run->drafts = 1 + cache_->ReserveDrafts(lease, run->rows, job->count - 1);
  return true;
}

Status ModelDrafter::Pass(int32_t index) {
  tokens_.clear();
  slices_.clear();
  logit_rows_.clear();
  taps_.clear();
  taps_.reserve(runs_.size());  // slices refer to them
  for (Run& run : runs_) {
    if (index == 0 || index < run.drafts) AddRows(&run, index);
  }
  finite_.assign(slices_.size(), 0);
  logits_.resize(logit_rows_.size() * static_cast<size_t>(executor_.card().vocab_size));
  REPRISE_TRY(executor_.Forward({tokens_, slices_, logit_rows_, finite_}, cache_->memory(),
                                logits_.data()));
  Choose(index);
  return OkStatus();
}

void ModelDrafter::AddRows(Run* run, int32_t index) {
  const Lease& lease = run->job->memory->model.lease;
  const int32_t begin = lease.computed();
  SequenceSlice slice;
  slice.row_begin = static_cast<uint32_t>(tokens_.size());
  slice.past = lease.extent();
  slice.blocks = lease.blocks();
  slice.state = run->state;
  slice.space = lease.space();
  if (index == 0) {
    slice.row_count = static_cast<uint32_t>(run->rows);
    const auto known = lease.tokens().subspan(static_cast<size_t>(begin), slice.row_count);
    tokens_.insert(tokens_.end(), known.begin(), known.end());
    std::vector<StateTap>& taps = taps_.emplace_back();
    for (const PendingSnapshot& one : lease.pending()) {
      taps.push_back({static_cast<uint32_t>(one.position - begin), one.state});
    }
    if (!lease.draft_states().empty()) {
      taps.push_back({slice.row_count, lease.draft_states().front()});
    }
    slice.taps = taps;
  } else {
    slice.row_count = 1;
    slice.past = slice.past + (run->rows + index - 1);
    tokens_.push_back(run->job->tokens.back());
  }
  slices_.push_back(slice);
  if (run->drafts == 0) return;
  run->row = logit_rows_.size();
  logit_rows_.push_back(static_cast<uint32_t>(tokens_.size() - 1));
}

// The likeliest token of every run in the pass.
void ModelDrafter::Choose(int32_t index) {
  const auto vocab = static_cast<size_t>(executor_.card().vocab_size);
  size_t slice = 0;
  for (Run& run : runs_) {
    if (index > 0 && index >= run.drafts) continue;
    const bool finite = finite_[slice++] != 0;
    if (index == 0) run.finite = finite;
    if (run.drafts == 0) continue;
    const float* logits = logits_.data() + run.row * vocab;
    const auto best = std::max_element(logits, logits + vocab);
    run.job->tokens.push_back(static_cast<TokenId>(best - logits));
    run.job->grade = DraftGrade::kModel;
    if (!finite) run.drafts = index + 1;  // what comes behind it means nothing
  }
}

}  // namespace reprise
