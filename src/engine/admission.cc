// SPDX-License-Identifier: Apache-2.0
// Engine: who comes in, who starts, who makes way.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/near.h"
#include "engine/sequence.h"

namespace reprise {
namespace {

// Sequences further back in the queue that are looked up in a step, so that the ones which run
// learn in time where to leave a snapshot for them, and are lent their priority.
constexpr int kLooksPerStep = 2;
// To look a prompt up compares every token of it that is known. A step compares at most so many
// beside nobody, fewer beside those that run, who wait for it, and some in any case: a long prompt
// takes several steps, in none of which anybody notices.
constexpr int32_t kTokensPerStep = 131'072;
constexpr int32_t kTokensPerRunning = 480;
constexpr int32_t kTokensPerStepMin = 8'192;

int32_t TokensToLookUp(size_t running) {
  const auto others =
      static_cast<int32_t>(std::min<size_t>(running, kTokensPerStep / kTokensPerRunning));
  return std::max(kTokensPerStepMin, kTokensPerStep - kTokensPerRunning * others);
}

// Beside so many, what a step costs the host is spread over several.
constexpr size_t kManyRunning = 64;

// Of a prompt, for which a report says how much K/V of them was kept.
constexpr int32_t kAlongParts = 64;

}  // namespace

// Between two steps: takes what callers sent, and does what they posted.
void Engine::Admit() {
  std::vector<std::function<void(StateCache&)>> tasks;
  {
    std::lock_guard lock(mutex_);
    std::swap(tasks, inbox_.tasks);
  }
  for (const auto& task : tasks) task(*cache_);
  AdmitRequests();
}

// Requests only join their queue: nothing is looked up yet.
void Engine::AdmitRequests() {
  std::deque<std::unique_ptr<Sequence>> arrived;
  // Whoever was cancelled before this is in the inbox by now, or has left it.
  cancels_->Take(&cancelled_);
  {
    std::lock_guard lock(mutex_);
    std::swap(arrived, inbox_.sequences);
  }
  for (std::unique_ptr<Sequence>& sequence : arrived) {
    if (sequence->request.idle) {
      AdmitIdle(std::move(sequence));
      continue;
    }
    ++counters_.requests_submitted;
    sequence->lent_priority = sequence->request.priority;
    roster_.Add(std::move(sequence));
  }
  if (!arrived.empty()) DropSurplus();
}

// While the device is at a step: who has come joins the queue, prompts that go on get memory for
// the next step, and others are looked up. Nobody starts, nobody who runs ends or learns what
// others await, and nothing that was posted is done: what runs is in the device's hands.
void Engine::WorkAhead() {
  if (shares_.front().sequence->request.idle) return;
  AdmitRequests();
  std::vector<NextRows>& next = scratch_.next;
  next.clear();
  for (const Share& share : shares_) {
    const int32_t left = share.sequence->rows_ready() - share.rows;
    if (left > 0) next.push_back({&share.sequence->lease, share.rows, std::min(left, share.rows)});
  }
  cache_->BackAhead(next);
  tokens_to_look_up_ = kTokensPerStep;  // nobody waits for the host meanwhile
  for (const auto& sequence : roster_.waiting()) {
    if (!sequence->looked_up && !LookUp(*sequence)) break;
  }
}

// A newer one replaces the oldest of the tenant that has most.
void Engine::AdmitIdle(std::unique_ptr<Sequence> sequence) {
  if (!options_.idle_work) return Finish(*sequence, FinishReason::kCancelled);
  idle_.push_back(std::move(sequence));
  if (idle_.size() <= static_cast<size_t>(options_.idle_max)) return;
  const auto count = [this](const auto& one) {
    return std::count_if(idle_.begin(), idle_.end(), [&](const auto& other) {
      return other->request.tenant == one->request.tenant;
    });
  };
  const auto replaced =
      std::max_element(idle_.begin(), idle_.end(),
                       [&](const auto& a, const auto& b) { return count(a) < count(b); });
  Finish(**replaced, FinishReason::kCancelled);
  idle_.erase(replaced);
}

// Submit let in tenants that had less than their share of a full queue: others make way for them.
void Engine::DropSurplus() {
  if (roster_.waiting().size() <= static_cast<size_t>(options_.waiting_max)) return;
  const auto fresh = std::count_if(roster_.waiting().begin(), roster_.waiting().end(),
                                   [](const auto& one) { return one->displaceable(); });
  for (auto surplus = fresh - options_.waiting_max; surplus > 0; --surplus) {
    Finish(*roster_.Surplus(), FinishReason::kFailed,
           ResourceExhausted("the queue is full, and others have fewer places in it than their "
                             "share; try again later"));
    roster_.RemoveFinished();
    ++counters_.requests_displaced;
  }
}

// The lease takes over the tokens of the sequence.
Lease Engine::Acquire(Sequence& sequence) {
  const GenerateRequest& request = sequence.request;
  CacheRequest wanted;
  wanted.key = &sequence.key;
  wanted.tokens = sequence.prompt;
  wanted.boundaries = request.boundaries;
  wanted.pin_ms = request.pin_ms;
  wanted.min_cache_tokens = request.min_cache_tokens;
  wanted.read = request.cache_read;
  wanted.write = request.cache_write;
  wanted.session = request.session;
  wanted.low = request.cache_low;
  wanted.idle = request.idle;
  if (sequence.compaction) {
    wanted.replay_tokens = sequence.compaction->window();
    wanted.kept_tokens = sequence.compaction->kept();
  }
  wanted.tenant = request.tenant;
  wanted.tenant_weight = request.tenant_weight;
  wanted.storage = &sequence.prompt;
  wanted.look_up = false;
  return cache_->Acquire(wanted);
}

void Engine::DropCancelled() {
  if (cancelled_.empty()) return;
  std::sort(cancelled_.begin(), cancelled_.end());
  const size_t running = roster_.running().size();
  size_t sought = cancelled_.size();
  const auto drop = [&](const auto& sequences) {
    for (size_t i = 0; i < sequences.size() && sought > 0; ++i) {
      if (i + kNear < sequences.size()) sequences[i + kNear]->Prefetch();
      Sequence& one = *sequences[i];
      if (!std::binary_search(cancelled_.begin(), cancelled_.end(), one.arrival)) continue;
      Finish(one, FinishReason::kCancelled);
      --sought;
    }
  };
  drop(roster_.running());
  drop(roster_.waiting());
  drop(idle_);
  cancelled_.clear();
  RemoveFinished();
  made_way_ = roster_.running().size() < running;
}

// What was posted has set asleep_; requests that wait are served first.
bool Engine::FallsAsleep() {
  if (!asleep_) return false;
  while (DropIdle()) {
  }
  if (!roster_.running().empty() || !roster_.waiting().empty()) return false;
  for (const auto& idle : idle_) Finish(*idle, FinishReason::kCancelled);
  idle_.clear();
  sleeping_ = true;
  std::exchange(asleep_, nullptr)();
  return true;
}

// Moves waiting sequences to running, in order, as long as there are places and memory for them;
// those whose prefix is being computed wait for it. Once all places are taken and everybody was
// asked, nothing can be different before somebody comes, goes or waits no more.
void Engine::StartWaiting() {
  roster_.EndWaits();
  if (PutsOffStarts()) return;
  if (roster_.full() && roster_.changes() == settled_at_) return;
  roster_.Lend();
  // Who has found no place finds none before then, either: lending only raises those that run.
  const bool blocked = roster_.full() && roster_.changes() == blocked_at_;
  tokens_to_look_up_ = TokensToLookUp(roster_.running().size());
  const auto enough = [this] { return tokens_to_look_up_ <= 0; };
  while (Sequence* next = blocked ? nullptr : roster_.Next()) {
    if (!LookUp(*next)) break;
    if (Awaits(*next)) continue;
    if (!MakePlace(*next)) break;
    const Status started = StartWithRoom(*next);
    if (next->awaited) continue;  // its state is on its way: others may start meanwhile
    if (started.ok()) {
      roster_.Start(*next);
      ++starts_;
    } else if (roster_.running().empty()) {
      Finish(*next, FinishReason::kFailed, started);
    } else {
      break;  // those ahead must finish first
    }
  }
  if (!enough()) blocked_at_ = roster_.changes();
  RemoveFinished();
  int looks = 0;
  for (const auto& sequence : roster_.waiting()) {
    if (roster_.running().empty() || looks == kLooksPerStep || enough()) break;
    if (sequence->asked_at == starts_ || sequence->awaited) continue;
    if (LookUp(*sequence)) (void)Awaits(*sequence);
    ++looks;
  }
  roster_.Lend();
  if (looks == 0 && !enough()) settled_at_ = roster_.changes();
  StartIdle();
}

// To end a request and to start another costs the host about as much each. Those that wait for both
// beside many others notice: then whoever takes the place of one that was cancelled starts with the
// next step, and with no later one, however many are cancelled.
bool Engine::PutsOffStarts() {
  const bool beside_many = roster_.running().size() >= kManyRunning;
  put_off_ = std::exchange(made_way_, false) && beside_many && !put_off_;
  return put_off_;
}

// Looks the prompt up as far as this step may. True: what is known of it was found.
bool Engine::LookUp(Sequence& sequence) {
  if (sequence.asked_at == starts_) return true;
  const int64_t begin_ns = clock_.NowNs();
  if (!sequence.lease.valid()) sequence.lease = Acquire(sequence);
  sequence.looked_up =
      tokens_to_look_up_ > 0 && cache_->LookUp(sequence.lease, &tokens_to_look_up_);
  sequence.look_up_ns += clock_.NowNs() - begin_ns;
  return sequence.looked_up;
}

// Whether somebody computes the sequence's prefix now. The answer stands until another one starts,
// or until that one is where it was awaited.
bool Engine::Awaits(Sequence& sequence) {
  if (sequence.asked_at == starts_) return sequence.awaited.has_value();
  sequence.asked_at = starts_;
  sequence.awaited = cache_->FindAwaited(sequence.lease);
  sequence.bytes_wanted.reset();
  return sequence.awaited.has_value();
}

// Whether one more may run: there is a place for it, and memory. Those that rank below it make way:
// with their place now, with their memory when it is needed.
bool Engine::MakePlace(Sequence& next) {
  while (roster_.full()) {
    Sequence* last = roster_.Yielding(next);
    if (last == nullptr) return false;
    SendBack(*last);
  }
  return roster_.running().empty() || Fits(next) || roster_.Yielding(next) != nullptr ||
         (DropIdle() && Fits(next));
}

// Whether the sequence can run beside those that do until the prompts of all are computed, with a
// block for each to go on. More is not asked: replies may end sooner than they may.
bool Engine::Fits(Sequence& next) {
  if (!next.bytes_wanted) next.bytes_wanted = cache_->BytesWanted(next.lease);
  const size_t wanted = *next.bytes_wanted + cache_->BytesWantedByRunning();
  return wanted <= cache_->BytesFree();
}

// Idle work and those that rank below make room for the sequence's state.
Status Engine::StartWithRoom(Sequence& sequence) {
  Status started = StartLease(sequence);
  while (!started.ok()) {
    Sequence* last = roster_.Yielding(sequence);
    if (!DropIdle()) {
      if (last == nullptr) return started;
      SendBack(*last);
    }
    started = StartLease(sequence);
  }
  return started;
}

// OK and `awaited`: not yet.
Status Engine::StartLease(Sequence& sequence) {
  const StartAnswer answer = cache_->Start(sequence.lease);
  if (answer.pending()) sequence.awaited = answer.awaited;
  if (!answer.ready()) return answer.status;
  if (!sequence.again.empty()) {
    cache_->Append(sequence.lease, sequence.again);
    sequence.again.clear();
  }
  if (sequence.preemptions == 0) {
    sequence.report = sequence.lease.report();
    sequence.stream->Begin(sequence.report);
  }
  return OkStatus();
}

// The oldest idle work begins when nothing else runs.
void Engine::StartIdle() {
  if (!roster_.running().empty()) return;
  while (!idle_.empty() && !idle_.front()->lease.valid()) {
    Sequence& sequence = *idle_.front();
    sequence.lease = Acquire(sequence);
    if (StartLease(sequence).ok()) return;
    Finish(sequence, FinishReason::kCancelled);
    idle_.pop_front();
  }
}

// Ends the idle work that holds memory; what waits holds none. False: there is none.
bool Engine::DropIdle() {
  if (idle_.empty() || !idle_.front()->lease.valid()) return false;
  Finish(*idle_.front(), FinishReason::kCancelled);
  idle_.pop_front();
  return true;
}

// A running sequence goes back to the queue, to its place in the order, with what it has so far.
// lost: what it has computed itself is not to be used.
void Engine::SendBack(Sequence& sequence, bool lost) {
  std::vector<TokenId>& so_far = sequence.prompt;
  so_far = lost ? Lose(sequence) : Publish(sequence);
  if (sequence.compaction) {
    const auto reply = so_far.begin() + static_cast<ptrdiff_t>(sequence.request.prompt.size());
    sequence.again.assign(reply, so_far.end());
    so_far.erase(reply, so_far.end());
    PrepareCompaction(sequence);
  }
  sequence.lease = Acquire(sequence);
  sequence.looked_up = false;
  sequence.asked_at = 0;
  ++sequence.preemptions;
  ++counters_.preemptions;
  roster_.SendBack(sequence);
}

// Takes memory for the rows of the step. When there is too little, idle work makes room, then
// whoever is last in the order, be it the needy one itself; a sequence that does not fit alone
// fails.
void Engine::Reserve() {
  for (size_t i = 0; i < shares_.size();) {
    if (i + kNear < shares_.size()) shares_[i + kNear].sequence->lease.Prefetch();
    Sequence& needy = *shares_[i].sequence;
    Status reserved = Compact(needy, /*wait=*/true);
    if (reserved.ok()) reserved = cache_->Reserve(needy.lease, shares_[i].rows);
    if (reserved.ok()) {
      ReserveDrafts(shares_[i]);
      ++i;
      continue;
    }
    if (reserved.code() == StatusCode::kInternal) {  // what it had is lost
      Finish(needy, FinishReason::kFailed, reserved);
      shares_.erase(shares_.begin() + static_cast<ptrdiff_t>(i));
      continue;
    }
    if (!needy.request.idle && DropIdle()) continue;  // it has no share: it runs only alone
    Sequence* victim = MakeRoomFor(needy, reserved);
    const auto of_victim = std::find_if(shares_.begin(), shares_.end(),
                                        [&](const Share& s) { return s.sequence == victim; });
    if (of_victim == shares_.end()) continue;
    if (static_cast<size_t>(of_victim - shares_.begin()) < i) --i;
    shares_.erase(of_victim);
  }
  RemoveFinished();
}

// Leaves out K/V of a sequence that has come so far, if it is known which; with `wait`, when it is.
// Fails, with nothing changed, if there is no room to move the rest to.
Status Engine::Compact(Sequence& sequence, bool wait) {
  if (sequence.plain || !sequence.compaction ||
      sequence.lease.computed() != sequence.compaction->at()) {
    return OkStatus();
  }
  Compaction& compaction = *sequence.compaction;
  compaction.Choose(executor_, &background_);
  if (wait) background_.WaitUntil([&] { return compaction.chosen(); });
  if (!compaction.chosen()) return OkStatus();  // PlanStep leaves it out until then
  KeptKv kept;
  kept.row_count = sequence.lease.extent().physical;
  kept.lists = compaction.Lists();
  kept.kept = compaction.kept();
  const bool idle_holds = !idle_.empty() && idle_.front()->lease.valid();
  const bool alone = roster_.running().size() == 1 && !idle_holds;
  REPRISE_TRY(cache_->Compact(sequence.lease, kept.kept, alone,
                              [&](std::span<const BlockId> from, std::span<const BlockId> to) {
                                kept.from = from;
                                kept.to = to;
                                return executor_.Keep(kept, cache_->memory());
                              }));
  if (kept.row_count == sequence.lease.computed()) {  // of the prompt
    sequence.report.kept_along =
        KeptAlong(kept.lists, kept.kept, kept.row_count, std::min(kept.row_count, kAlongParts));
  }
  compaction.Done();
  sequence.report.kept_tokens = kept.kept;
  return OkStatus();
}

// Returns the sequence that runs no more.
Sequence* Engine::MakeRoomFor(Sequence& needy, const Status& reserved) {
  if (needy.request.idle) {
    Finish(needy, FinishReason::kCancelled);
    return &needy;
  }
  const auto others =
      std::count_if(roster_.running().begin(), roster_.running().end(),
                    [&](const auto& one) { return one.get() != &needy && !one->finished; });
  Sequence* victim = others > 0 ? roster_.Last() : &needy;
  if (others > 0) {
    SendBack(*victim);
  } else {
    Finish(needy, FinishReason::kFailed, reserved);
  }
  return victim;
}

// The step was not computed. What a device could not do it will not do the next time either: all of
// the step's sequences fail, by name. Where it had no memory they are tried again, with more of it
// or in smaller steps; those whose state was lost on the way from what is cached.
void Engine::Recover(const Status& failed) {
  const bool lost = failed.code() == StatusCode::kDataLoss;
  if (!lost && failed.code() != StatusCode::kResourceExhausted) {
    Log(LogLevel::kError, "a step failed: " + failed.message());
    for (const Share& share : shares_) Finish(*share.sequence, FinishReason::kFailed, failed);
    return RemoveFinished();
  }
  Log(LogLevel::kWarning, failed.message() + "; the step is tried again with less");
  if (shares_.front().sequence->request.idle && DropIdle()) return;  // it runs only alone
  MakeRoomToCompute(failed);
  for (const Share& share : shares_) {
    if (lost && !share.sequence->finished) SendBack(*share.sequence, true);
  }
  RemoveFinished();
}

// State that is only cached makes way, then idle work; then steps get smaller. A row (or a picture
// that is not cut) that does not fit by itself ends its request.
void Engine::MakeRoomToCompute(const Status& computed) {
  constexpr size_t kBytes = size_t{256} << 20;
  if (cache_->GiveWay(kBytes) || DropIdle()) return;
  int32_t rows = 0;
  for (const Share& share : shares_) rows += share.rows + share.drafts;
  if (rows > WholeRows(*shares_.front().sequence, 1)) return scheduler_.Shrink(rows / 2);
  Finish(*shares_.front().sequence, FinishReason::kFailed, computed);
}

}  // namespace reprise
