// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench/machine_peak.h"
#include "cli/bench/op_profile.h"
#include "cli/bench/picture/picture_bench.h"
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
  // Every combination is measured.
  std::vector<size_t> depths = {0};     // tokens of context before the measured ones
  std::vector<size_t> batches = {512};  // tokens of one step of prefill
  std::vector<size_t> sequences = {1};  // decoded side by side
  double temperature = 0;               // of decoded tokens; 0: the largest logit
  int repeat = 3;
  bool profile = false;
  bool json = false;
};

// One combination of the options.
struct Setting {
  int64_t depth = 0;
  int64_t batch = 512;
  int sequences = 1;
};

struct Measured {
  Setting setting;
  std::vector<double> seconds;  // per repetition
  int64_t tokens = 0;           // of all sequences

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

// Sequences of one setting after another: those that differ in depth alone go on from each other.
class Speed {
 public:
  Speed(const Options& options, LoadedModel* loaded, bool decode)
      : options_(options),
        loaded_(*loaded),
        decode_(decode),
        deepest_(*std::max_element(options.depths.begin(), options.depths.end())),
        tokens_(RandomTokens(deepest_ + options.tokens, loaded->model().vocab_size())),
        profile_(loaded->backend()) {}

  Status Run(double load_seconds) {
    load_seconds_ = load_seconds;
    std::vector<size_t> depths = options_.depths;
    std::sort(depths.begin(), depths.end());
    for (const size_t count : decode_ ? options_.sequences : std::vector<size_t>{1}) {
      for (const size_t batch :
           decode_ ? std::vector<size_t>{options_.batches.back()} : options_.batches) {
        REPRISE_TRY(Create(int(count)));
        for (const size_t depth : depths) {
          REPRISE_ASSIGN(const Measured measured,
                         Measure({int64_t(depth), int64_t(batch), int(count)}));
          Print(measured);
          if (options_.profile) profile_.Print(measured.seconds.back(), measured.tokens);
        }
      }
    }
    return OkStatus();
  }

 private:
  Status Create(int sequences) {
    bed_.reset();  // its memory first
    const Model& model = loaded_.model();
    REPRISE_ASSIGN(LiveState state,
                   LiveState::Create(model.state_spec(), sequences, deepest_ + options_.tokens,
                                     loaded_.memory()));
    OpContext context = loaded_.context();
    if (options_.profile && model.devices() != nullptr) {
      return InvalidArgument("--profile shows the ops of one device; leave --devices out");
    }
    if (options_.profile) context.observer = &profile_;
    std::vector<float> logits(size_t(model.vocab_size()) * size_t(sequences));
    bed_.reset(new Bed{std::move(state), std::move(logits), ModelExecutor(model, context),
                       options_.profile ? &profile_ : nullptr, float(options_.temperature)});
    if (options_.temperature > 0 && !bed_->executor.chooses()) {
      return InvalidArgument(
          "--temperature is for a device that chooses tokens itself (--device cuda): here logits "
          "are measured, and choosing is not");
    }
    return OkStatus();
  }

  Result<Measured> Measure(const Setting& setting) {
    std::vector<std::vector<std::byte>> saved;
    for (int s = 0; s < setting.sequences; ++s) {
      const int64_t begin = bed_->state.length(s);
      const auto before = std::span(tokens_).first(size_t(setting.depth)).subspan(size_t(begin));
      REPRISE_TRY(RunTokens(bed_.get(), s, before, setting.batch));
      saved.push_back(bed_->state.SaveState(s));
    }
    const auto measured =
        std::span(tokens_).subspan(size_t(setting.depth), size_t(options_.tokens));
    const auto run = [&](std::span<const TokenId> some) {
      return decode_ ? Decode(bed_.get(), some, setting.sequences)
                     : RunTokens(bed_.get(), 0, some, setting.batch);
    };
    const auto restore = [&] {
      for (int s = 0; s < setting.sequences; ++s) {
        bed_->state.Restore(s, setting.depth, saved[size_t(s)]);
      }
    };
    // Once for nothing: the first run brings the weights into the caches and sizes the scratch.
    REPRISE_TRY(run(measured.first(std::min<size_t>(measured.size(), decode_ ? 4 : 64))));
    Measured result{setting, {}, options_.tokens * setting.sequences};
    for (int i = 0; i < options_.repeat; ++i) {
      restore();
      profile_.Clear();
      const double start = Seconds();
      REPRISE_TRY(run(measured));
      result.seconds.push_back(Seconds() - start);
    }
    restore();
    return result;
  }

  // Bytes that a step of decode reads: weights once, K/V and recurrent state of every sequence.
  double StepBytes(const Measured& measured) const {
    const ModelCard& card = loaded_.model().card();
    const double length = double(measured.setting.depth) + double(options_.tokens) / 2;
    double state = double(card.state.state_bytes());
    for (const LayerState& layer : card.state.layers) {
      if (layer.kind == StateKind::kRecurrent) continue;
      const bool window = layer.kind == StateKind::kWindowKv;
      const double seen = window ? std::min(length, double(layer.window)) : length;
      for (const StateTensor& tensor : layer.tensors) state += seen * double(tensor.bytes());
    }
    return double(card.step_bytes) + state * measured.setting.sequences;
  }

  // The ceiling: measured once, when it is first asked for.
  const Peak& Ceiling() {
    const ModelCard& card = loaded_.model().card();
    if (!peak_) {
      peak_ = decode_ ? ReadPeak(loaded_.context(), card.step_bytes)
                      : ProductPeak(loaded_.context(), card.main_type);
    }
    return *peak_;
  }

