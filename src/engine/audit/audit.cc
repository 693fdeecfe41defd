// SPDX-License-Identifier: Apache-2.0
#include "engine/audit/audit.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/rng.h"
#include "cache/tier/rehearsal_tier.h"
#include "engine/audit/cold_snapkv.h"
#include "engine/audit/rehearsed_drafter.h"
#include "engine/draft/model_drafter.h"
#include "model/adapter/adapter.h"
#include "sample/sampler.h"
#include "state/spec.h"
#include "state/virtual_tokens.h"

namespace reprise {
namespace {

// A schedule that takes more steps than this hangs.
constexpr int32_t kStepsMax = 20000;
// A picture comes in about so many new tokens.
constexpr uint64_t kTokensOfPicture = 20;

// A clock that moves by a fixed amount at every look: the run depends on nothing outside.
class AuditClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_ += 100'000; }

 private:
  mutable int64_t now_ns_ = 0;
};

// Logits as they came out. Rows of large vocabularies are kept as a checksum alone.
struct SeenRow {
  int32_t position = 0;
  uint64_t checksum = 0;
  std::vector<float> logits;
  TokenId next = -1;  // what plain decoding chooses from them, if that was asked
};
constexpr size_t kKeptVocabMax = 8192;

// In lanes, so that no step waits for the one before it: rows of 250,000 logits are read twice.
uint64_t Checksum(std::span<const float> row) {
  constexpr size_t kLanes = 8;
  uint64_t lanes[kLanes] = {};
  size_t at = 0;
  for (; at + 2 * kLanes <= row.size(); at += 2 * kLanes) {
    uint64_t pairs[kLanes];
    std::memcpy(pairs, &row[at], sizeof(pairs));
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = Mix64(lanes[i] ^ pairs[i]);
  }
  uint64_t sum = row.size();
  for (; at < row.size(); ++at) sum = Mix64(sum ^ std::bit_cast<uint32_t>(row[at]));
  for (const uint64_t lane : lanes) sum = Mix64(sum ^ lane);
  return sum;
}

struct LiveRequest {
  std::vector<TokenId> tokens;  // prompt, then reply as far as it was read
  int32_t prompt_tokens = 0;
  uint32_t space = 0;  // NamespaceKey::number
  std::shared_ptr<const Adapter> adapter;
  int32_t adapted_from = 0;  // the tokens before are of the model without it
  SnapKv snapkv;             // as it was asked for
  SamplingParams sampling;
  bool watched = true;  // its logits are seen; else the device chooses, where it can
  std::shared_ptr<TokenStream> stream;
  std::vector<SeenRow> seen;
  bool done = false;
};

class AuditRun {
 public:
  AuditRun(const Schedule& schedule, Executor& executor, const ColdLogits& cold,
           const MakeTier& make_tier, const AuditAdapters& adapters, const AuditPictures* pictures,
           std::shared_ptr<RehearsedDrafter> drafter)
      : schedule_(schedule),
        executor_(executor),
        cold_(cold),
        make_tier_(make_tier),
        adapters_(adapters),
        pictures_(pictures),
        drafter_(std::move(drafter)) {}

  // What was answered, for the drafts of another run.
  void Tell(RehearsedDrafter* drafter) const {
    for (const LiveRequest& live : live_) {
      drafter->Hear(live.tokens, static_cast<size_t>(live.prompt_tokens));
    }
  }

  AuditResult Run(int invariant_interval, const Sabotage& sabotage) {
    if (!MakeEngine()) return result_;
    live_.resize(schedule_.requests.size());
    size_t submitted = 0;
    for (int32_t step = 0; !result_.difference; ++step) {
      while (submitted < live_.size() && schedule_.requests[submitted].arrive_step <= step &&
             !RestartsBefore(submitted)) {
        Submit(submitted++);
      }
      CancelAt(step);
      if (sabotage) sabotage(engine_->cache());
      const bool worked = engine_->Step();
      ReadStreams();
      WaitForTier();
      if (step % invariant_interval == 0) CheckCache();
      if (!worked && submitted == live_.size()) break;
      if (step > kStepsMax) Fail(0, "the schedule does not end");
    }
    CheckCache();
    for (size_t i = 0; i < live_.size() && !result_.difference; ++i) {
      if (live_[i].stream && !live_[i].done) Fail(i, "the request never completes");
      Compare(i);
    }
    Count();
    return result_;
  }

