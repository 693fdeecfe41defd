// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/draft/constraint_ahead.h"
#include "engine/near.h"
#include "engine/sequence.h"
#include "model/adapter/adapter.h"
#include "state/virtual_tokens.h"

namespace reprise {
namespace {

// Logits of a sequence that is watched are wanted at every row: its steps are kept to this many
// floats.
constexpr int64_t kWatchedFloatsMax = int64_t{1} << 24;
// How long the thread sleeps when there is nothing to do; expiry of entries needs no finer clock.
constexpr std::chrono::milliseconds kIdleWait{500};
// ... and when only transfers from lower tiers are under way.
constexpr std::chrono::milliseconds kMoveWait{1};

double MsBetween(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) / 1e6;
}

// The tokens from `begin` on as the model runs them: what stands for the first token that invokes
// an adapter becomes that token.
void Unmark(const Sequence& sequence, int32_t begin, std::span<TokenId> tokens) {
  const int64_t at = int64_t{sequence.adapted_from} - begin;
  if (!sequence.marked || at < 0 || at >= static_cast<int64_t>(tokens.size())) return;
  tokens[static_cast<size_t>(at)] = sequence.request.adapter->invocation().front();
}

// Adds what one lease of a request stored to the report of the request.
void NoteStored(const ReuseReport& lease, ReuseReport* report) {
  report->stored_tokens = std::max(report->stored_tokens, lease.stored_tokens);
  report->restore_ns = std::max(report->restore_ns, lease.restore_ns);  // large states: later
  report->snapshots_taken += lease.snapshots_taken;
  report->snapshots_declined += lease.snapshots_declined;
}

}  // namespace

Engine::Engine(Executor& executor, std::unique_ptr<StateCache> cache, const EngineOptions& options,
               const Clock& clock)
    : executor_(executor),
      chooses_(executor.chooses()),
      cache_(std::move(cache)),
      options_(options),
      clock_(clock),
      context_tokens_(options.context_tokens > 0
                          ? options.context_tokens
                          : static_cast<int32_t>(executor.card().context_length)),
      scheduler_(options.scheduler),
      sampler_(executor.pool()),
      roster_(options.running_max),
      cancels_(std::make_shared<Cancels>()) {
  MakeDrafters();
}

Engine::~Engine() { Stop(); }

// One iteration: the path of a request, stage by stage.
bool Engine::Step() {
  cache_->SetTime(clock_.NowMs());
  roster_.SetTime(clock_.NowMs());
  Admit();
  DropCancelled();
  if (sleeping_ || FallsAsleep()) {
    (void)Idle();
    return false;
  }
  StartWaiting();
  PlanStep();
  const bool looked = looking_ != nullptr;
  if (looked) Look();
  Reserve();
  if (shares_.empty()) return looked || filling_ || filler_.AwaitAhead() || Idle();
  resting_ = false;
  const Status computed = Forward();
  computed.ok() ? Commit() : Recover(computed);
  RemoveFinished();
  PublishStats();
  return true;
}

// To rows that what the sequence asks for beside its reply lets one step have.
void Engine::Restrict(const Sequence& sequence, Runnable* one) const {
  if (sequence.request.on_logits) {
    const int64_t rows = std::max<int64_t>(1, kWatchedFloatsMax / executor_.card().vocab_size);
    one->rows_max = static_cast<int32_t>(std::min<int64_t>(one->rows_max, rows));
  }
  if (sequence.compaction) {
    const int32_t rows = sequence.compaction->RowsFrom(sequence.lease.computed());
    one->rows_max = std::min(one->rows_max, rows);
  }
  one->idle = sequence.request.idle;
}

// Whether the sequence may have rows: as many as come before what the tower has not looked at yet.
bool Engine::Sees(Sequence& sequence, Runnable* one) {
  const int32_t computed = sequence.lease.computed();
  sequence.sight->Forget(computed);
  const int32_t blind = sequence.sight->BlindFrom(computed);
  if (blind == Sight::kNowhere) return true;
  if (blind == computed && looking_ == nullptr) looking_ = &sequence;
  one->rows_max = std::min(one->rows_max, blind - computed);
  return blind > computed;
}

