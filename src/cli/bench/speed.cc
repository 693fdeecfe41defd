// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench/machine_peak.h"
#include "cli/bench/op_profile.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "device/system_memory.h"
#include "model/executor.h"
#include "model/live_state.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  int64_t tokens = 0;
  int64_t depth = 0;  // tokens of context before the measured ones
  int64_t batch = 512;
  int sequences = 1;       // decoded side by side
  double temperature = 0;  // of decoded tokens; 0: the largest logit
  int repeat = 3;
  bool profile = false;
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

// A model, the state of its sequences and where the logits go. A device that chooses tokens itself
// does so here, too: as in a server, logits stay where they are.
struct Bed {
  LiveState state;
  std::vector<float> logits;
  ModelExecutor executor;
  OpProfile* profile;  // null: not wanted
  float temperature;
  std::vector<uint8_t> finite = {};
  Rng rng{1};

  Status Forward(std::span<const TokenId> tokens, std::span<const SequenceSlice> slices,
                 std::span<const uint32_t> rows) {
    if (profile != nullptr) profile->BeginStep();
    finite.resize(slices.size());
    const Status run =
        Run({.tokens = tokens, .sequences = slices, .logit_rows = rows, .finite = finite});
    if (profile != nullptr) profile->EndStep();
    return run;
  }

  Status Run(BatchView batch) {
    if (!executor.chooses()) return executor.Forward(batch, state.memory(), logits.data());
    std::vector<ChoiceRow> rows(batch.logit_rows.size());
    for (ChoiceRow& row : rows) row.temperature = temperature, row.draw = double(rng.Uniform());
    std::vector<ChosenToken> chosen(rows.size());
    ChoiceBatch choices;
    choices.rows = rows;
    batch.choices = &choices;
    ChoiceResults results;
    results.chosen = chosen;
    REPRISE_TRY(executor.Begin(batch, state.memory()));
    return executor.Choose(choices, results, {});
  }
};

// Runs `tokens` as the continuation of one sequence in steps of `batch`; logits of the last of
// each.
Status RunTokens(Bed* bed, int sequence, std::span<const TokenId> tokens, int64_t batch) {
  while (!tokens.empty()) {
    const size_t count = std::min(tokens.size(), size_t(batch));
    const SequenceSlice slice = bed->state.Next(sequence, 0, uint32_t(count));
    const uint32_t last = uint32_t(count - 1);
    REPRISE_TRY(bed->Forward(tokens.first(count), std::span(&slice, 1), std::span(&last, 1)));
    bed->state.Advance(sequence, int64_t(count));
    tokens = tokens.subspan(count);
  }
  return OkStatus();
}

// One token of every sequence a step, the same ones for all.
Status Decode(Bed* bed, std::span<const TokenId> tokens, int sequences) {
  std::vector<SequenceSlice> slices;
  std::vector<uint32_t> rows;
  for (const TokenId token : tokens) {
    slices.clear();
    rows.clear();
    for (int s = 0; s < sequences; ++s) {
      slices.push_back(bed->state.Next(s, uint32_t(s), 1));
      rows.push_back(uint32_t(s));
    }
    const std::vector<TokenId> step(size_t(sequences), token);
    REPRISE_TRY(bed->Forward(step, slices, rows));
    for (int s = 0; s < sequences; ++s) bed->state.Advance(s, 1);
  }
  return OkStatus();
}

Result<Measured> Measure(LoadedModel* loaded, const Options& options, bool decode,
                         OpProfile* profile) {
  const Model& model = loaded->model();
  const int64_t total = options.depth + options.tokens;
  const int sequences = decode ? options.sequences : 1;
  const std::vector<TokenId> tokens = RandomTokens(total, model.vocab_size());
  REPRISE_ASSIGN(LiveState state, LiveState::Create(model.state_spec(), sequences, total,
                                                    loaded->backend().memory()));
  OpContext context = loaded->context();
  if (options.profile) context.observer = profile;
  Bed bed{std::move(state), std::vector<float>(size_t(model.vocab_size()) * size_t(sequences)),
          ModelExecutor(model, context), options.profile ? profile : nullptr,
          float(options.temperature)};
  if (options.temperature > 0 && !bed.executor.chooses()) {
    return InvalidArgument(
        "--temperature is for a device that chooses tokens itself (--device cuda): here logits are "
        "measured, and choosing is not");
  }
  const auto before = std::span(tokens).first(size_t(options.depth));
  const auto measured = std::span(tokens).subspan(size_t(options.depth));
  std::vector<std::vector<std::byte>> saved;
  for (int s = 0; s < sequences; ++s) {
    REPRISE_TRY(RunTokens(&bed, s, before, options.batch));
    saved.push_back(bed.state.SaveState(s));
  }
  const auto run = [&](std::span<const TokenId> some) {
    return decode ? Decode(&bed, some, sequences) : RunTokens(&bed, 0, some, options.batch);
  };
  // Once for nothing: the first run brings the weights into the caches and sizes the scratch.
  REPRISE_TRY(run(measured.first(std::min<size_t>(measured.size(), decode ? 4 : 64))));
  Measured result{decode ? "decode" : "prefill", {}, options.tokens * sequences};
  for (int i = 0; i < options.repeat; ++i) {
    for (int s = 0; s < sequences; ++s) bed.state.Restore(s, options.depth, saved[size_t(s)]);
    profile->Clear();
    const double start = Seconds();
    REPRISE_TRY(run(measured));
    result.seconds.push_back(Seconds() - start);
  }
  return result;
}

