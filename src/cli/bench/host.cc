// SPDX-License-Identifier: Apache-2.0
// `reprise bench host`: what a step costs beside the forward pass, with a model that computes
// nothing: queues, order, leases, blocks, the tree, sampling from a tiny vocabulary, statistics;
// with tenants that have shares, and a tier of host memory that has a record of every entry. What
// requests store is pinned, so that it goes down at once.
//
// Processor time of the engine's thread and, beside it, what a clock shows. What is measured is
// deterministic: the clock is the model's, so that every run does the same in the same step. Each
// run is a process of its own, with an empty heap; the cost of a step is the least of what it took
// in all runs. What a neighbour or an interrupt has cost in one of them does not count; what the
// program itself does, page faults included, it does in all.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "cache/tier/host_tier.h"
#include "cli/bench/report.h"
#include "cli/commands.h"
#include "engine/engine.h"
#include "model/executor.h"

namespace reprise::cli {
namespace {

struct Options {
  int32_t running = 256;
  int32_t waiting = 256;
  int32_t entries = 100'000;
  int32_t tokens = 100'000;
  int32_t documents = 16;
  int32_t tenants = 64;
  bool tier = true;
  int32_t state_mib = 0;  // of a recurrent state; 0: 256 bytes
  int32_t steps = 1000;
  int32_t runs = 7;
};

// Of the engine's thread.
struct Seconds {
  double processor = 0;
  double clock = 0;

  static Seconds Now() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return {ThreadSeconds(), std::chrono::duration<double>(now).count()};
  }
  Seconds operator-(const Seconds& o) const { return {processor - o.processor, clock - o.clock}; }
  Seconds operator+(const Seconds& o) const { return {processor + o.processor, clock + o.clock}; }
};

constexpr int32_t kVocab = 64;
constexpr int32_t kQuestionTokens = 100;
constexpr size_t kTierBytesMax = size_t{6} << 30;

// Time passes in forward passes only.
class ModelClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void Pass(int64_t ns) { now_ns_ += ns; }

 private:
  int64_t now_ns_ = 1'000'000'000;
};

class NothingExecutor : public Executor {
 public:
  NothingExecutor(bool recurrent, int32_t state_mib, int64_t context, ModelClock* clock)
      : clock_(*clock) {
    card_.family = "nothing";
    card_.digest = "nothing";
    card_.vocab_size = kVocab;
    card_.context_length = context;
    card_.state.token_cost = 1000;
    card_.state.layers.push_back({0, StateKind::kFullKv, 0, {{"k", {1, 1}, DType::kI32}}});
    if (recurrent) {
      const int64_t numbers = std::max<int64_t>(64, int64_t{state_mib} << 18);
      card_.state.layers.push_back({1, StateKind::kRecurrent, 0, {{"r", {numbers}, DType::kI32}}});
    }
  }

  const ModelCard& card() const override { return card_; }
  Status Forward(const BatchView& batch, const StateMemory&, float* logits) override {
    const Seconds begin = Seconds::Now();
    std::fill(batch.finite.begin(), batch.finite.end(), uint8_t{1});
    for (size_t i = 0; i < batch.logit_rows.size() * size_t{kVocab}; ++i) {
      logits[i] = static_cast<float>(i % 7);
    }
    clock_.Pass(10'000'000);
    seconds_ = seconds_ + (Seconds::Now() - begin);
    return OkStatus();
  }
  Seconds seconds() const { return seconds_; }

 private:
  ModelClock& clock_;
  ModelCard card_;
  Seconds seconds_;
};