// The rows that a step has of a sequence which was to have `rows`: where the rows of a picture see
// one another, all of it or nothing.
int32_t Engine::WholeRows(const Sequence& sequence, int32_t rows) const {
  if (sequence.sight == nullptr || !executor_.card().whole_pictures) return rows;
  return sequence.sight->WholeRows(sequence.lease.computed(), rows);
}

// The tower looks at a part of a picture beside the rows of others: it delays them by so much. What
// it has no memory for is tried once more, with what was cached given back.
void Engine::Look() {
  constexpr size_t kBytes = size_t{256} << 20;
  Sequence& sequence = *looking_;
  const int64_t begin_ns = clock_.NowNs();
  const Status looked = sequence.sight->Look(executor_, sequence.lease.computed());
  counters_.busy_ms += MsBetween(begin_ns, clock_.NowNs());
  const bool full = looked.code() == StatusCode::kResourceExhausted;
  if (!looked.ok() && full && !look_retried_ && cache_->GiveWay(kBytes)) {
    look_retried_ = true;
    return;
  }
  look_retried_ = false;
  if (!looked.ok()) Finish(sequence, FinishReason::kFailed, looked);
}

// Into shares_.
void Engine::PlanStep() {
  std::vector<Runnable>& runnables = scratch_.runnables;
  std::vector<Sequence*>& sequences = scratch_.sequences;
  runnables.clear();
  sequences.clear();
  looking_ = nullptr;
  const auto add = [&](Sequence& sequence) {
    if (!sequence.plain && sequence.awaits_mask()) return;
    Runnable one;
    one.rows_ready = sequence.rows_ready();
    one.rows_max = one.rows_ready;
    one.decoding = sequence.generated > 0 && one.rows_ready == 1;
    if (!sequence.plain) Restrict(sequence, &one);
    if (!sequence.plain && sequence.sight && !Sees(sequence, &one)) return;
    one.priority = sequence.lent_priority;
    one.arrival = sequence.arrival;
    one.crowds = sequence.tenant != nullptr && roster_.Crowds(sequence);
    sequence.lease.PrefetchEnd();  // where Append will write: pages of their own come slowly
    runnables.push_back(one);
    sequences.push_back(&sequence);
  };
  const auto running = roster_.running();
  const Compaction* choosing = nullptr;
  const Lease* filling = nullptr;
  for (size_t i = 0; i < running.size(); ++i) {
    if (i + kNear < running.size()) running[i + kNear]->lease.Prefetch();
    if (i + 2 * kNear < running.size()) running[i + 2 * kNear]->Prefetch();
    Sequence& one = *running[i];
    if (!one.plain && one.compaction && one.compaction->begun() && !one.compaction->chosen()) {
      choosing = &*one.compaction;  // others go on meanwhile
    } else if (cache_->Filling(one.lease)) {
      filling = &one.lease;
    } else {
      add(one);
    }
  }
  if (runnables.empty() && choosing != nullptr && filling == nullptr && looking_ == nullptr) {
    background_.WaitUntil([&] { return choosing->chosen(); });
    return PlanStep();
  }
  if (!idle_.empty() && idle_.front()->lease.valid()) {
    Sequence& idle = *idle_.front();
    cache_->Filling(idle.lease) ? void(filling = &idle.lease) : add(idle);
  }
  filling_ = runnables.empty() && filling != nullptr;
  if (filling_) cache_->AwaitFilled(*filling, kMoveWait);
  const StepPlan plan = scheduler_.Plan(runnables);
  shares_.clear();
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i] > 0) shares_.push_back({sequences[i], WholeRows(*sequences[i], plan[i])});
  }
  PlanDrafts();
}