 private:
  // Whether the engine is to end before this request, and those before it have not.
  bool RestartsBefore(size_t request) {
    if (static_cast<int32_t>(request) != restart_next_) return false;
    const bool done = std::all_of(live_.begin(), live_.begin() + static_cast<ptrdiff_t>(request),
                                  [](const LiveRequest& one) { return !one.stream || one.done; });
    if (!done) return true;
    restart_next_ += schedule_.restart_gap > 0 ? schedule_.restart_gap : INT32_MAX / 2;
    // Some end as they should, others are killed: what is stored then was stored before.
    const bool killed = schedule_.seed % 4 == 1;
    if (make_tier_ && !killed) (void)engine_->cache().StoreAll(std::chrono::seconds(2));
    Count();
    engine_.reset();
    return !MakeEngine();
  }

  // A real one takes its own time.
  void WaitForTier() const {
    constexpr std::chrono::microseconds kPause{200};
    const bool waits =
        engine_->cache().moves_under_way() > 0 && engine_->roster().running().empty();
    if (make_tier_ && waits) std::this_thread::sleep_for(kPause);
  }

  void Fail(size_t request, std::string text) {
    if (result_.difference) return;
    result_.difference.emplace();
    result_.difference->request = static_cast<int32_t>(request);
    result_.difference->text = std::move(text);
  }

  bool MakeEngine() {
    // First: whoever makes the tiers may let another set of devices compute from here on.
    std::unique_ptr<Tier> tiers;
    if (schedule_.tier && make_tier_) {
      auto made = make_tier_();
      if (!made.ok()) return Fail(0, made.status().message()), false;
      tiers = std::move(*made);
    }
    const StateSpec& spec = executor_.card().state;
    CacheOptions options;
    options.context_tokens = schedule_.context_tokens;
    options.sequence_count = schedule_.sequence_count;
    options.snapshot_gap = schedule_.snapshot_gap;
    options.ladder_tokens = schedule_.ladder_tokens;
    options.ttl_ms = schedule_.ttl_ms;
    // As tight as the cache allows, which must do for a request that runs alone, and as many more
    // sequences as the schedule wants.
    const size_t blocks = static_cast<size_t>(schedule_.context_tokens / kBlockTokens + 1);
    const size_t sequence = blocks * spec.kv_block_bytes() + spec.state_bytes();
    options.budget_bytes =
        LeastBudget(spec, options) +
        static_cast<size_t>(static_cast<double>(sequence) * (schedule_.budget_sequences - 1));
    auto cache = StateCache::Create(spec, options, executor_.memory());
    if (!cache.ok()) {
      Fail(0, cache.status().message());
      return false;
    }
    if (tiers != nullptr) {
      (*cache)->AttachTier(std::move(tiers));
    } else if (schedule_.tier) {
      RehearsalTier::Options tier;
      tier.seed = schedule_.seed;
      tier.lies = schedule_.tier_lies;
      tier.ns_per_byte = schedule_.seed % 4 == 0 ? 10'000 : 1;  // slow ones are not worth it
      (*cache)->AttachTier(std::make_unique<RehearsalTier>(tier, &folder_));
    }
    EngineOptions engine_options;
    engine_options.running_max = schedule_.sequence_count;
    engine_options.scheduler.rows_max = schedule_.rows_max;
    engine_options.scheduler.idle_rows_max = std::max(1, schedule_.rows_max / 2);
    engine_options.scheduler.chunk_rows_min = std::min(8, schedule_.rows_max);
    engine_options.context_tokens = schedule_.context_tokens;
    engine_options.snapkv.redecode = schedule_.snapkv_redecode;
    if (drafter_) {
      engine_options.speculation = {Speculate::kAuto, schedule_.draft_window, {drafter_}};
      // In some, where nobody else has drafts, the model drafts for itself, with as little room.
      if (schedule_.seed % 2 == 1) {
        auto small = ModelDrafter::Create(executor_, options, clock_);
        if (!small.ok()) return Fail(0, small.status().message()), false;
        engine_options.speculation.model = std::move(*small);
      }
    }
    engine_ = std::make_unique<Engine>(executor_, std::move(*cache), engine_options, clock_);
    return true;
  }