// A machine that is full: entries stored, documents known, as many running and waiting as wanted.
class FullHouse {
 public:
  FullHouse(const Options& options, bool recurrent)
      : options_(options),
        executor_(recurrent, options.state_mib, int64_t{2} * options.tokens + 100'000, &clock_) {}

  Status Open() {
    CacheOptions cache;
    cache.context_tokens = static_cast<int32_t>(executor_.card().context_length);
    cache.sequence_count = options_.running + 1;
    cache.snapshot_gap = 16;
    cache.budget_bytes = size_t{8} << 30;
    REPRISE_ASSIGN(auto state, StateCache::Create(executor_.card().state, cache));
    if (options_.tier) {
      const StateLayout layout(executor_.card().state);
      const size_t blocks = size_t(options_.documents + options_.running + options_.waiting) *
                                size_t(options_.tokens / kBlockTokens + 2) +
                            size_t(options_.entries) * 2;
      const size_t all = blocks * (layout.block_bytes() + layout.state_bytes());
      const size_t bytes = std::min(all, kTierBytesMax);
      REPRISE_ASSIGN(auto tier, HostTier::Make(layout, bytes, HostMemory()));
      state->AttachTier(std::move(tier));
    }
    EngineOptions engine;
    engine.running_max = options_.running;
    engine.waiting_max = 2 * options_.waiting + options_.running + 256;
    engine.scheduler.rows_max = 8192;
    engine.scheduler.gap_ms_max = 1e9;
    engine_ = std::make_unique<Engine>(executor_, std::move(state), engine, clock_);
    for (int32_t i = 0; i < options_.documents; ++i) {
      documents_.push_back(RandomTokens(static_cast<uint64_t>(i), options_.tokens));
      REPRISE_TRY(Submit(documents_.back(), 0, i));
    }
    RunAll();
    for (int32_t i = 0; i < options_.entries; ++i) {
      REPRISE_TRY(Submit(RandomTokens(1'000'000 + static_cast<uint64_t>(i), 40), 0, i));
      if (i % options_.running == 0) RunAll();
    }
    RunAll();
    for (int32_t i = 0; i < options_.running + options_.waiting; ++i) REPRISE_TRY(Ask(90'000));
    while (engine_->stats().running < options_.running && engine_->Step()) {
    }
    for (int i = 0; i < 200; ++i) {
      engine_->Step();
      Read();
    }
    return OkStatus();
  }

  // What each step takes beside the forward pass. With `churn`, a reply ends and a question comes
  // in every tenth step.
  Result<std::vector<Seconds>> Measure(bool churn) {
    std::vector<Seconds> costs;
    for (int32_t step = 0; step < options_.steps; ++step) {
      if (churn && step % 10 == 0) {
        streams_[cancelled_++]->Cancel();
        Status asked;
        std::thread([&] { asked = Ask(90'000); }).join();  // callers have threads of their own
        REPRISE_TRY(asked);
      }
      const Seconds forward = executor_.seconds();
      const Seconds begin = Seconds::Now();
      engine_->Step();
      costs.push_back(Seconds::Now() - begin - (executor_.seconds() - forward));
      Read();
    }
    return costs;
  }

  EngineStats stats() const { return engine_->stats(); }

 private:
  static std::vector<TokenId> RandomTokens(uint64_t seed, int32_t count) {
    Rng rng(seed);
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    for (TokenId& token : tokens) token = static_cast<TokenId>(rng.Below(kVocab));
    return tokens;
  }

  // A question about one of the documents.
  Status Ask(int32_t max_tokens) {
    const uint64_t number = questions_++;
    std::vector<TokenId> prompt = documents_[number % documents_.size()];
    const auto question = RandomTokens(2'000'000 + number, kQuestionTokens);
    prompt.insert(prompt.end(), question.begin(), question.end());
    return Submit(std::move(prompt), max_tokens, static_cast<int32_t>(number % documents_.size()));
  }

  Status Submit(std::vector<TokenId> prompt, int32_t max_tokens, int32_t number) {
    GenerateRequest request;
    request.salt = request.tenant = "tenant " + std::to_string(number % options_.tenants);
    request.pin_ms = 300'000;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    REPRISE_ASSIGN(auto stream, engine_->Submit(std::move(request)));
    if (max_tokens > 0) streams_.push_back(std::move(stream));
    return OkStatus();
  }

  // As whoever asked would.
  void Read() {
    for (const auto& stream : streams_) (void)stream->Poll();
  }

  void RunAll() {
    do {  // what is large is filled by another thread meanwhile
      while (engine_->Step()) {
      }
    } while (engine_->stats().running + engine_->stats().waiting > 0);
    // Idle time, until all that was stored is in the tier, too.
    for (int32_t i = 0; options_.tier && i < options_.running; ++i) engine_->cache().Maintain();
    while (engine_->cache().moves_under_way() > 0) engine_->cache().Maintain();
  }

  const Options options_;
  ModelClock clock_;
  NothingExecutor executor_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::vector<TokenId>> documents_;
  std::vector<std::shared_ptr<TokenStream>> streams_;
  uint64_t questions_ = 0;
  size_t cancelled_ = 0;
};

// What one run sends to the process that asked for it.
struct Counts {
  int32_t running = 0;
  int32_t waiting = 0;
  uint64_t entries = 0;
  uint64_t records = 0;
};
struct Run {
  Counts counts;
  std::vector<Seconds> costs[2];  // by step: nobody comes or goes; one ends and one comes
};

Status Transfer(int fd, std::span<std::byte> bytes, bool write) {
  while (!bytes.empty()) {
    const ssize_t count =
        write ? ::write(fd, bytes.data(), bytes.size()) : ::read(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Internal("a run of the benchmark has ended before its time");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return OkStatus();
}

Status Transfer(int fd, Run* run, bool write) {
  REPRISE_TRY(Transfer(fd, std::as_writable_bytes(std::span(&run->counts, 1)), write));
  for (std::vector<Seconds>& costs : run->costs) {
    REPRISE_TRY(Transfer(fd, std::as_writable_bytes(std::span(costs)), write));
  }
  return OkStatus();
}

Result<Run> RunOnce(const Options& options, bool recurrent) {
  FullHouse house(options, recurrent);
  REPRISE_TRY(house.Open());
  Run run;
  for (const bool churn : {false, true}) {
    REPRISE_ASSIGN(run.costs[churn ? 1 : 0], house.Measure(churn));
  }
  const EngineStats stats = house.stats();
  run.counts = {stats.running, stats.waiting, stats.cache.entries, stats.cache.records};
  return run;
}

// The same in a process of its own.
Result<Run> RunApart(const Options& options, bool recurrent) {
  int ends[2];
  if (::pipe(ends) != 0) return Internal(std::string("no pipe: ") + std::strerror(errno));
  const pid_t child = ::fork();
  if (child < 0) return Internal(std::string("no process: ") + std::strerror(errno));
  if (child == 0) {
    ::close(ends[0]);
    Result<Run> run = RunOnce(options, recurrent);
    if (!run.ok()) std::fprintf(stderr, "%s\n", run.status().message().c_str());
    ::_exit(run.ok() && Transfer(ends[1], &*run, true).ok() ? 0 : 1);
  }
  ::close(ends[1]);
  Run run;
  for (auto& costs : run.costs) costs.resize(static_cast<size_t>(options.steps));
  const Status read = Transfer(ends[0], &run, false);
  ::close(ends[0]);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  REPRISE_TRY(read);
  return run;
}

// One line of the table: the least of all runs, step by step.
void PrintRow(const std::vector<Run>& runs, int churn, bool recurrent) {
  const size_t steps = runs.front().costs[churn].size();
  std::vector<double> least(steps, 1e12), least_clock(steps, 1e12);
  double most = 0;
  for (const Run& run : runs) {
    for (size_t i = 0; i < steps; ++i) {
      const Seconds& cost = run.costs[churn][i];
      least[i] = std::min(least[i], 1e6 * cost.processor);
      least_clock[i] = std::min(least_clock[i], 1e6 * cost.clock);
      most = std::max(most, 1e6 * cost.processor);
    }
  }
  const auto longest = std::max_element(least.begin(), least.end());
  std::printf("%-10s %-24s %8.1f %8.1f %8.1f %8d %16.1f %8.1f %8.1f\n",
              recurrent ? "hybrid" : "attention",
              churn == 1 ? "one ends, one comes /10" : "no request comes or goes", Median(least),
              Percentile(least, 0.99), *longest, static_cast<int>(longest - least.begin()), most,
              Median(least_clock), *std::max_element(least_clock.begin(), least_clock.end()));
}

Status RunHost(const Options& options) {
  std::printf(
      "%d running, %d waiting, %d entries of %d tenants, %s, prompts of %d tokens; microseconds a "
      "step, the least of %d runs\n",
      options.running, options.waiting, options.entries, options.tenants,
      options.tier ? "beside a tier" : "no tier", options.tokens, options.runs);
  std::printf("%-10s %-24s %8s %8s %8s %8s %16s %8s %8s\n", "state", "steps", "median", "99 %",
              "most", "of step", "most in one run", "clock", "most");
  for (const bool recurrent : {false, true}) {
    if (options.state_mib > 0 && !recurrent) continue;
    std::vector<Run> runs;
    for (int32_t i = 0; i < options.runs; ++i) {
      REPRISE_ASSIGN(runs.emplace_back(), RunApart(options, recurrent));
    }
    for (const int churn : {0, 1}) PrintRow(runs, churn, recurrent);
    const Counts& counts = runs.front().counts;
    std::printf("%-10s %d running, %d waiting, %llu entries, %llu records\n", "", counts.running,
                counts.waiting, static_cast<unsigned long long>(counts.entries),
                static_cast<unsigned long long>(counts.records));
    std::fflush(stdout);
  }
  return OkStatus();
}

}  // namespace

void DefineHostBench(Flags* flags) {
  auto options = std::make_shared<Options>();
  flags->Add("--running", &options->running, "sequences that run", {.min = 1, .max = 4096});
  flags->Add("--waiting", &options->waiting, "requests that wait", {.min = 0, .max = 4096});
  flags->Add("--entries", &options->entries, "entries of the cache", {.min = 0, .max = 10'000'000});
  flags->Add("--tokens", &options->tokens, "tokens of a document", {.min = 1, .max = 10'000'000});
  flags->Add("--documents", &options->documents, "documents that are asked about",
             {.min = 1, .max = 1000});
  flags->Add("--tenants", &options->tenants, "tenants that share the cache",
             {.min = 1, .max = 1000});
  flags->Add("--tier,!--no-tier", &options->tier,
             "keep records of the entries in a tier of host memory");
  flags->Add("--state-mib", &options->state_mib,
             "MiB of a recurrent state: only models that have one are measured",
             {.min = 0, .max = 1024});
  flags->Add("--steps", &options->steps, "steps measured", {.min = 1, .max = 1'000'000});
  flags->Add("--runs", &options->runs, "times that everything is done: the least counts",
             {.min = 1, .max = 1000});
  flags->SetAction([options] { return RunHost(*options); });
}

}  // namespace reprise::cli
