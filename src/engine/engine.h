// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cache/state_cache.h"
#include "device/background.h"
#include "engine/draft/drafter.h"
#include "engine/mask_filler.h"
#include "engine/request.h"
#include "engine/roster.h"
#include "engine/stats.h"
#include "engine/step_sampler.h"
#include "engine/token_stream.h"
#include "model/executor.h"
#include "sample/choice_rows.h"
#include "sched/scheduler.h"

namespace reprise {

struct SpeculationOptions {
  Speculate mode = Speculate::kOff;  // of requests that do not say
  int32_t window = 0;                // drafts of a sequence in a step; 0: what is worth its time
  std::vector<std::shared_ptr<Drafter>> drafters = {};  // asked before those that are built in
  std::shared_ptr<Drafter> model = nullptr;             // asked behind them; or none
};

struct EngineOptions {
  SchedulerOptions scheduler;
  int32_t running_max = 16;    // sequences that run at the same time
  int32_t waiting_max = 256;   // requests that may wait; one more is refused
  int32_t idle_max = 8;        // idle-time requests kept; a newer one replaces the oldest
  int32_t context_tokens = 0;  // prompt and reply of one request; 0: the model's context length
  bool idle_work = true;
  SnapKv snapkv;  // of requests that do not say; its redecode is that of all
  SpeculationOptions speculation;
};

// The step loop: owns scheduling, state cache, model and sampling, on one thread, without a lock.
//
// Life of a sequence: waiting -> running (blocks and state) -> finished. Who starts, and who makes
// way, follows one order: priority, then tenants within their share, then arrival (roster.h). As
// many are started as there are places and memory for. A waiting sequence whose prefix is being
// computed by another one waits for it (single flight) and lends it its priority. If running
// sequences leave no memory for each other, the last in the order goes back to waiting with what it
// has so far; its published state makes the return cheap.
//
// Tenants have shares, by weight, of the queue and of the places: while others want some, one that
// has more than its share makes way for one that has less. Alone, a tenant may have everything.
//
// Idle work (a turn that may come) runs only while nothing else does, keeps to the promised gap,
// takes no pinned state away, and ends when its memory is needed.
//
// Speculation: a sequence that decodes may have drafts behind its one row (draft/drafter.h). Every
// token is chosen as without them, by the same code, from the logits behind those before it; a
// draft is kept while it is the token that was chosen. So the step commits row by row, as many
// plain steps would (draft/drafting.cc).
//
// Thread safety: Submit and stats() from any thread. Step() from one thread: the engine's own after
// Start(), or the test's.
class Engine {
 public:
  // `executor` and `clock` must outlive the engine.
  Engine(Executor& executor, std::unique_ptr<StateCache> cache, const EngineOptions& options,
         const Clock& clock);
  ~Engine();

  // Runs Step() on a thread of its own until Stop().
  void Start();
  // Ends the thread after the current step. Requests that are still there complete as cancelled.
  void Stop();

  // Stores in a lower tier, if there is one, what is worth keeping, until that is done (true) or
  // the time is over. REQUIRES: stopped.
  bool StoreState(std::chrono::milliseconds timeout) { return cache_->StoreAll(timeout); }

  // kInvalidArgument if a request can never run (empty, too long, bad parameters).
  Status Check(const GenerateRequest& request) const;
  // Queues a request that Check has nothing against. Fails with kResourceExhausted if too many
  // wait.
  Result<std::shared_ptr<TokenStream>> Submit(GenerateRequest request);

  // Runs `task` on the engine thread between two steps, with the cache in hand (pin, reset, view).
  void Post(std::function<void(StateCache&)> task);

  // The model's memory is wanted for something else. Idle work ends; when nothing runs or waits any
  // more, `asleep` is called, once, on the engine thread, and from then on no step is computed:
  // requests that come wait for Wake. The cache stays as it is. A Wake before that calls it off.
  void Sleep(std::function<void()> asleep);
  // Steps are computed again. `awake` is called before the first one, on the engine thread.
  void Wake(std::function<void()> awake);