  std::vector<TokenId> PromptOf(const ScheduledRequest& scheduled) const {
    std::vector<TokenId> prompt;
    if (scheduled.parent >= 0) {
      const auto& parent = live_[static_cast<size_t>(scheduled.parent)].tokens;
      const size_t keep = std::min(parent.size(), static_cast<size_t>(scheduled.keep));
      prompt.assign(parent.begin(), parent.begin() + static_cast<ptrdiff_t>(keep));
    }
    Rng rng(scheduled.fresh_seed), shown(scheduled.fresh_seed + (uint64_t{1} << 42));
    for (int32_t i = 0; i < scheduled.fresh; ++i) {
      if (pictures_ != nullptr && shown.Below(kTokensOfPicture) == 0) {
        pictures_->Show(&shown, &prompt);
      }
      prompt.push_back(
          static_cast<TokenId>(rng.Below(static_cast<uint64_t>(executor_.card().vocab_size))));
    }
    const size_t room =
        static_cast<size_t>(std::max(1, schedule_.context_tokens - scheduled.max_tokens));
    if (prompt.size() > room) prompt.resize(room);
    if (pictures_ == nullptr) return prompt;
    pictures_->DropParts(&prompt);
    if (prompt.empty()) prompt.push_back(0);
    return prompt;
  }

  // Most prompts for an activated adapter invoke it, somewhere near their end.
  static void Invoke(const ScheduledRequest& scheduled, LiveRequest* live) {
    const std::vector<TokenId>& invocation = live->adapter->invocation();
    Rng rng(scheduled.fresh_seed + 1);
    if (!invocation.empty() && invocation.size() <= live->tokens.size() && rng.Below(5) > 0) {
      const size_t room = live->tokens.size() - invocation.size();
      const size_t at = room - rng.Below(std::min<size_t>(room, 24) + 1);
      std::copy(invocation.begin(), invocation.end(),
                live->tokens.begin() + static_cast<ptrdiff_t>(at));
    }
    const auto from = live->adapter->CountsFrom(live->tokens);
    live->adapted_from = from.value_or(0);
    if (!from) live->adapter = nullptr;
  }

  void Submit(size_t index) {
    const ScheduledRequest& scheduled = schedule_.requests[index];
    LiveRequest& live = live_[index];
    live.tokens = PromptOf(scheduled);
    GenerateRequest request;
    if (scheduled.boundary_gap > 0) {
      for (int32_t at = scheduled.boundary_gap; at < static_cast<int32_t>(live.tokens.size());
           at += scheduled.boundary_gap) {
        if (IsVirtual(live.tokens[static_cast<size_t>(at)])) continue;
        request.boundaries.push_back({at, request.boundaries.empty() ? BoundaryKind::kSystem
                                          : scheduled.breakpoints    ? BoundaryKind::kBreakpoint
                                                                     : BoundaryKind::kMessage});
      }
    }
    request.max_tokens = scheduled.max_tokens;
    request.sampling.temperature = scheduled.sampled ? 1.0f : 0.0f;
    request.sampling.seed = index;
    request.priority = scheduled.priority;
    request.idle = scheduled.idle;
    request.cache_read = scheduled.cache_read;
    request.cache_write = scheduled.cache_write;
    request.pin_ms = scheduled.pin_ms;
    request.min_cache_tokens = scheduled.min_cache_tokens;
    if (scheduled.tenant > 0) request.salt = "tenant" + std::to_string(scheduled.tenant);
    request.tenant = request.salt;
    live.space = NamespaceKey{executor_.card().digest, request.salt}.number();
    request.tenant_weight = 1 + scheduled.tenant;
    live.prompt_tokens = static_cast<int32_t>(live.tokens.size());
    if (adapters_.choose) request.adapter = live.adapter = adapters_.choose(index);
    if (live.adapter) Invoke(scheduled, &live);
    request.prompt = live.tokens;
    if (pictures_ != nullptr) request.pictures = pictures_->FindIn(live.tokens);
    if (!scheduled.snapkv.off() && executor_.keeps() &&
        CheckSnapKv(executor_.card().state, scheduled.snapkv).ok()) {
      request.snapkv = live.snapkv = scheduled.snapkv;
      live.snapkv.redecode = schedule_.snapkv_redecode;
    }
    if (scheduled.reset) engine_->cache().Reset({executor_.card().digest, request.salt});
    const SamplingParams sampling = live.sampling = request.sampling;
    const bool speculates = schedule_.speculate && executor_.chooses();
    live.watched = !speculates || schedule_.seed % 4 == 0 || Mix64(schedule_.seed + index) % 8 == 0;
    const auto on_logits = [this, &live, sampling](int32_t position,
                                                   std::span<const float> logits) {
      SeenRow row{position, Checksum(logits), {}};
      if (drafter_ && position + 1 >= live.prompt_tokens) {
        const auto next = sampler_.Sample(
            sampling, {.logits = logits, .position = static_cast<uint64_t>(position) + 1});
        if (next.ok()) row.next = next->chosen.token;
      }
      if (logits.size() <= kKeptVocabMax) row.logits.assign(logits.begin(), logits.end());
      live.seen.push_back(std::move(row));
    };
    if (live.watched) request.on_logits = on_logits;
    auto stream = engine_->Submit(std::move(request));
    if (!stream.ok()) return Fail(index, stream.status().message());
    live.stream = std::move(*stream);
  }

