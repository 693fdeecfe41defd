// SPDX-License-Identifier: Apache-2.0
// reprise bench promises: the figures that reuse is held to, measured side by side in one run, so
// that a busy machine disturbs all of them alike. Times are medians; the settings take turns.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "cache/sim/cost.h"
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
  bool json = false;
  int32_t repeat = 7;
};

struct Finding {
  std::string what;
  std::string detail;
  double measured = 0;
  double bound = 0;
  bool at_least = false;  // else: at most

  bool kept() const { return at_least ? measured >= bound : measured <= bound; }
};

// An engine with reuse, or without.
class Bed {
 public:
  static Result<std::unique_ptr<Bed>> Create(Executor& executor, bool reuse) {
    CacheOptions options;
    options.context_tokens = 4096;
    options.enabled = reuse;
    options.budget_bytes =
        DefaultBudget(executor.card().state, FindAvailableMemory(executor.memory()).bytes, options);
    REPRISE_ASSIGN(auto cache,
                   StateCache::Create(executor.card().state, options, executor.memory()));
    return std::unique_ptr<Bed>(new Bed(executor, std::move(cache)));
  }

  // Milliseconds to the first token. `parts` are the messages, the first one that of the system.
  Result<double> FirstToken(const std::vector<std::vector<TokenId>>& parts) {
    REPRISE_ASSIGN(const auto stream, engine_.Submit(RequestOf(parts)));
    const TokenStream::Update update = stream->WaitForAll();
    REPRISE_TRY(update.completion->status);
    last_ = *update.completion;
    return update.completion->first_token_ms;
  }

  // Milliseconds until all have their first token.
  Result<double> All(const std::vector<std::vector<std::vector<TokenId>>>& prompts) {
    const int64_t begin = clock_.NowNs();
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (const auto& parts : prompts) {
      REPRISE_ASSIGN(auto stream, engine_.Submit(RequestOf(parts)));
      streams.push_back(std::move(stream));
    }
    for (const auto& stream : streams) REPRISE_TRY(stream->WaitForAll().completion->status);
    return static_cast<double>(clock_.NowNs() - begin) / 1e6;
  }

  // Milliseconds for prompts one after another, with short replies.
  Result<double> OneByOne(const std::vector<std::vector<TokenId>>& prompts) {
    const int64_t begin = clock_.NowNs();
    for (const auto& prompt : prompts) {
      GenerateRequest request = RequestOf({prompt});
      request.max_tokens = 8;
      REPRISE_ASSIGN(const auto stream, engine_.Submit(std::move(request)));
      REPRISE_TRY(stream->WaitForAll().completion->status);
    }
    return static_cast<double>(clock_.NowNs() - begin) / 1e6;
  }

  const Completion& last() const { return last_; }

 private:
  Bed(Executor& executor, std::unique_ptr<StateCache> cache)
      : engine_(executor, std::move(cache), {}, clock_) {
    engine_.Start();
  }

  static GenerateRequest RequestOf(const std::vector<std::vector<TokenId>>& parts) {
    GenerateRequest request;
    for (const auto& part : parts) {
      request.prompt.insert(request.prompt.end(), part.begin(), part.end());
      request.boundaries.push_back(
          {static_cast<int32_t>(request.prompt.size()),
           request.boundaries.empty() ? BoundaryKind::kSystem : BoundaryKind::kMessage});
    }
    request.sampling.temperature = 0;
    request.max_tokens = 1;
    return request;
  }

  SteadyClock clock_;
  Engine engine_;
  Completion last_;
};

class Promises {
 public:
  Promises(Executor& executor, int32_t repeat) : executor_(executor), repeat_(repeat) {}

  Result<std::vector<Finding>> Measure() {
    REPRISE_ASSIGN(cold_, Bed::Create(executor_, false));
    REPRISE_ASSIGN(warm_, Bed::Create(executor_, true));
    REPRISE_TRY(cold_->FirstToken({Words(64)}).status());  // pages, threads, clocks
    REPRISE_TRY(warm_->FirstToken({Words(64)}).status());
    REPRISE_TRY(NextTurn());
    REPRISE_TRY(SharedPart("chat, system prompt of 200 tokens", 200));
    REPRISE_TRY(SharedPart("document of 1,000 tokens", 1000));
    REPRISE_TRY(Batch());
    REPRISE_TRY(NothingToShare());
    Bookkeeping();
    return findings_;
  }

 private:
  using Parts = std::vector<std::vector<TokenId>>;

  std::vector<TokenId> Words(int32_t count) {
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    const auto vocab = static_cast<uint64_t>(executor_.card().vocab_size);
    for (TokenId& token : tokens) token = static_cast<TokenId>(rng_.Below(vocab));
    return tokens;
  }

  // 2,000 tokens of context, 30 new ones: against a cold prompt of as many tokens as were computed.
  Status NextTurn() {
    std::vector<double> warm, cold;
    int32_t computed = 0;
    for (int32_t i = 0; i < repeat_; ++i) {
      const std::vector<TokenId> history = Words(2000);
      REPRISE_TRY(warm_->FirstToken({history}).status());
      REPRISE_ASSIGN(const double ms, warm_->FirstToken({history, Words(30)}));
      warm.push_back(ms);
      const ReuseReport& report = warm_->last().report;
      computed = report.prompt_tokens - report.used_tokens;
      REPRISE_ASSIGN(const double alone, cold_->FirstToken({Words(computed)}));
      cold.push_back(alone);
    }
    const double limit = 1.15 * Median(cold) + 5;
    findings_.push_back({"next turn of 30 tokens after 2,000",
                         fmt::format("{} tokens computed; warm {:.1f} ms, as many alone {:.1f} ms",
                                     computed, Median(warm), Median(cold)),
                         Median(warm) / limit, 1});
    return OkStatus();
  }

