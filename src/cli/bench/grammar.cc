// SPDX-License-Identifier: Apache-2.0
// `reprise bench grammar`: what a constraint costs a stream. The same prompt is continued freely
// and as JSON of a schema, in turns, token by token; the fastest round of each counts.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "engine/engine.h"
#include "grammar/matcher.h"
#include "grammar/schema/json_schema.h"
#include "model/executor.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  int tokens = 128;
  int rounds = 5;
  int prompt = 64;
};

// So many items that it does not end before the stream does.
constexpr char kSchema[] = R"({"type": "array", "minItems": 4000, "items": {"type": "object",
  "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 99999},
                 "name": {"type": "string", "maxLength": 80},
                 "kind": {"enum": ["fox", "bird", "frog", "somebody else"]},
                 "tags": {"type": "array", "items": {"type": "string"}},
                 "mail": {"type": "string", "format": "email"},
                 "score": {"type": "number", "minimum": 0, "maximum": 1}},
  "required": ["id", "name", "kind", "tags", "mail", "score"], "additionalProperties": false}})";

// A vocabulary like those of models: every byte, an end, and words. Random weights know no words,
// so any will do.
std::shared_ptr<const grammar::TokenTrie> MakeTrie(int64_t vocab) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.emplace_back();
  Rng rng(1);
  while (static_cast<int64_t>(tokens.size()) < vocab) {
    std::string word = rng.Below(2) == 0 ? " " : "";
    for (uint64_t i = 2 + rng.Below(9); i > 0; --i) word += static_cast<char>('a' + rng.Below(26));
    if (rng.Below(50) == 0) word += "\":";
    tokens.push_back(std::move(word));
  }
  tokens.resize(static_cast<size_t>(vocab));
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const int32_t ends[] = {256};
  return std::make_shared<const grammar::TokenTrie>(views, ends);
}

class Constraint final : public TokenConstraint {
 public:
  explicit Constraint(grammar::Matcher matcher) : matcher_(std::move(matcher)) {}
  Status Fill(TokenMask* allowed) override {
    const double begin = ThreadSeconds();
    const Status status = matcher_.Fill(allowed->words());
    seconds_ += ThreadSeconds() - begin;
    return status;
  }
  Status Accept(int32_t token) override { return matcher_.Accept(token); }
  void Force(std::vector<int32_t>*) override {}  // every token is chosen, here as there
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<Constraint>(*this);
  }
  double seconds() const { return seconds_; }

 private:
  grammar::Matcher matcher_;
  double seconds_ = 0;
};

class Bench {
 public:
  Bench(const Options& options, LoadedModel* loaded)
      : options_(options), executor_(loaded->model(), loaded->context()) {}

  Status Open() {
    if (executor_.card().vocab_size < 1000) return InvalidArgument("the vocabulary is too small");
    CacheOptions cache;
    cache.context_tokens = options_.prompt + options_.tokens + 1;
    cache.enabled = false;
    cache.budget_bytes =
        DefaultBudget(executor_.card().state, FindAvailableMemory(executor_.memory()).bytes, cache);
    REPRISE_ASSIGN(auto state,
                   StateCache::Create(executor_.card().state, cache, executor_.memory()));
    EngineOptions engine;
    engine.context_tokens = cache.context_tokens;
    engine_ = std::make_unique<Engine>(executor_, std::move(state), engine, clock_);
    const std::shared_ptr<const grammar::TokenTrie> trie = MakeTrie(executor_.card().vocab_size);
    REPRISE_ASSIGN(const JsonDocument schema, JsonDocument::Parse(kSchema));
    REPRISE_ASSIGN(grammar::Grammar grammar,
                   grammar::CompileJsonSchema(schema.root(), {.alphabet = trie->single_bytes()}));
    language_ = std::make_shared<grammar::Language>(std::move(grammar), trie);
    return language_->Prepare();
  }

  // Milliseconds for each token but the first.
  Result<double> Stream(bool constrained, uint64_t seed, double* mask_seconds) {
    GenerateRequest request;
    Rng rng(seed);
    const auto vocab = static_cast<uint64_t>(executor_.card().vocab_size);
    for (int i = 0; i < options_.prompt; ++i) {
      request.prompt.push_back(static_cast<TokenId>(rng.Below(vocab)));
    }
    request.max_tokens = options_.tokens;
    request.sampling.temperature = 1;
    request.sampling.seed = seed;
    std::shared_ptr<Constraint> constraint;
    if (constrained) {
      constraint = std::make_shared<Constraint>(grammar::Matcher(language_));
      request.constraint = constraint;
    }
    REPRISE_ASSIGN(const std::shared_ptr<TokenStream> stream, engine_->Submit(std::move(request)));
    std::optional<Completion> completion;
    while (!completion) {
      engine_->Step();
      completion = stream->Poll().completion;
    }
    REPRISE_TRY(completion->status);
    if (completion->generated_tokens != options_.tokens) return Internal("the stream ended early");
    if (constraint != nullptr) *mask_seconds += constraint->seconds();
    return (completion->total_ms - completion->first_token_ms) / (options_.tokens - 1);
  }

  Status Run() {
    double best[2] = {1e30, 1e30};
    double mask_seconds = 0;
    for (int round = 0; round <= options_.rounds; ++round) {
      for (const bool constrained : {false, true}) {
        REPRISE_ASSIGN(const double ms,
                       Stream(constrained, static_cast<uint64_t>(round), &mask_seconds));
        if (round > 0) best[constrained] = std::min(best[constrained], ms);
      }
    }
    const double masks = double(options_.tokens) * (options_.rounds + 1);
    std::printf("| stream | ms per token | tokens per second |\n|---|---|---|\n");
    std::printf("| free | %.3f | %.1f |\n", best[0], 1e3 / best[0]);
    std::printf("| constrained | %.3f | %.1f |\n", best[1], 1e3 / best[1]);
    std::printf(
        "\nloss: %.1f %%; a mask takes %.0f us on its own thread; %lld tokens in the vocabulary\n",
        (best[1] / best[0] - 1) * 100, mask_seconds / masks * 1e6,
        static_cast<long long>(executor_.card().vocab_size));
    return OkStatus();
  }

 private:
  const Options options_;
  ModelExecutor executor_;
  SteadyClock clock_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<grammar::Language> language_;
};

Status RunGrammar(const Options& options) {
  SetLogLevel(LogLevel::kWarning);
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  Bench bench(options, loaded.get());
  REPRISE_TRY(bench.Open());
  return bench.Run();
}

}  // namespace

void DefineGrammarBench(Flags* bench) {
  auto options = std::make_shared<Options>();
  Flags* flags = bench->AddCommand("grammar", "a constrained and a free stream at the same time");
  AddModelOptions(flags, &options->model);
  flags->Add("--tokens", &options->tokens, "tokens of a stream", {.min = 2, .max = 4000});
  flags->Add("--rounds", &options->rounds, "streams of each kind", {.min = 1, .max = 1000});
  flags->Add("--prompt", &options->prompt, "tokens of the prompt", {.min = 1, .max = 100'000});
  flags->SetAction([=] { return RunGrammar(*options); });
}

}  // namespace reprise::cli