void Print(const Options& options, LoadedModel* loaded, const Measured& measured, bool decode,
           double load_seconds) {
  const ModelCard& card = loaded->model().card();
  const double rate = measured.rate();
  // Decode reads every weight once a step; prefill is bound by its multiply-adds.
  const double per_token =
      card.layer_products + (decode ? card.head_products : 0) +
      card.state.token_cost_per_position * (double(options.depth) + double(options.tokens) / 2);
  const double achieved = decode ? rate / options.sequences * double(card.step_bytes) * 1e-9
                                 : rate * 2 * per_token * 1e-9;
  const Peak peak = decode ? ReadPeak(loaded->context(), card.step_bytes)
                           : ProductPeak(loaded->context(), card.main_type);
  // A ceiling measured while others had the machine can be too low: then it is none.
  const bool holds = achieved <= peak.giga;
  const char* unit = decode ? "GB/s" : "GFLOP/s";
  if (options.json) {
    std::printf(
        "{\"what\": \"%s\", \"tokens\": %lld, \"depth\": %lld, \"threads\": %d, "
        "\"tokens_per_second\": %.2f, \"%s\": %.1f, \"peak\": %s, \"peak_by_clock\": %s, "
        "\"load_seconds\": %.3f, "
        "\"weight_bytes\": %zu, \"resident_bytes\": %zu}\n",
        measured.what, static_cast<long long>(measured.tokens),
        static_cast<long long>(options.depth), loaded->backend().host_threads().size(), rate,
        decode ? "gigabytes_per_second" : "gigaflops", achieved,
        holds ? std::to_string(peak.giga).c_str() : "null",
        peak.by_clock > 0 ? std::to_string(peak.by_clock).c_str() : "null", load_seconds,
        card.weight_bytes, ResidentMemoryBytes());
    return;
  }
  std::printf("%s of %lld tokens after %lld: %.2f tokens/s (%d threads, median of %zu)\n",
              measured.what, static_cast<long long>(measured.tokens),
              static_cast<long long>(options.depth), rate, loaded->backend().host_threads().size(),
              measured.seconds.size());
  if (peak.giga == 0) {
    std::printf("  %.1f %s; there was no memory left to measure what the machine can do\n",
                achieved, unit);
  } else if (holds) {
    std::printf("  %.1f %s, %.0f %% of the %.1f %s %s\n", achieved, unit,
                100 * achieved / peak.giga, peak.giga, unit, peak.what);
  } else {
    std::printf("  %.1f %s, more than the %.1f %s %s: others had the machine, measure again\n",
                achieved, unit, peak.giga, unit, peak.what);
  }
  if (peak.by_clock > 0) {
    std::printf("  %.0f %% of the %.1f %s that it has at its highest clock\n",
                100 * achieved / peak.by_clock, peak.by_clock, unit);
  }
  std::printf("  weights %s, resident %s, loaded in %.2f s\n",
              FormatBytes(card.weight_bytes).c_str(), FormatBytes(ResidentMemoryBytes()).c_str(),
              load_seconds);
}

Status Run(const Options& options, bool decode) {
  const double start = Seconds();
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  const double load_seconds = Seconds() - start;
  OpProfile profile(loaded->backend());
  REPRISE_ASSIGN(const Measured measured, Measure(loaded.get(), options, decode, &profile));
  Print(options, loaded.get(), measured, decode, load_seconds);
  if (options.profile) profile.Print(measured.seconds.back(), measured.tokens);
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
  if (decode) {
    flags->Add("--sequences", &options->sequences, "sequences decoded side by side",
               {.min = 1, .max = 1024});
    flags->Add("--temperature", &options->temperature,
               "of the tokens that a GPU chooses; 0: the largest logit", {.min = 0, .max = 100});
  }
  flags->Add("--profile", &options->profile, "also the time of every op");
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
  DefineTiersBench(
      flags->AddCommand("tiers", "what writing state to a lower tier costs the steps meanwhile"));
  DefineTokenizeBench(flags);
  DefineGrammarBench(flags);
}

}  // namespace reprise::cli