// Fails as Model::Forward does.
Status Engine::Forward() {
  std::vector<TokenId>& tokens = scratch_.tokens;
  std::vector<SequenceSlice>& slices = scratch_.slices;
  std::vector<uint32_t>& logit_rows = scratch_.logit_rows;
  tokens.clear();
  slices.clear();
  logit_rows.clear();
  chosen_on_device_ = ChoosesOnDevice();
  std::deque<std::vector<StateTap>> taps;  // slices refer to them
  std::vector<std::function<void()>> masks;
  std::vector<WatchedRows> watched;
  bool pools = false, sees = false;
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (i + kNear < shares_.size()) shares_[i + kNear].sequence->lease.Prefetch();
    Share& share = shares_[i];
    Sequence& sequence = *share.sequence;
    const Lease& lease = sequence.lease;
    const auto known = lease.tokens();
    SequenceSlice slice;
    slice.past = lease.extent();
    const int32_t begin = slice.past.logical;
    const int32_t end = begin + share.rows;
    slice.row_begin = static_cast<uint32_t>(tokens.size());
    share.row_begin = tokens.size();
    pools = pools || (!sequence.plain && sequence.request.pooling != Pooling::kNone);
    slice.row_count = static_cast<uint32_t>(share.rows + share.drafts);
    slice.blocks = lease.blocks();
    slice.state = lease.state();
    slice.space = lease.space();
    slice.adapter = sequence.request.adapter.get();
    slice.adapted_from = static_cast<uint32_t>(std::max(0, sequence.adapted_from - begin));
    if (!lease.pending().empty()) {
      taps.emplace_back();
      for (const PendingSnapshot& one : lease.pending()) {
        taps.back().push_back({static_cast<uint32_t>(one.position - begin), one.state});
      }
      slice.taps = taps.back();
    }
    if (!lease.draft_states().empty()) {
      taps.emplace_back();
      for (const StateId state : lease.draft_states()) {
        const auto behind = static_cast<uint32_t>(share.rows) + uint32_t(taps.back().size());
        taps.back().push_back({behind, state});
      }
      slice.taps = taps.back();
    }
    if (!sequence.plain && sequence.compaction) {
      REPRISE_ASSIGN(auto rows, sequence.compaction->Watch(executor_, slice.past, share.rows));
      if (rows) watched.emplace_back(*rows).sequence = static_cast<uint32_t>(i);
    }
    const bool complete = end == static_cast<int32_t>(known.size());
    if (share.rows == 1 && complete) {
      tokens.push_back(lease.last_token());
    } else {
      tokens.insert(tokens.end(), known.begin() + begin, known.begin() + end);
    }
    Unmark(sequence, begin, std::span(tokens).subspan(share.row_begin));
    if (share.drafts > 0) {
      const std::vector<TokenId>& drafts = sequence.speculation->drafts;
      tokens.insert(tokens.end(), drafts.begin(), drafts.begin() + share.drafts);
    }
    slices.push_back(slice);
    sees = sees || sequence.sight != nullptr;
    const bool all = !sequence.plain && sequence.request.on_logits;
    const bool last = complete && (sequence.plain || sequence.request.max_tokens > 0);
    share.logit_begin = logit_rows.size();
    share.logit_count = static_cast<size_t>((all ? share.rows : last ? 1 : 0) + share.drafts);
    for (size_t row = share.logit_count; row > 0; --row) {
      logit_rows.push_back(static_cast<uint32_t>(tokens.size() - row));
    }
    if (last && !sequence.plain && sequence.request.constraint) {
      if (sequence.ahead) {
        sequence.TakeAhead();
      } else {
        const size_t ahead = chosen_on_device_ ? size_t(share.drafts) : 0;
        masks.push_back([&sequence, ahead] { FillMasks(sequence, ahead); });
      }
    }
    if (sequence.steps++ == 0) sequence.first_step_ns = clock_.NowNs();
  }
  finite_.assign(slices.size(), 0);
  hidden_.resize(pools ? tokens.size() * static_cast<size_t>(executor_.card().dim) : 0);
  const int64_t begin_ns = clock_.NowNs();
  filler_.Start(std::move(masks));
  BatchView batch = {tokens, slices, logit_rows, finite_, hidden_, watched};
  if (sees) ShowPictures(&batch);
  const Status computed = Compute(batch);
  filler_.Wait();
  REPRISE_TRY(computed);
  step_ns_ = clock_.NowNs() - begin_ns;
  step_rows_ = static_cast<int64_t>(tokens.size());
  const double ms = static_cast<double>(step_ns_) / 1e6;
  const bool idle = shares_.front().sequence->request.idle;
  scheduler_.Observe(static_cast<int32_t>(tokens.size()), ms, idle);
  ++counters_.steps;
  counters_.rows += tokens.size();
  counters_.busy_ms += ms;
  if (idle) counters_.rows_idle += tokens.size();
  return OkStatus();
}

