// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench/machine_peak.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "device/system_memory.h"
#include "model/live_state.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  int64_t tokens = 0;
  int64_t depth = 0;  // tokens of context before the measured ones
  int64_t batch = 512;
  int repeat = 3;
  bool json = false;
};

struct Measured {
  const char* what = "";
  std::vector<double> seconds;  // per repetition
  int64_t tokens = 0;

  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double rate() const { return double(tokens) / median(); }
};

double Seconds() { return double(SteadyClock().NowNs()) * 1e-9; }

std::vector<TokenId> RandomTokens(int64_t count, int64_t vocab) {
  Rng rng(1);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) token = TokenId(rng.Below(uint64_t(vocab)));
  return tokens;
}

// Runs `tokens` as the continuation of sequence 0 in steps of `batch`; logits of the last of each.
void RunTokens(LoadedModel* loaded, LiveState* state, std::span<const TokenId> tokens,
               int64_t batch, std::vector<float>* logits) {
  while (!tokens.empty()) {
    const size_t count = std::min(tokens.size(), size_t(batch));
    const SequenceSlice slice = state->Next(0, 0, uint32_t(count));
    const uint32_t last = uint32_t(count - 1);
    loaded->model().Forward(loaded->context(),
                            {tokens.first(count), std::span(&slice, 1), std::span(&last, 1)},
                            state->memory(), logits->data());
    state->Advance(0, int64_t(count));
    tokens = tokens.subspan(count);
  }
}

Result<Measured> Measure(LoadedModel* loaded, const Options& options, bool decode) {
  const Model& model = loaded->model();
  const int64_t total = options.depth + options.tokens;
  const std::vector<TokenId> tokens = RandomTokens(total, model.vocab_size());
  REPRISE_ASSIGN(LiveState state,
                 LiveState::Create(model.state_spec(), 1, total, loaded->backend().memory()));
  std::vector<float> logits(size_t(model.vocab_size()));
  const auto context = std::span(tokens).first(size_t(options.depth));
  const auto measured = std::span(tokens).subspan(size_t(options.depth));
  RunTokens(loaded, &state, context, options.batch, &logits);
  const std::vector<std::byte> slot = state.SaveState(0);
  const int64_t batch = decode ? 1 : options.batch;
  // Once for nothing: the first run brings the weights into the caches and sizes the scratch.
  RunTokens(loaded, &state, measured.first(std::min<size_t>(measured.size(), decode ? 4 : 64)),
            batch, &logits);
  Measured result{decode ? "decode" : "prefill", {}, options.tokens};
  for (int i = 0; i < options.repeat; ++i) {
    state.Restore(0, options.depth, slot);
    const double start = Seconds();
    RunTokens(loaded, &state, measured, batch, &logits);
    result.seconds.push_back(Seconds() - start);
  }
  return result;
}

void Print(const Options& options, LoadedModel* loaded, const Measured& measured, bool decode,
           double load_seconds) {
  const ModelCard& card = loaded->model().card();
  const double rate = measured.rate();
  // Decode reads every weight for each token; prefill is bound by its multiply-adds.
  const double per_token =
      card.layer_products + (decode ? card.head_products : 0) +
      card.state.token_cost_per_position * (double(options.depth) + double(options.tokens) / 2);
  const double achieved =
      decode ? rate * double(card.step_bytes) * 1e-9 : rate * 2 * per_token * 1e-9;
  const double peak = decode ? MeasureReadGigabytes(loaded->context())
                             : MeasureProductGigaflops(loaded->context(), card.main_type);
  const char* unit = decode ? "GB/s" : "GFLOP/s";
  if (options.json) {
    std::printf(
        "{\"what\": \"%s\", \"tokens\": %lld, \"depth\": %lld, \"threads\": %d, "
        "\"tokens_per_second\": %.2f, \"%s\": %.1f, \"peak\": %.1f, \"load_seconds\": %.3f, "
        "\"weight_bytes\": %zu, \"resident_bytes\": %zu}\n",
        measured.what, static_cast<long long>(measured.tokens),
        static_cast<long long>(options.depth), loaded->backend().host_threads().size(), rate,
        decode ? "gigabytes_per_second" : "gigaflops", achieved, peak, load_seconds,
        card.weight_bytes, ResidentMemoryBytes());
    return;
  }
  std::printf("%s of %lld tokens after %lld: %.2f tokens/s (%d threads, median of %zu)\n",
              measured.what, static_cast<long long>(measured.tokens),
              static_cast<long long>(options.depth), rate, loaded->backend().host_threads().size(),
              measured.seconds.size());
  std::printf("  %.1f %s, %.0f %% of the %.1f %s measured here for %s\n", achieved, unit,
              100 * achieved / peak, peak, unit,
              decode ? "reading memory" : "products whose operands are in the cache");
  std::printf("  weights %s, resident %s, loaded in %.2f s\n",
              FormatBytes(card.weight_bytes).c_str(), FormatBytes(ResidentMemoryBytes()).c_str(),
              load_seconds);
}

Status Run(const Options& options, bool decode) {
  const double start = Seconds();
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  const double load_seconds = Seconds() - start;
  REPRISE_ASSIGN(const Measured measured, Measure(loaded.get(), options, decode));
  Print(options, loaded.get(), measured, decode, load_seconds);
  return OkStatus();
}

void DefineSpeed(Flags* flags, bool decode) {
  auto options = std::make_shared<Options>();
  options->tokens = decode ? 64 : 512;
  AddModelOptions(flags, &options->model);
  flags->Add("-n", &options->tokens, "tokens to run", {.min = 1, .max = 1 << 20});
  flags->Add("--depth", &options->depth, "tokens of context before them",
             {.min = 0, .max = 1 << 20});
  flags->Add("--batch", &options->batch, "tokens of one step of prefill",
             {.min = 1, .max = 1 << 16});
  flags->Add("--repeat", &options->repeat, "repetitions", {.min = 1, .max = 1000});
  flags->Add("--json", &options->json, "one line of JSON");
  flags->SetAction([=] { return Run(*options, decode); });
}

}  // namespace

void DefineBench(Flags* flags) {
  DefineSpeed(flags->AddCommand("prefill", "tokens of a prompt per second"), false);
  DefineSpeed(flags->AddCommand("decode", "generated tokens per second"), true);
  DefineHostBench(flags->AddCommand("host", "time of a step beside the forward pass"));
  DefineReuseBenches(flags);
  DefineTraceBench(flags->AddCommand("trace", "replay a recorded trace of requests"));
  DefinePromisesBench(
      flags->AddCommand("promises", "what reuse was promised to cost and save, measured"));
  DefineTokenizeBench(flags);
}

}  // namespace reprise::cli