  // What the shared beginning costs on top of the rest: cold, and from the second request on.
  Status SharedPart(const std::string& what, int32_t shared_tokens) {
    const std::vector<TokenId> shared = Words(shared_tokens);
    REPRISE_TRY(warm_->FirstToken({shared, Words(30)}).status());
    std::vector<double> cold, warm, alone;
    for (int32_t i = 0; i < repeat_; ++i) {
      const std::vector<TokenId> question = Words(30);
      REPRISE_ASSIGN(const double a, cold_->FirstToken({question}));
      REPRISE_ASSIGN(const double w, warm_->FirstToken({shared, question}));
      REPRISE_ASSIGN(const double c, cold_->FirstToken({shared, question}));
      alone.push_back(a);
      warm.push_back(w);
      cold.push_back(c);
    }
    AddRatio(what, Median(cold), Median(warm), Median(alone), 10);
    return OkStatus();
  }

  // 100 inputs behind an instruction of 50 tokens, at once, nothing stored before.
  Status Batch() {
    std::vector<double> cold, warm, alone;
    for (int32_t i = 0; i < std::max(1, repeat_ / 3); ++i) {
      const std::vector<TokenId> instruction = Words(50);
      std::vector<Parts> whole, bare;
      for (int input = 0; input < 100; ++input) {
        bare.push_back({Words(20)});
        whole.push_back({instruction, bare.back()[0]});
      }
      REPRISE_ASSIGN(const double a, cold_->All(bare));
      REPRISE_ASSIGN(const double w, warm_->All(whole));
      REPRISE_ASSIGN(const double c, cold_->All(whole));
      alone.push_back(a);
      warm.push_back(w);
      cold.push_back(c);
    }
    AddRatio("batch of 100, instruction of 50 tokens", Median(cold), Median(warm), Median(alone),
             5);
    return OkStatus();
  }

  void AddRatio(const std::string& what, double cold, double warm, double alone, double bound) {
    const double part = std::max(warm - alone, 0.001 * cold);  // less than that is noise
    findings_.push_back(
        {what + ", shared part",
         fmt::format("cold {:.1f} ms, warm {:.1f} ms, without it {:.1f} ms", cold, warm, alone),
         (cold - alone) / part, bound, true});
  }

  // Every prompt new: what looking, publishing and snapshots cost.
  Status NothingToShare() {
    std::vector<double> off, on;
    for (int32_t i = 0; i < repeat_; ++i) {
      const Parts prompts = {Words(600), Words(600), Words(600)};
      // The second of two runs may find warmer clocks: they take turns.
      for (const bool reuse : {i % 2 == 0, i % 2 != 0}) {
        REPRISE_ASSIGN(const double ms, (reuse ? warm_ : cold_)->OneByOne(prompts));
        (reuse ? on : off).push_back(ms);
      }
    }
    findings_.push_back(
        {"nothing to share: time with the cache over time without",
         fmt::format("three prompts of 600 tokens, replies of 8: {:.1f} ms and {:.1f} ms",
                     Median(on), Median(off)),
         Median(on) / Median(off), 1.02});
    return OkStatus();
  }

  void Bookkeeping() {
    const BookkeepingCost cost = MeasureBookkeeping(executor_.card().state);
    findings_.push_back(
        {"lookup of 100,000 tokens among 1,000,000, in ms", "", cost.lookup_seconds * 1e3, 1});
    findings_.push_back({"metadata, of the state's bytes", "", cost.metadata_share, 0.01});
  }

  Executor& executor_;
  const int32_t repeat_;
  Rng rng_{1};
  std::unique_ptr<Bed> cold_, warm_;
  std::vector<Finding> findings_;
};

Status RunPromises(const Options& options) {
  SetLogLevel(LogLevel::kWarning);
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  ModelExecutor executor(loaded->model(), loaded->context());
  Promises promises(executor, options.repeat);
  REPRISE_ASSIGN(const std::vector<Finding> findings, promises.Measure());
  for (const Finding& finding : findings) {
    if (options.json) {
      fmt::print("{{\"what\": \"{}\", \"measured\": {:.5f}, \"{}\": {}, \"kept\": {}}}\n",
                 finding.what, finding.measured, finding.at_least ? "at_least" : "at_most",
                 finding.bound, finding.kept());
      continue;
    }
    fmt::print("{:<4} {:<62} {:>9.4g}  (at {} {:g})\n", finding.kept() ? "ok" : "NO", finding.what,
               finding.measured, finding.at_least ? "least" : "most", finding.bound);
    if (!finding.detail.empty()) fmt::print("       {}\n", finding.detail);
  }
  return OkStatus();
}

}  // namespace

void DefinePromisesBench(Flags* flags) {
  auto options = std::make_shared<Options>();
  AddModelOptions(flags, &options->model);
  flags->Add("--json", &options->json, "JSON lines");
  flags->Add("--repeat", &options->repeat, "repetitions", {.min = 1, .max = 1000});
  flags->SetAction([=] { return RunPromises(*options); });
}

}  // namespace reprise::cli
