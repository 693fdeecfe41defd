// SPDX-License-Identifier: Apache-2.0
// reprise bench speculate: what drafts save and what they cost, by kinds of traffic, in one run:
// requests with and without drafts take turns on one engine. The model computes every step; which
// token it says is written over its logits, so that text repeats itself as real text does, however
// random the weights are. No token differs with drafts, so only time does.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
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
  std::vector<std::string> traffic;
  std::vector<size_t> streams = {1};
  std::string speculate = "auto";
  int32_t tokens = 384;  // of a reply
  int32_t window = 0;
  int32_t edit_gap = 96;
  int32_t repeat = 9;
  bool cpu_time = false;
  bool json = false;
};

// Kinds of traffic, by what the prompt has of the reply.
//
//  code   the reply is a file of the prompt with changes: --edit-gap tokens in a row are the same
//         on average, then up to eight are others; before it come 24 new ones
//  retry  a request that was answered before
//  new    nothing: no drafter has anything
//  junk   every three tokens of the reply, each time with something else behind them: every draft
//         is wrong
//  own    nothing is written over the logits: random words, what the model says to them
constexpr const char* kTraffic[] = {"code", "retry", "new", "junk", "own"};

// The time that this process has had on CPUs: others do not disturb it.
class CpuClock final : public Clock {
 public:
  int64_t NowNs() const override {
    timespec time = {};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
};

// Behind every token comes the one that is a fixed number larger: a text without end in which no
// run of tokens comes twice before all have come.
class Chain {
 public:
  explicit Chain(int64_t vocab) : vocab_(vocab), step_(vocab * 5 / 8 | 1) {
    while (std::gcd(step_, vocab_) != 1) ++step_;
  }
  TokenId Next(TokenId token) const { return TokenId((token + step_) % vocab_); }

 private:
  int64_t vocab_;
  int64_t step_;
};

// A model that says what the chain says.
class ChainedExecutor final : public ModelExecutor {
 public:
  ChainedExecutor(const Model& model, const OpContext& context)
      : ModelExecutor(model, context), chain_(model.vocab_size()) {}

  const Chain& chain() const { return chain_; }
  void set_chained(bool chained) { chained_ = chained; }

  Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) override {
    REPRISE_TRY(ModelExecutor::Forward(batch, memory, logits));
    if (!chained_) return OkStatus();
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const TokenId next = chain_.Next(batch.tokens[batch.logit_rows[i]]);
      logits[i * size_t(card().vocab_size) + size_t(next)] = 1e30f;
    }
    return OkStatus();
  }
  Status Begin(const BatchView& batch, const StateMemory& memory) override {
    next_.clear();
    for (const uint32_t row : batch.logit_rows) next_.push_back(chain_.Next(batch.tokens[row]));
    return ModelExecutor::Begin(batch, memory);
  }
  Status Choose(const ChoiceBatch& batch, const ChoiceResults& results,
                const Work& meanwhile) override {
    REPRISE_TRY(ModelExecutor::Choose(batch, results, meanwhile));
    for (size_t i = 0; chained_ && i < next_.size(); ++i) results.chosen[i].token = next_[i];
    return OkStatus();
  }

 private:
  const Chain chain_;
  std::vector<TokenId> next_;  // of each logit row of the step under way
  bool chained_ = true;
};

// Of one pass: with drafts, or without.
struct Pass {
  double token_ms = 0;  // mean of all streams
  double steps = 0;     // a token
  DraftCount drafts;
  std::vector<std::vector<TokenId>> replies;
};

class Bench {
 public:
  Bench(const Options& options, LoadedModel& loaded)
      : options_(options), executor_(loaded.model(), loaded.context()), loaded_(loaded) {}

  Status Run() {
    REPRISE_TRY(MakeEngine());
    for (const size_t streams : options_.streams) {
      for (const std::string& kind : options_.traffic) REPRISE_TRY(Measure(kind, streams));
    }
    return OkStatus();
  }