  // `changed` is called on the engine thread after every step that changed what stats() or the
  // cache's view would show; it must be quick. Null: nobody. Waits for a call under way.
  void SetObserver(std::function<void()> changed);

  // One iteration: at most one forward pass. Returns false when there was nothing to do.
  bool Step();

  EngineStats stats() const;
  int32_t context_tokens() const { return context_tokens_; }
  // For tests and commands that run Step() themselves.
  StateCache& cache() { return *cache_; }
  const Roster& roster() const { return roster_; }

 private:
  struct Inbox {
    std::deque<std::unique_ptr<Sequence>> sequences;
    std::vector<std::function<void(StateCache&)>> tasks;
  };

  // The rows of one sequence in the current step.
  struct Share {
    Sequence* sequence = nullptr;
    int32_t rows = 0;
    int32_t drafts = 0;      // rows behind those
    int32_t accepted = 0;    // of them
    size_t row_begin = 0;    // of the step
    size_t logit_begin = 0;  // its part of logits_, in rows
    size_t logit_count = 0;
  };

  // Lists that a step fills anew; kept for their memory.
  struct Scratch {
    std::vector<Runnable> runnables;
    std::vector<Sequence*> sequences;  // parallel to them
    std::vector<TokenId> tokens;
    std::vector<SequenceSlice> slices;
    std::vector<uint32_t> logit_rows;
    std::vector<PictureRows> pictures;
    std::vector<std::array<int32_t, 3>> places;  // of all rows, if there is a picture
    std::vector<const Share*> complete;          // those that go on with a token
    std::vector<StepSampler::Row> rows;          // parallel to them
    std::vector<DraftJob> jobs;
    std::vector<Share*> drafting;  // parallel to them, or those that take more drafts
    std::vector<NextRows> next;
  };

  // admission.cc
  void Admit();
  void AdmitRequests();
  void WorkAhead();
  void AdmitIdle(std::unique_ptr<Sequence> sequence);
  void DropSurplus();
  void DropCancelled();
  bool FallsAsleep();
  void StartWaiting();
  bool PutsOffStarts();
  bool LookUp(Sequence& sequence);
  bool Awaits(Sequence& sequence);
  bool MakePlace(Sequence& next);
  bool Fits(Sequence& next);
  Status StartWithRoom(Sequence& sequence);
  Status StartLease(Sequence& sequence);
  void StartIdle();
  bool DropIdle();
  void SendBack(Sequence& sequence, bool lost = false);
  void Reserve();
  Sequence* MakeRoomFor(Sequence& needy, const Status& reserved);
  void Recover(const Status& failed);
  void MakeRoomToCompute(const Status& computed);
  Lease Acquire(Sequence& sequence);
  Status Compact(Sequence& sequence, bool wait);

  // submission.cc
  void ScorePrompt(Sequence& sequence);
  static void Activate(GenerateRequest* request, Sequence* sequence);
  void PrepareCompaction(Sequence& sequence) const;
  bool TakePlaceInQueue(const GenerateRequest& request);

  // draft/drafting.cc
  void MakeDrafters();
  void PrepareSpeculation(Sequence& sequence) const;
  int32_t DraftsMax(const Sequence& sequence) const;
  void PlanDrafts();
  void Propose();
  bool AreWorthAsking(const Drafter& drafter, std::span<DraftJob* const> asked);
  void PlanWindows();
  void ReserveDrafts(Share& share);
  bool BeginDrafts(const Share& share);
  void TakeDrafts();
  bool TakeDraft(Share& share);
  void CountDrafts(const Sequence& sequence, DraftCount more);
  void NoteDrafts(const Share& share);
  SpeculationReport ReportOf(const Sequence& sequence) const;