  void CancelAt(int32_t step) {
    for (size_t i = 0; i < live_.size(); ++i) {
      if (schedule_.requests[i].cancel_step == step && live_[i].stream) live_[i].stream->Cancel();
    }
  }

  void ReadStreams() {
    for (size_t i = 0; i < live_.size(); ++i) {
      LiveRequest& live = live_[i];
      if (!live.stream || live.done) continue;
      TokenStream::Update update = live.stream->Poll();
      for (const GeneratedToken& token : update.tokens) live.tokens.push_back(token.chosen.token);
      if (!update.completion) continue;
      live.done = true;
      result_.preemptions += static_cast<uint64_t>(update.completion->preemptions);
      if (update.completion->reason == FinishReason::kFailed) {
        Fail(i, update.completion->status.message());
      }
      const auto reply = static_cast<int32_t>(live.tokens.size()) - live.prompt_tokens;
      if (update.completion->reason == FinishReason::kLength &&
          reply != schedule_.requests[i].max_tokens) {
        Fail(i, "the reply has another length than was asked for");
      }
    }
  }

  void CheckCache() {
    const Status status = engine_->cache().CheckInvariants();
    if (!status.ok()) Fail(0, "cache invariant: " + status.message());
  }

  void Compare(size_t index) {
    LiveRequest& live = live_[index];
    if (live.seen.empty() && live.watched) return;
    const size_t vocab = static_cast<size_t>(executor_.card().vocab_size);
    const auto expected = std::make_unique_for_overwrite<float[]>(live.tokens.size() * vocab);
    // What idle work computes is exact, and so is a prompt.
    const bool whole = live.snapkv.off() || schedule_.requests[index].idle;
    if (whole && live.adapter) {
      adapters_.cold(*live.adapter, live.adapted_from, live.tokens, expected.get());
    } else if (whole) {
      cold_(live.space, live.tokens, expected.get());
    } else {
      RunColdSnapKv(executor_, live.space, live.tokens, live.prompt_tokens, live.snapkv,
                    expected.get(), live.adapter.get(), live.adapted_from);
    }
    if (!live.watched) CheckTokens(index, {expected.get(), live.tokens.size() * vocab});
    for (const SeenRow& seen : live.seen) {
      const auto next = static_cast<size_t>(seen.position) + 1;
      if (seen.next >= 0 && next < live.tokens.size() && live.tokens[next] != seen.next) {
        Fail(index, "plain decoding chooses another token than " +
                        std::to_string(live.tokens[next]) + " behind position " +
                        std::to_string(seen.position));
        return;
      }
      const std::span<const float> row(expected.get() + static_cast<size_t>(seen.position) * vocab,
                                       vocab);
      ++result_.logits_compared;
      if (Checksum(row) == seen.checksum) continue;
      Fail(index, "a logit differs from the cold run");
      result_.difference->position = seen.position;
      for (size_t token = 0; token < seen.logits.size(); ++token) {
        if (std::memcmp(&row[token], &seen.logits[token], sizeof(float)) == 0) continue;
        result_.difference->token = static_cast<int32_t>(token);
        result_.difference->expected = row[token];
        result_.difference->actual = seen.logits[token];
        break;
      }
      return;
    }
  }

  // Of a reply whose logits were not seen: each token is the one that the cold logits choose.
  void CheckTokens(size_t index, std::span<const float> logits) {
    const LiveRequest& live = live_[index];
    const size_t vocab = static_cast<size_t>(executor_.card().vocab_size);
    for (auto at = static_cast<size_t>(live.prompt_tokens); at < live.tokens.size(); ++at) {
      ++result_.logits_compared;
      const auto next = sampler_.Sample(
          live.sampling, {.logits = logits.subspan((at - 1) * vocab, vocab), .position = at});
      if (next.ok() && next->chosen.token == live.tokens[at]) continue;
      return Fail(index, "plain decoding chooses another token than " +
                             std::to_string(live.tokens[at]) + " behind position " +
                             std::to_string(at - 1));
    }
  }