// Rows of pictures, and where all rows of the step stand.
void Engine::ShowPictures(BatchView* batch) {
  scratch_.pictures.clear();
  scratch_.places.clear();
  for (size_t i = 0; i < shares_.size(); ++i) {
    const SequenceSlice& slice = scratch_.slices[i];
    const Sight* sight = shares_[i].sequence->sight.get();
    const int32_t begin = slice.past.logical;
    const int32_t end = begin + static_cast<int32_t>(slice.row_count);
    for (int32_t at = begin; at < end; ++at) {
      scratch_.places.push_back(sight != nullptr ? sight->PlaceOf(at) : std::array{at, at, at});
    }
    if (sight == nullptr) continue;
    sight->AddRows(begin, end, slice.row_begin, executor_.tower()->card().dim, &scratch_.pictures);
  }
  std::replace_if(scratch_.tokens.begin(), scratch_.tokens.end(), IsVirtual, 0);
  batch->pictures = scratch_.pictures;
  batch->places = scratch_.places;
}

// Where the device chooses, logits are brought to the host only for who wants to see them.
bool Engine::ChoosesOnDevice() const {
  return executor_.chooses() && std::all_of(shares_.begin(), shares_.end(), [](const Share& share) {
           const GenerateRequest& request = share.sequence->request;
           return !request.on_logits && request.pooling == Pooling::kNone &&
                  ChoiceRows::Takes(request.sampling, {.logprobs = request.logprobs});
         });
}

// Whether how tokens are chosen is said before the step. Masks of constraints are still being
// filled; and where there is much to say, the device would wait for it: both come while it is busy.
bool Engine::ChoicesAreKnown() const {
  constexpr size_t kEntriesMax = 4096;
  size_t entries = 0;
  for (const Share& share : shares_) {
    if (share.logit_count == 0) continue;
    if (share.sequence->request.constraint) return false;
    const StepSampler::Row row = RowOf(*share.sequence, {});
    entries += share.logit_count * ChoiceRows::EntriesOf(*row.params, row.input);
  }
  return entries <= kEntriesMax;
}

// For every row whose logits are wanted: behind drafts as if these had been said.
void Engine::AddChoices() {
  choices_.Clear();
  for (const Share& share : shares_) {
    if (share.logit_count == 0) continue;
    const Sequence& sequence = *share.sequence;
    StepSampler::Row row = RowOf(sequence, {});
    choices_.Add(*row.params, row.input);
    if (share.drafts == 0) continue;
    const bool penalises = row.params->penalises();
    TokenCounts said = penalises ? sequence.said : TokenCounts();
    row.input.said = &said;
    for (int32_t i = 0; i < share.drafts; ++i) {
      if (penalises) said.AddGenerated(sequence.speculation->drafts[static_cast<size_t>(i)]);
      ++row.input.position;
      if (sequence.request.constraint) {
        const std::span<const TokenMask> masks = AheadOf(sequence).masks();
        row.input.allowed = size_t(i) < masks.size() ? &masks[size_t(i)] : nullptr;
      } else if (sequence.generated + i + 1 >= sequence.request.min_tokens) {
        row.input.allowed = nullptr;
      }
      choices_.Add(*row.params, row.input);
    }
  }
}