  // engine.cc
  void PlanStep();
  bool Sees(Sequence& sequence, Runnable* one);
  int32_t WholeRows(const Sequence& sequence, int32_t rows) const;
  void Look();
  void Restrict(const Sequence& sequence, Runnable* one) const;
  Status Forward();
  void ShowPictures(BatchView* batch);
  Status Compute(BatchView batch);
  bool ChoosesOnDevice() const;
  bool ChoicesAreKnown() const;
  void AddChoices();
  void Commit();
  bool CommitRows(const Share& share, int32_t first, int32_t rows);
  std::span<const float> LogitsOf(const Share& share, int32_t row) const;
  void Pool(const Share& share, int32_t begin);
  StepSampler::Row RowOf(const Sequence& sequence, std::span<const float> logits) const;
  void Continue(Sequence& sequence, Result<Sampled>&& sampled);
  void SayForced(Sequence& sequence);
  void Say(Sequence& sequence, GeneratedToken&& generated);
  void Finish(Sequence& sequence, FinishReason reason, Status status = OkStatus());
  void CountEnd(const GenerateRequest& request, FinishReason reason);
  std::vector<TokenId> Publish(Sequence& sequence);
  std::vector<TokenId> Lose(Sequence& sequence);
  void Discard(std::vector<TokenId> tokens);
  void RemoveFinished();
  bool Idle();
  void PublishStats();
  void Loop();

  Executor& executor_;
  const bool chooses_;  // as executor_ says; callers' threads ask, too
  const std::unique_ptr<StateCache> cache_;
  const EngineOptions options_;
  const Clock& clock_;
  const int32_t context_tokens_;

  Scheduler scheduler_;
  StepSampler sampler_;
  ChoiceRows choices_;                              // of the current step, where the device chooses
  std::vector<std::shared_ptr<Drafter>> drafters_;  // the first that has something is believed
  MaskFiller filler_;
  Background background_;  // chooses which K/V stays, beside the steps
  Roster roster_;
  std::deque<std::unique_ptr<Sequence>> idle_;  // oldest first; the first may have started
  uint64_t starts_ = 1;                         // grows with every sequence that starts
  // Changes of the roster when the first of the queue was tried last, and when nobody could start
  // before the next one.
  uint64_t blocked_at_ = 0;
  uint64_t settled_at_ = 0;
  int32_t tokens_to_look_up_ = 0;  // that the current step may still compare
  size_t ended_ = 0;               // sequences that have finished and were not removed yet
  bool made_way_ = false;          // somebody who ran was cancelled before this step
  bool put_off_ = false;           // so that nobody started in it
  Sequence* looking_ = nullptr;    // whose picture the tower looks at next
  bool look_retried_ = false;      // it had no memory for that, and was given some
  bool filling_ = false;           // nothing can run before states are filled (StateCache::Filling)
  bool resting_ = false;           // the last step had only transfers to wait for
  std::function<void()> asleep_;   // called when nothing runs or waits; null: nobody asked
  bool sleeping_ = false;          // no step is computed
  bool chosen_on_device_ = false;  // in the current step
  Status choice_status_;
  std::vector<Share> shares_;  // of the current step
  Scratch scratch_;
  std::vector<float> logits_;    // [logit rows, vocab] of the current step
  std::vector<uint8_t> finite_;  // [sequences] of the current step
  int64_t step_ns_ = 0;          // how long its forward pass took,
  int64_t step_rows_ = 1;        // for so many rows
  std::vector<float> hidden_;    // [rows, dim] of the current step, if wanted
  EngineStats counters_;

  const std::shared_ptr<Cancels> cancels_;
  std::vector<uint64_t> cancelled_;     // those that were, before the inbox was emptied last
  std::atomic<uint64_t> arrivals_ = 0;  // that were counted so far

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  Inbox inbox_;
  std::map<std::string, TenantLoad> queued_;  // who waits, in the inbox and in the roster
  uint64_t refused_ = 0;
  bool stop_ = false;
  std::vector<std::vector<TokenId>> waste_;  // memory to be freed by whoever has time
  EngineStats published_;                    // without the recent ones:
  std::deque<Completion> recent_;
  std::mutex observer_mutex_;
  std::function<void()> observer_;
  uint64_t observed_ = 0;  // what the observer was last told about
  std::thread thread_;
};

}  // namespace reprise