  void Count() {
    const CacheStats stats = engine_->cache().stats();
    result_.tokens_prompt += stats.tokens_prompt;
    result_.tokens_reused += stats.tokens_reused;
    result_.snapshots_restored += stats.snapshots_restored;
    result_.compactions += stats.compactions;
    result_.spills += stats.spills;
    result_.loads += stats.loads;
    result_.tokens_loaded += stats.tokens_loaded;
    for (const uint64_t count : stats.snapshots_evicted) result_.evicted += count;
    for (const uint64_t count : stats.blocks_evicted) result_.evicted += count;
    const EngineStats engine = engine_->stats();
    result_.steps += engine.steps;
    for (const DraftCount& one : engine.drafts) {
      result_.drafts += one.run;
      result_.drafts_accepted += one.accepted;
    }
  }

  const Schedule& schedule_;
  Executor& executor_;
  const ColdLogits& cold_;
  const MakeTier& make_tier_;
  const AuditAdapters& adapters_;
  const AuditPictures* const pictures_;              // or null
  const std::shared_ptr<RehearsedDrafter> drafter_;  // null: no drafts
  Sampler sampler_;
  AuditClock clock_;
  RehearsalTier::Folder folder_;
  int32_t restart_next_ = schedule_.restart_before;
  std::unique_ptr<Engine> engine_;
  std::vector<LiveRequest> live_;
  AuditResult result_;
};

}  // namespace

AuditResult RunSchedule(const Schedule& schedule, Executor& executor, const ColdLogits& cold,
                        int invariant_interval, const Sabotage& sabotage, const MakeTier& make_tier,
                        const AuditAdapters& adapters, const AuditPictures* pictures) {
  if (!schedule.speculate) {
    return AuditRun(schedule, executor, cold, make_tier, adapters, pictures, nullptr)
        .Run(invariant_interval, sabotage);
  }
  RehearsedDrafter::Options options;
  options.seed = schedule.seed;
  options.vocab_size = static_cast<int32_t>(executor.card().vocab_size);
  options.silent_percent = 25;
  options.junk_percent = schedule.draft_junk;
  const auto drafter = std::make_shared<RehearsedDrafter>(options);
  AuditRun plain(schedule, executor, cold, make_tier, adapters, pictures, nullptr);
  AuditResult result = plain.Run(invariant_interval, sabotage);
  if (result.difference) return result;
  plain.Tell(drafter.get());
  return AuditRun(schedule, executor, cold, make_tier, adapters, pictures, drafter)
      .Run(invariant_interval, sabotage);
}

Schedule Shrink(const Schedule& failing, const std::function<bool(const Schedule&)>& fails) {
  Schedule smallest = failing;
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t i = smallest.requests.size(); i-- > 0 && smallest.requests.size() > 1;) {
      Schedule candidate = smallest;
      candidate.requests.erase(candidate.requests.begin() + static_cast<ptrdiff_t>(i));
      if (candidate.restart_before > static_cast<int32_t>(i)) --candidate.restart_before;
      for (ScheduledRequest& request : candidate.requests) {
        if (request.parent == static_cast<int32_t>(i)) request.parent = -1;
        if (request.parent > static_cast<int32_t>(i)) --request.parent;
      }
      if (fails(candidate)) {
        smallest = std::move(candidate);
        smaller = true;
      }
    }
    for (size_t i = 0; i < smallest.requests.size(); ++i) {
      const auto attempt = [&](auto change) {
        Schedule candidate = smallest;
        if (!change(&candidate.requests[i]) || !fails(candidate)) return;
        smallest = std::move(candidate);
        smaller = true;
      };
      const auto reset = [](auto* field, auto value) {
        return *field != value && (*field = value, true);
      };
      attempt([&](ScheduledRequest* r) { return reset(&r->cancel_step, -1); });
      attempt([&](ScheduledRequest* r) { return reset(&r->snapkv, SnapKv()); });
      attempt([&](ScheduledRequest* r) { return reset(&r->boundary_gap, 0); });
      attempt([&](ScheduledRequest* r) { return reset(&r->pin_ms, 0); });
      attempt([&](ScheduledRequest* r) { return reset(&r->reset, false); });
      attempt([&](ScheduledRequest* r) { return reset(&r->tenant, 0); });
      attempt([&](ScheduledRequest* r) { return reset(&r->priority, 0); });
      attempt([&](ScheduledRequest* r) { return reset(&r->sampled, false); });
      attempt([&](ScheduledRequest* r) { return reset(&r->max_tokens, r->max_tokens / 2); });
      attempt([&](ScheduledRequest* r) { return reset(&r->fresh, std::max(1, r->fresh / 2)); });
    }
  }
  return smallest;
}

}  // namespace reprise