  void Print(const Measured& measured);

  const Options& options_;
  LoadedModel& loaded_;
  const bool decode_;
  const int64_t deepest_;
  const std::vector<TokenId> tokens_;
  OpProfile profile_;
  double load_seconds_ = 0;
  std::unique_ptr<Bed> bed_;
  std::optional<Peak> peak_;
};

void Speed::Print(const Measured& measured) {
  const ModelCard& card = loaded_.model().card();
  const Setting& setting = measured.setting;
  const double rate = measured.rate();
  // Decode reads every weight and all state once a step; prefill is bound by its multiply-adds.
  const double per_token =
      card.layer_products +
      card.state.token_cost_per_position * (double(setting.depth) + double(options_.tokens) / 2);
  const double achieved =
      decode_ ? rate / setting.sequences * StepBytes(measured) * 1e-9 : rate * 2 * per_token * 1e-9;
  const Peak& peak = Ceiling();
  // A ceiling measured while others had the machine can be too low: then it is none.
  const bool holds = achieved <= peak.giga;
  const char* unit = decode_ ? "GB/s" : "GFLOP/s";
  const char* what = decode_ ? "decode" : "prefill";
  const int threads = loaded_.backend().host_threads().size();
  if (options_.json) {
    std::printf(
        "{\"what\": \"%s\", \"tokens\": %lld, \"depth\": %lld, \"%s\": %lld, \"threads\": %d, "
        "\"tokens_per_second\": %.2f, \"%s\": %.1f, \"peak\": %s, \"peak_by_clock\": %s, "
        "\"load_seconds\": %.3f, "
        "\"weight_bytes\": %zu, \"resident_bytes\": %zu}\n",
        what, static_cast<long long>(measured.tokens), static_cast<long long>(setting.depth),
        decode_ ? "sequences" : "batch",
        static_cast<long long>(decode_ ? setting.sequences : setting.batch), threads, rate,
        decode_ ? "gigabytes_per_second" : "gigaflops", achieved,
        holds ? std::to_string(peak.giga).c_str() : "null",
        peak.by_clock > 0 ? std::to_string(peak.by_clock).c_str() : "null", load_seconds_,
        card.weight_bytes, ResidentMemoryBytes());
    return;
  }
  const std::string side = decode_ && setting.sequences > 1
                               ? " by " + std::to_string(setting.sequences) + " sequences"
                               : "";
  const std::string steps =
      decode_ ? "" : " in steps of " + std::to_string(std::min(setting.batch, options_.tokens));
  std::printf("%s of %lld tokens%s%s after %lld: %.2f tokens/s (%d threads, median of %zu)\n", what,
              static_cast<long long>(measured.tokens), side.c_str(), steps.c_str(),
              static_cast<long long>(setting.depth), rate, threads, measured.seconds.size());
  if (peak.giga == 0) {
    std::printf("  %.1f %s; not enough memory to measure the machine's limit\n", achieved, unit);
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
              load_seconds_);
}

// The library that reads lists checks no bounds.
Status CheckList(const char* name, const std::vector<size_t>& values, size_t least, size_t most) {
  for (const size_t value : values) {
    if (value < least || value > most) {
      return InvalidArgument(std::string(name) + " " + std::to_string(value) +
                             " is out of range; give numbers from " + std::to_string(least) +
                             " to " + std::to_string(most));
    }
  }
  return OkStatus();
}

Status Run(const Options& options, bool decode) {
  REPRISE_TRY(CheckList("--depth", options.depths, 0, 1 << 20));
  REPRISE_TRY(CheckList("--batch", options.batches, 1, 1 << 16));
  REPRISE_TRY(CheckList("--sequences", options.sequences, 1, 1024));
  const double start = Seconds();
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  return Speed(options, loaded.get(), decode).Run(Seconds() - start);
}

void DefineSpeed(Flags* flags, bool decode) {
  auto options = std::make_shared<Options>();
  options->tokens = decode ? 64 : 512;
  AddModelOptions(flags, &options->model);
  flags->Add("-n", &options->tokens, "tokens to run", {.min = 1, .max = 1 << 20});
  flags->Add("--depth,--depths", &options->depths,
             "tokens of context before them; several, with commas, are measured one by one");
  flags->Add("--batch", &options->batches,
             decode ? "tokens of one step of the context" : "tokens of one step; or several");
  if (decode) {
    flags->Add("--sequences", &options->sequences, "sequences decoded side by side; or several");
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
  DefineBesideBench(
      flags->AddCommand("beside", "how a long prompt and streams slow each other down"));
  DefineAdaptersBench(
      flags->AddCommand("adapters", "what adapters cost a batch that decodes, and loading them"));
  DefinePictureBench(flags->AddCommand("picture", "how long a tower looks at a picture"));
  DefineHostBench(flags->AddCommand("host", "time of a step outside the forward pass"));
  DefineMachineBench(flags->AddCommand(
      "machine", "what this machine can do at most, which others are held against"));
  DefineReuseBenches(flags);
  DefineTraceBench(flags->AddCommand("trace", "replay a recorded trace of requests"));
  DefinePromisesBench(
      flags->AddCommand("promises", "measure what reuse costs and saves, against the promises"));
  DefineTiersBench(
      flags->AddCommand("tiers", "how much writing state to a lower tier slows steps down"));
  DefineTokenizeBench(flags);
  DefineGrammarBench(flags);
  DefineSpeculateBench(
      flags->AddCommand("speculate", "what drafts save and cost, by kinds of traffic"));
}

}  // namespace reprise::cli