// The pass, and on devices that can also the choice of tokens; the masks for it are filled
// meanwhile, and what can be done of the next step.
Status Engine::Compute(BatchView batch) {
  if (!chosen_on_device_) {
    logits_.resize(batch.logit_rows.size() * static_cast<size_t>(executor_.card().vocab_size));
    return executor_.Forward(batch, cache_->memory(), logits_.data());
  }
  const bool known = ChoicesAreKnown();
  ChoiceBatch choices;
  if (known) {
    AddChoices();
    choices = choices_.batch();
    batch.choices = &choices;
  }
  REPRISE_TRY(executor_.Begin(batch, cache_->memory()));
  filler_.Wait();
  if (!known) AddChoices();
  choice_status_ = executor_.Choose(choices_.batch(), choices_.results(), [this] { WorkAhead(); });
  return OkStatus();
}

// Publishes what the step computed and chooses the next token of every sequence that is complete.
void Engine::Commit() {
  std::vector<const Share*>& complete = scratch_.complete;
  std::vector<StepSampler::Row>& rows = scratch_.rows;
  complete.clear();
  rows.clear();
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (i + kNear < shares_.size()) shares_[i + kNear].sequence->lease.Prefetch();
    const Share& share = shares_[i];
    Sequence& sequence = *share.sequence;
    if (share.drafts > 0 && !BeginDrafts(share)) continue;
    if (!CommitRows(share, 0, share.rows) || sequence.rows_ready() > 0) continue;
    if (!sequence.plain && sequence.request.max_tokens == 0) {
      Finish(sequence, FinishReason::kLength);
      continue;
    }
    if (!sequence.plain && sequence.request.constraint && !sequence.allowed_status.ok()) {
      Finish(sequence, FinishReason::kFailed, sequence.allowed_status);
      continue;
    }
    complete.push_back(&share);
    if (!chosen_on_device_) rows.push_back(RowOf(sequence, LogitsOf(share, share.rows - 1)));
  }
  const std::span<Result<Sampled>> sampled = sampler_.Sample(rows);
  for (size_t i = 0; i < complete.size(); ++i) {
    if (i + 2 * kNear < complete.size()) complete[i + 2 * kNear]->sequence->Prefetch();
    if (i + kNear < complete.size()) complete[i + kNear]->sequence->PrefetchToSay();
    Sequence& sequence = *complete[i]->sequence;
    if (!chosen_on_device_) {
      Continue(sequence, std::move(sampled[i]));
    } else if (choice_status_.ok()) {
      Continue(sequence, choices_.Take(complete[i]->logit_begin));
    } else {
      Continue(sequence, choice_status_);
    }
  }
  TakeDrafts();
  // What finds no room now is asked again before the next step.
  for (const Share& share : shares_) {
    Sequence& sequence = *share.sequence;
    if (!sequence.plain && !sequence.finished) (void)Compact(sequence, /*wait=*/false);
  }
}

// `row` of the share. REQUIRES: its logits were wanted, and are on the host.
std::span<const float> Engine::LogitsOf(const Share& share, int32_t row) const {
  const size_t vocab = static_cast<size_t>(executor_.card().vocab_size);
  const size_t behind = static_cast<size_t>(share.rows + share.drafts - row);
  const size_t at = share.logit_begin + share.logit_count - behind;
  return std::span<const float>(logits_).subspan(at * vocab, vocab);
}

