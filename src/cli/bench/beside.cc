// SPDX-License-Identifier: Apache-2.0
// reprise bench beside: how a long prompt and streams slow each other down, in one run. The prompt
// is computed alone and beside streams; of the streams, the times between two tokens meanwhile.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench/report.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "engine/engine.h"
#include "model/executor.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  int32_t prompt = 8192;
  int32_t depth = 200;  // tokens of a stream's own prompt
  std::vector<size_t> streams = {1};
  int32_t gap_ms = 0;
  int32_t repeat = 3;
  bool json = false;
};

// Tokens a stream is given: more than it can say while the prompt is computed.
constexpr int32_t kReplyTokens = 1 << 14;
// Tokens of a stream before it counts as running.
constexpr size_t kWarmTokens = 8;

// When the tokens of a stream came. Written on the engine's thread, read when that is done.
class Arrivals {
 public:
  void Add(int64_t ns) {
    std::lock_guard lock(mutex_);
    times_ns_.push_back(ns);
  }
  size_t count() const {
    std::lock_guard lock(mutex_);
    return times_ns_.size();
  }
  // Milliseconds between tokens of which the second came within [begin, end].
  void GapsWithin(int64_t begin_ns, int64_t end_ns, std::vector<double>* gaps) const {
    std::lock_guard lock(mutex_);
    for (size_t i = 1; i < times_ns_.size(); ++i) {
      if (times_ns_[i] < begin_ns || times_ns_[i] > end_ns) continue;
      gaps->push_back(double(times_ns_[i] - times_ns_[i - 1]) * 1e-6);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int64_t> times_ns_;
};

class Beside {
 public:
  Beside(const Options& options, LoadedModel& loaded)
      : options_(options), executor_(loaded.model(), loaded.context()), loaded_(loaded) {}

  Status Run() {
    std::vector<double> alone;
    REPRISE_ASSIGN(const std::unique_ptr<Engine> engine, MakeEngine());
    for (int i = 0; i <= options_.repeat; ++i) {  // the first for nothing: sizes, clocks, estimates
      REPRISE_ASSIGN(const double ms, Prompt(*engine));
      if (i > 0) alone.push_back(ms);
    }
    const double base = Median(alone);
    if (!options_.json) {
      std::printf("prompt of %d tokens alone: %.0f ms, %.0f tokens/s (median of %d)\n",
                  options_.prompt, base, options_.prompt / base * 1e3, options_.repeat);
    }
    for (const size_t count : options_.streams) {
      std::vector<double> times, gaps;
      for (int i = 0; i < options_.repeat; ++i) REPRISE_TRY(Measure(*engine, count, &times, &gaps));
      Print(count, base, Median(times), gaps);
    }
    return OkStatus();
  }

 private:
  Result<std::unique_ptr<Engine>> MakeEngine() {
    CacheOptions cache;
    cache.sequence_count =
        int(*std::max_element(options_.streams.begin(), options_.streams.end())) + 1;
    cache.context_tokens = std::max(options_.prompt, options_.depth + kReplyTokens) + 64;
    cache.enabled = false;  // every prompt is computed whole
    cache.budget_bytes =
        DefaultBudget(executor_.card().state, FindAvailableMemory(executor_.memory()).bytes, cache);
    REPRISE_ASSIGN(auto state,
                   StateCache::Create(executor_.card().state, cache, executor_.memory()));
    EngineOptions engine;
    engine.context_tokens = cache.context_tokens;
    engine.running_max = cache.sequence_count;
    engine.scheduler = loaded_.Steps(cache.sequence_count, options_.gap_ms);
    auto made = std::make_unique<Engine>(executor_, std::move(state), engine, clock_);
    made->Start();
    return made;
  }

  GenerateRequest Request(int32_t tokens, int32_t reply) {
    GenerateRequest request;
    request.prompt.resize(size_t(tokens));
    const auto vocab = static_cast<uint64_t>(executor_.card().vocab_size);
    for (TokenId& token : request.prompt) token = static_cast<TokenId>(rng_.Below(vocab));
    request.sampling.temperature = 0;
    request.max_tokens = reply;
    return request;
  }

  // Milliseconds to the first token of the prompt's reply.
  Result<double> Prompt(Engine& engine) {
    REPRISE_ASSIGN(const auto stream, engine.Submit(Request(options_.prompt, 1)));
    const TokenStream::Update update = stream->WaitForAll();
    REPRISE_TRY(update.completion->status);
    return update.completion->first_token_ms;
  }

  Status Measure(Engine& engine, size_t count, std::vector<double>* times,
                 std::vector<double>* gaps) {
    std::vector<std::unique_ptr<Arrivals>> arrivals;
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (size_t i = 0; i < count; ++i) {
      arrivals.push_back(std::make_unique<Arrivals>());
      REPRISE_ASSIGN(auto stream, engine.Submit(Request(options_.depth, kReplyTokens)));
      stream->SetNotify([this, &times = *arrivals.back()] { times.Add(clock_.NowNs()); });
      streams.push_back(std::move(stream));
    }
    for (const auto& one : arrivals) {
      while (one->count() < kWarmTokens) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    const int64_t begin = clock_.NowNs();
    const Result<double> ms = Prompt(engine);
    const int64_t end = clock_.NowNs();
    for (const auto& stream : streams) stream->Cancel();
    for (const auto& stream : streams) stream->WaitForAll();
    REPRISE_TRY(ms.status());
    times->push_back(*ms);
    for (const auto& one : arrivals) one->GapsWithin(begin, end, gaps);
    return OkStatus();
  }

  void Print(size_t count, double alone, double ms, const std::vector<double>& gaps) const {
    const double most = gaps.empty() ? 0 : *std::max_element(gaps.begin(), gaps.end());
    const double usual = gaps.empty() ? 0 : Percentile(gaps, 0.99);
    if (options_.json) {
      std::printf(
          "{\"prompt\": %d, \"streams\": %zu, \"alone_ms\": %.1f, \"beside_ms\": %.1f, "
          "\"gap_ms_max\": %.1f, \"gap_ms_99\": %.1f}\n",
          options_.prompt, count, alone, ms, most, usual);
      return;
    }
    std::printf(
        "  beside %zu stream%s: %.0f ms, %.2f x alone; gaps of the streams at most %.0f ms, 99 of "
        "100 at most %.0f ms\n",
        count, count == 1 ? "" : "s", ms, ms / alone, most, usual);
  }

  const Options& options_;
  SteadyClock clock_;
  ModelExecutor executor_;
  LoadedModel& loaded_;
  Rng rng_{1};
};

Status Run(const Options& options) {
  for (const size_t count : options.streams) {
    if (count < 1 || count > 1024) {
      return InvalidArgument("--streams " + std::to_string(count) +
                             " is out of range; give numbers from 1 to 1024");
    }
  }
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  return Beside(options, *loaded).Run();
}

}  // namespace

void DefineBesideBench(Flags* flags) {
  auto options = std::make_shared<Options>();
  AddModelOptions(flags, &options->model);
  flags->Add("-n,--prompt", &options->prompt, "tokens of the long prompt",
             {.min = 1, .max = 1 << 20});
  flags->Add("--streams", &options->streams,
             "streams running at the same time; several numbers, with commas");
  flags->Add("--depth", &options->depth, "tokens of context of each stream",
             {.min = 1, .max = 1 << 20});
  flags->Add("--stream-gap-ms", &options->gap_ms,
             "maximum milliseconds between two tokens of a stream (default: 200, on a GPU 50)",
             {.min = 0, .max = 600000});
  flags->Add("--repeat", &options->repeat, "repetitions", {.min = 1, .max = 1000});
  flags->Add("--json", &options->json, "one line of JSON a number of streams");
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