 private:
  Status MakeEngine() {
    CacheOptions cache;
    cache.sequence_count = int(*std::max_element(options_.streams.begin(), options_.streams.end()));
    cache.context_tokens = 5 * options_.tokens + 1024;
    cache.snapshot_gap = DefaultSnapshotGap(executor_.card().state);
    cache.budget_bytes =
        DefaultBudget(executor_.card().state, FindAvailableMemory(executor_.memory()).bytes, cache);
    REPRISE_ASSIGN(auto state,
                   StateCache::Create(executor_.card().state, cache, executor_.memory()));
    EngineOptions engine;
    engine.context_tokens = cache.context_tokens;
    engine.running_max = cache.sequence_count;
    engine.scheduler = loaded_.Steps(cache.sequence_count, 0);
    engine.speculation.window = options_.window;
    const Clock& clock = options_.cpu_time ? static_cast<const Clock&>(cpu_clock_) : clock_;
    engine_ = std::make_unique<Engine>(executor_, std::move(state), engine, clock);
    engine_->Start();
    return OkStatus();
  }

  TokenId AnyToken() { return TokenId(rng_.Below(uint64_t(executor_.card().vocab_size))); }

  // A prompt, the last token of which is the one before the reply.
  std::vector<TokenId> Prompt(std::string_view kind) {
    const Chain& chain = executor_.chain();
    std::vector<TokenId> prompt;
    TokenId said = AnyToken();  // the reply's own tokens, from there on
    const TokenId first = said;
    const auto next = [&] { return std::exchange(said, chain.Next(said)); };
    if (kind == "code") {
      for (int i = 0; i < 24; ++i) next();
      for (int left = options_.tokens; left > 0;) {
        const int same = 1 + int(rng_.Below(2 * uint64_t(options_.edit_gap) - 1));
        for (int i = 0; i < same; ++i) prompt.push_back(next());
        const int others = 1 + int(rng_.Below(8));
        const int gone = int(rng_.Below(9));
        for (int i = 0; i < others; ++i) prompt.push_back(AnyToken());
        for (int i = 0; i < gone; ++i) next();
        left -= same + gone;
      }
    } else if (kind == "junk") {
      for (int i = 0; i < options_.tokens; ++i) {
        TokenId token = next();
        for (int j = 0; j < 3; ++j) prompt.push_back(std::exchange(token, chain.Next(token)));
        prompt.push_back(AnyToken());
      }
    } else {
      for (int i = 0; i < 64; ++i) prompt.push_back(AnyToken());
    }
    prompt.push_back(first);
    return prompt;
  }

  Result<Pass> Ask(const std::vector<std::vector<TokenId>>& prompts, Speculate mode, bool own,
                   const std::string& salt) {
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (const std::vector<TokenId>& prompt : prompts) {
      GenerateRequest request;
      request.prompt = prompt;
      request.boundaries = {{int32_t(prompt.size()), BoundaryKind::kMessage}};
      request.sampling.temperature = own ? 0.7f : 0;
      request.sampling.seed = 1;
      request.max_tokens = options_.tokens;
      request.speculate = mode;
      request.salt = salt;
      REPRISE_ASSIGN(auto stream, engine_->Submit(std::move(request)));
      streams.push_back(std::move(stream));
    }
    Pass pass;
    const auto count = double(streams.size()) * (options_.tokens - 1);
    for (const auto& stream : streams) {
      const TokenStream::Update update = stream->WaitForAll();
      const Completion& completion = *update.completion;
      REPRISE_TRY(completion.status);
      pass.token_ms += (completion.total_ms - completion.first_token_ms) / count;
      pass.steps += completion.steps / count;
      const DraftCount drafts = completion.speculation.total();
      pass.drafts.run += drafts.run;
      pass.drafts.accepted += drafts.accepted;
      pass.replies.emplace_back();
      for (const GeneratedToken& token : update.tokens) {
        pass.replies.back().push_back(token.chosen.token);
      }
    }
    return pass;
  }