// Rows [first, first + rows) of the share are tokens of its sequence. False: it has ended.
bool Engine::CommitRows(const Share& share, int32_t first, int32_t rows) {
  Sequence& sequence = *share.sequence;
  const int32_t begin = sequence.lease.computed();
  const size_t i = static_cast<size_t>(&share - shares_.data());
  const Status committed = cache_->Commit(
      sequence.lease,
      {.token_count = rows, .finite = finite_[i] != 0, .ns = step_ns_ * rows / step_rows_});
  if (!committed.ok()) {
    Finish(sequence, FinishReason::kFailed, committed);
    return false;
  }
  if (sequence.plain) return true;
  if (sequence.request.on_logits) {
    for (int32_t row = 0; row < rows; ++row) {
      sequence.request.on_logits(begin + row, LogitsOf(share, first + row));
    }
  }
  if (sequence.request.pooling != Pooling::kNone) Pool(share, begin);
  if (sequence.request.tell_progress && sequence.generated == 0) {
    sequence.stream->Advance(sequence.lease.computed());
  }
  return true;
}

// Adds the rows of a step, which begin at position `begin`, to the vector of the prompt: one after
// another, so that it does not depend on how they came into steps.
void Engine::Pool(const Share& share, int32_t begin) {
  Sequence& sequence = *share.sequence;
  const size_t dim = static_cast<size_t>(executor_.card().dim);
  const auto row = [&](int32_t i) {
    return std::span<const float>(hidden_).subspan((share.row_begin + size_t(i)) * dim, dim);
  };
  if (sequence.request.pooling == Pooling::kLast) {
    const auto last = row(share.rows - 1);
    sequence.pooled.assign(last.begin(), last.end());
    return;
  }
  if (begin == 0) sequence.pooled.assign(dim, 0);  // also after it was sent back
  for (int32_t i = 0; i < share.rows; ++i) {
    const auto values = row(i);
    for (size_t d = 0; d < dim; ++d) sequence.pooled[d] += double{values[d]};
  }
}

StepSampler::Row Engine::RowOf(const Sequence& sequence, std::span<const float> logits) const {
  const GenerateRequest& request = sequence.request;
  StepSampler::Row row;
  row.params = &request.sampling;
  row.input.logits = logits;
  row.input.said = &sequence.said;
  row.input.tokens = sequence.lease.tokens();
  row.input.position = row.input.tokens.size();
  if (request.constraint) {
    row.input.allowed = &*sequence.allowed;
  } else if (sequence.generated < request.min_tokens && sequence.before_minimum) {
    row.input.allowed = &*sequence.before_minimum;
  }
  row.input.logprobs = request.logprobs;
  return row;
}

// The sequence goes on with the token that was chosen, and what must follow it, or ends.
void Engine::Continue(Sequence& sequence, Result<Sampled>&& sampled) {
  if (!sampled.ok()) return Finish(sequence, FinishReason::kFailed, sampled.status());
  const GenerateRequest& request = sequence.request;
  const TokenId token = sampled->chosen.token;
  if (sequence.generated == 0) sequence.first_token_ns = clock_.NowNs();
  const auto& ends = request.end_tokens;
  const bool end = std::find(ends.begin(), ends.end(), token) != ends.end();
  if (request.constraint && !end) {
    const Status accepted = sequence.Accept(token);
    if (!accepted.ok()) return Finish(sequence, FinishReason::kFailed, accepted);
  }
  Say(sequence, std::move(*sampled));
  // Who asks how likely tokens were gets them one by one.
  if (request.constraint && request.logprobs < 0) SayForced(sequence);
  if (!sequence.slow || sequence.finished || !sequence.forced.empty()) return;
  sequence.ahead = std::make_shared<MaskAhead>(request.constraint, sequence.allowed->vocab_size());
  filler_.FillAhead(sequence.ahead);
}

void Engine::SayForced(Sequence& sequence) {
  while (!sequence.finished && !sequence.forced.empty()) {
    GeneratedToken forced;
    forced.chosen.token = sequence.forced.front();
    sequence.forced.pop_front();
    Say(sequence, std::move(forced));
  }
}

void Engine::Say(Sequence& sequence, GeneratedToken&& generated) {
  const GenerateRequest& request = sequence.request;
  const TokenId token = generated.chosen.token;
  const auto& ends = request.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    if (request.logprobs >= 0) sequence.stream->Add(std::move(generated));
    return Finish(sequence, FinishReason::kEndToken);
  }
  ++sequence.generated;
  if (request.sampling.penalises()) sequence.said.AddGenerated(token);
  ++counters_.tokens_generated;
  sequence.stream->Add(std::move(generated));
  const bool full = static_cast<int32_t>(sequence.lease.tokens().size()) + 1 >= context_tokens_;
  cache_->Append(sequence.lease, std::span(&token, 1));
  if (sequence.generated >= request.max_tokens || full) Finish(sequence, FinishReason::kLength);
}

// Gives what the sequence has computed to the cache, and its lease back. Returns its tokens.
std::vector<TokenId> Engine::Publish(Sequence& sequence) {
  std::vector<TokenId> tokens;
  NoteStored(cache_->Finish(std::move(sequence.lease), &tokens), &sequence.report);
  return tokens;
}

// Gives the lease back with nothing published: its state is lost. Returns its tokens.
std::vector<TokenId> Engine::Lose(Sequence& sequence) {
  const auto known = sequence.lease.tokens();
  std::vector<TokenId> tokens(known.begin(), known.end());
  NoteStored(sequence.lease.report(), &sequence.report);
  sequence.lease = Lease();
  return tokens;
}

// Giving many pages back takes longer than all else that the end of a request needs: callers do it
// when they submit the next one, or this thread when it has nothing to do.
void Engine::Discard(std::vector<TokenId> tokens) {
  constexpr size_t kMany = 16384;
  if (tokens.capacity() < kMany) return;
  std::lock_guard lock(mutex_);
  waste_.push_back(std::move(tokens));
}

// The sequence leaves its queue in RemoveFinished. What it computed is published unless it failed.
void Engine::Finish(Sequence& sequence, FinishReason reason, Status status) {
  CHECK(!sequence.finished);
  sequence.finished = true;
  ++ended_;
  const int64_t now_ns = clock_.NowNs();
  Completion completion;
  completion.reason = reason;
  completion.status = std::move(status);
  completion.prompt = std::move(sequence.prompt_scores);
  const bool mean = sequence.request.pooling == Pooling::kMean;
  const double count = mean ? double(sequence.request.prompt.size()) : 1;
  for (const double sum : sequence.pooled) completion.vector.push_back(float(sum / count));
  completion.prompt_tokens = static_cast<int32_t>(sequence.request.prompt.size());
  completion.generated_tokens = sequence.generated;
  completion.steps = sequence.steps;
  completion.preemptions = sequence.preemptions;
  completion.speculation = ReportOf(sequence);
  const int64_t first_step = sequence.steps > 0 ? sequence.first_step_ns : now_ns;
  const int64_t first_token = sequence.first_token_ns != 0 ? sequence.first_token_ns : now_ns;
  completion.queue_ms = MsBetween(sequence.submit_ns, first_step);
  completion.look_up_ms = MsBetween(0, sequence.look_up_ns);
  completion.first_token_ms = MsBetween(sequence.submit_ns, first_token);
  completion.total_ms = MsBetween(sequence.submit_ns, now_ns);

  if (sequence.speculation && reason != FinishReason::kFailed) {
    for (const auto& drafter : drafters_) drafter->End(&sequence.speculation->memory);
  }
  if (sequence.lease.valid() && sequence.lease.started()) {
    reason == FinishReason::kFailed ? NoteStored(sequence.lease.report(), &sequence.report)
                                    : Discard(Publish(sequence));
  }
  sequence.lease = Lease();
  completion.report = sequence.report;
  CountEnd(sequence.request, reason);
  if (!sequence.request.idle) {
    std::lock_guard lock(mutex_);
    recent_.push_back(completion);
    recent_.back().prompt = {};
    recent_.back().vector = {};
    if (recent_.size() > EngineStats::kRecentMax) recent_.pop_front();
  }
  if (!sequence.request.idle && LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, std::string(NameOf(reason)) + ", " + FormatReport(completion.report));
  }
  sequence.stream->Complete(std::move(completion));
  Discard(std::move(sequence.request.prompt));
}