  Status Measure(const std::string& kind, size_t streams) {
    const Speculate mode = *FindSpeculate(options_.speculate);
    const bool own = kind == "own";
    engine_->Post([&](StateCache&) { executor_.set_chained(!own); });
    std::vector<double> plain_ms, ratios, steps;
    DraftCount drafts;
    for (int i = -1; i < options_.repeat; ++i) {  // the first for nothing: the engine learns
      std::vector<std::vector<TokenId>> prompts;
      for (size_t s = 0; s < streams; ++s) prompts.push_back(Prompt(kind));
      // Both find the same of each other: nothing, or both the answer.
      const std::string salt = "pair " + std::to_string(++pairs_);
      if (kind == "retry") {
        REPRISE_TRY(Ask(prompts, Speculate::kOff, own, salt).status());
      }
      const auto part = [&](bool with) {
        return kind == "retry" ? salt : salt + (with ? "+" : "-");
      };
      Pass plain, drafted;
      for (const bool with : {i % 2 == 0, i % 2 != 0}) {
        REPRISE_ASSIGN((with ? drafted : plain),
                       Ask(prompts, with ? mode : Speculate::kOff, own, part(with)));
      }
      if (plain.replies != drafted.replies) return Internal("a reply differs with drafts");
      if (i < 0) continue;
      plain_ms.push_back(plain.token_ms);
      ratios.push_back(plain.token_ms / drafted.token_ms);
      steps.push_back(drafted.steps);
      drafts.run += drafted.drafts.run;
      drafts.accepted += drafted.drafts.accepted;
    }
    Print(kind, streams, Median(plain_ms), ratios, Median(steps), drafts);
    return OkStatus();
  }

  void Print(const std::string& kind, size_t streams, double plain_ms,
             const std::vector<double>& ratios, double steps, const DraftCount& drafts) const {
    const double share = drafts.run > 0 ? double(drafts.accepted) / double(drafts.run) : 0;
    std::printf(
        options_.json
            ? "{\"traffic\": \"%s\", \"streams\": %zu, \"plain_token_ms\": %.4f, \"faster\": %.4f, "
              "\"faster_quartiles\": [%.4f, %.4f], \"steps_per_token\": %.4f, \"drafts\": %llu, "
              "\"accepted\": %.4f}\n"
            : "%-6s %3zu stream(s)  %8.3f ms a token  %.3f x with drafts (quartiles %.3f, %.3f)  "
              "%.3f steps a token, %llu drafts, %.2f of them right\n",
        kind.c_str(), streams, plain_ms, Median(ratios), Percentile(ratios, 0.25),
        Percentile(ratios, 0.75), steps, static_cast<unsigned long long>(drafts.run), share);
    std::fflush(stdout);
  }

  const Options& options_;
  SteadyClock clock_;
  CpuClock cpu_clock_;
  ChainedExecutor executor_;
  LoadedModel& loaded_;
  std::unique_ptr<Engine> engine_;
  Rng rng_{1};
  int pairs_ = 0;
};

Status Run(Options options) {
  if (options.traffic.empty()) options.traffic.assign(std::begin(kTraffic), std::end(kTraffic));
  for (const size_t count : options.streams) {
    if (count < 1 || count > 256) {
      return InvalidArgument("--streams " + std::to_string(count) +
                             " is out of range; give numbers from 1 to 256");
    }
  }
  const bool mtp = options.speculate == "auto" || options.speculate == "mtp";
  if (mtp) options.model.mtp = ModelOptions::Mtp::kAlways;
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  return Bench(options, *loaded).Run();
}

}  // namespace

void DefineSpeculateBench(Flags* flags) {
  auto options = std::make_shared<Options>();
  AddModelOptions(flags, &options->model);
  flags->Add("--traffic", &options->traffic,
             "code, retry, new, junk or own; may be given several times (default: all)",
             {.one_of = {std::begin(kTraffic), std::end(kTraffic)}});
  flags->Add("--streams", &options->streams, "requests at the same time; several, with commas");
  flags->Add("--speculate", &options->speculate, "drafters: auto, tree, ngram or mtp",
             {.one_of = {"auto", "tree", "ngram", "mtp"}});
  flags->Add("--window", &options->window,
             "drafts of a stream in a step, if there are so many; 0: as many as are worth it",
             {.min = 0, .max = 15});
  flags->Add("-n", &options->tokens, "tokens of a reply", {.min = 2, .max = 4096});
  flags->Add("--repeat", &options->repeat, "pairs of requests", {.min = 1, .max = 1000});
  flags->Add("--edit-gap", &options->edit_gap, "tokens between two changes of code, on average",
             {.min = 1, .max = 4096});
  flags->Add("--cpu-time", &options->cpu_time,
             "measure the CPU time of this process, for a machine that others use, too; give "
             "--threads 1");
  flags->Add("--json", &options->json, "one line of JSON for each");
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