// What was promised to a turn that may come is no request of a client.
void Engine::CountEnd(const GenerateRequest& request, FinishReason reason) {
  const bool cancelled = reason == FinishReason::kCancelled;
  if (request.idle) {
    ++(cancelled || reason == FinishReason::kFailed ? counters_.idle_dropped
                                                    : counters_.idle_finished);
  } else if (cancelled) {
    ++counters_.requests_cancelled;
  } else {
    ++(reason == FinishReason::kFailed ? counters_.requests_failed : counters_.requests_finished);
  }
}

void Engine::RemoveFinished() {
  if (std::exchange(ended_, 0) == 0) return;
  roster_.RemoveFinished();
  std::erase_if(idle_, [](const std::unique_ptr<Sequence>& s) { return s->finished; });
}

// Whoever is still here lost its memory in this very step and may start in the next one.
bool Engine::Idle() {
  const bool more = cache_->Maintain();
  resting_ = cache_->moves_under_way() > 0;
  PublishStats();
  {
    std::lock_guard lock(mutex_);
    waste_.clear();
  }
  return more || !idle_.empty() || !roster_.waiting().empty();
}

void Engine::PublishStats() {
  counters_.waiting = static_cast<int32_t>(roster_.waiting().size());
  counters_.running = static_cast<int32_t>(roster_.running().size());
  counters_.idle = static_cast<int32_t>(idle_.size());
  counters_.cache = cache_->stats();
  {
    std::lock_guard lock(mutex_);
    published_ = counters_;
    published_.requests_refused = refused_;
    queued_ = roster_.QueuedByTenant();
    for (const auto& sequence : inbox_.sequences) {
      if (sequence->request.idle) continue;
      TenantLoad& load = queued_[sequence->request.tenant];
      load.weight = std::max(1, sequence->request.tenant_weight);
      ++load.waiting;
    }
  }
  // A sum of numbers that only grow, or whose change comes with one of those; memory given back is
  // the exception, so what is stored counts, too.
  const CacheStats& cache = counters_.cache;
  const uint64_t now = counters_.steps + counters_.requests_submitted +
                       counters_.requests_finished + counters_.requests_cancelled +
                       counters_.requests_failed + counters_.idle_finished +
                       counters_.idle_dropped + cache.lookups + cache.entries +
                       cache.entries_pinned + cache.nodes + cache.bytes_cached;
  std::lock_guard lock(observer_mutex_);
  if (observer_ && now != observed_) observer_();
  observed_ = now;
}

void Engine::SetObserver(std::function<void()> changed) {
  std::lock_guard lock(observer_mutex_);
  observer_ = std::move(changed);
}

EngineStats Engine::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats stats = published_;
  stats.recent = recent_;
  return stats;
}

void Engine::Start() {
  CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Loop(); });
}

void Engine::Loop() {
  for (;;) {
    const bool worked = Step();
    std::unique_lock lock(mutex_);
    if (stop_) return;
    if (worked && !resting_) continue;
    work_.wait_for(lock, resting_ ? kMoveWait : kIdleWait,
                   [&] { return stop_ || !inbox_.sequences.empty() || !inbox_.tasks.empty(); });
  }
}

void Engine::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
  Admit();
  const auto cancel = [this](const auto& sequences) {
    for (const auto& sequence : sequences) Finish(*sequence, FinishReason::kCancelled);
  };
  cancel(roster_.waiting());
  cancel(roster_.running());
  cancel(idle_);
  RemoveFinished();
}

}  // namespace reprise
