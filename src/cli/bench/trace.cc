// SPDX-License-Identifier: Apache-2.0
// reprise bench trace: requests as they were recorded, on the model or on tree and policy alone.
#include "cache/sim/trace.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "cache/sim/simulate.h"
#include "cli/bench/report.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "model/executor.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  ReportOptions report;
  std::string file;
  bool simulate = false;
  uint64_t request_count = 0;  // 0: see below
  int32_t context_tokens = 8192;
  int32_t reply_tokens = 16;
  int64_t budget_mib = 0;
};

// Requests one after another, without the pauses between them. What the model replies is not what
// the trace goes on with, so only prompts are found again.
Result<WorkloadRun> Replay(const Trace& trace, const Options& options, Executor& executor,
                           const CacheOptions& cache_options) {
  REPRISE_ASSIGN(auto cache,
                 StateCache::Create(executor.card().state, cache_options, executor.memory()));
  EngineOptions engine_options;
  engine_options.context_tokens = cache_options.context_tokens;
  const SteadyClock clock;
  Engine engine(executor, std::move(cache), engine_options, clock);
  engine.Start();
  const auto vocab = static_cast<TokenId>(executor.card().vocab_size);
  WorkloadRun run;
  ProgressBar bar(cache_options.enabled ? "warm" : "cold");
  const int64_t begin_ns = clock.NowNs();
  uint64_t done = 0;
  for (const TraceRequest& recorded : trace.requests) {
    bar.Show(++done, trace.requests.size());
    GenerateRequest request;
    trace.PromptOf(recorded, &request.prompt);
    for (TokenId& token : request.prompt) token %= vocab;
    request.boundaries = recorded.boundaries;
    request.sampling.temperature = 0;
    const auto reply = static_cast<int32_t>(recorded.reply.end - recorded.reply.begin);
    request.max_tokens = std::clamp(reply, 1, options.reply_tokens);
    const auto stream = engine.Submit(std::move(request));
    if (!stream.ok() && stream.status().code() == StatusCode::kInvalidArgument) continue;
    REPRISE_TRY(stream.status());
    const TokenStream::Update update = (*stream)->WaitForAll();
    REPRISE_TRY(update.completion->status);
    run.Add(*update.completion);
  }
  run.seconds = static_cast<double>(clock.NowNs() - begin_ns) / 1e9;
  engine.Stop();
  run.cache_bytes = engine.cache().stats().bytes_cached;
  if (run.first_token_ms.empty()) {
    return InvalidArgument("no request of the trace fits the context of " +
                           std::to_string(cache_options.context_tokens) +
                           " tokens; give more with --context");
  }
  return run;
}

Status RunOnModel(const std::string& name, const Trace& trace, LoadedModel* loaded,
                  const Options& options) {
  ModelExecutor executor(loaded->model(), loaded->context());
  CacheOptions cache;
  cache.context_tokens = static_cast<int32_t>(
      std::min<int64_t>(options.context_tokens, executor.card().context_length));
  cache.budget_bytes = options.budget_mib > 0
                           ? static_cast<size_t>(options.budget_mib) << 20
                           : DefaultBudget(executor.card().state,
                                           FindAvailableMemory(executor.memory()).bytes, cache);
  Comparison comparison;
  cache.enabled = false;
  REPRISE_ASSIGN(comparison.cold, Replay(trace, options, executor, cache));
  cache.enabled = true;
  REPRISE_ASSIGN(comparison.warm, Replay(trace, options, executor, cache));
  const size_t left_out = trace.requests.size() - comparison.warm.first_token_ms.size();
  if (left_out > 0) {
    std::fprintf(stderr, "%zu requests are longer than the context and were left out\n", left_out);
  }
  return Report(name, comparison, options.report);
}

Status RunTrace(const Options& options) {
  SetLogLevel(LogLevel::kWarning);
  constexpr size_t kOnModelDefault = 50;
  size_t count = options.request_count;
  if (count == 0) count = options.simulate ? SIZE_MAX : kOnModelDefault;
  REPRISE_ASSIGN(const Trace trace, ReadTrace(options.file, Pace{}, count));
  ModelOptions model = options.model;
  model.context_tokens = options.context_tokens;
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(model));
  const std::string name = std::filesystem::path(options.file).filename().string();
  if (!options.simulate) return RunOnModel(name, trace, loaded.get(), options);
  SimulationOptions simulation;
  simulation.spec = loaded->model().state_spec();
  const double fractions[] = {0.125, 0.25, 0.5, 1.0};
  REPRISE_ASSIGN(const BudgetTable table, SimulateBudgets(trace, simulation, fractions));
  return Report(name, table, options.report);
}

}  // namespace

void DefineTraceBench(Flags* flags) {
  auto options = std::make_shared<Options>();
  flags->Add("FILE", &options->file, "JSON lines: Mooncake, conversations or turns",
             {.required = true});
  AddModelOptions(flags, &options->model);
  AddReportOptions(flags, &options->report);
  flags->Add(
      "--simulate", &options->simulate,
      "only tree and policy, at several budgets, compared with LRU and the best that foresight "
      "could do");
  flags->Add("--requests", &options->request_count,
             "maximum requests (default: all if simulated, else 50)");
  flags->Add("-c,--context", &options->context_tokens, "longer requests are left out",
             {.min = 64, .max = 1 << 24});
  flags->Add("--reply", &options->reply_tokens, "maximum tokens to generate",
             {.min = 1, .max = 1 << 16});
  flags->Add("--budget", &options->budget_mib, "MiB of state to keep (default: by memory)",
             {.min = 0, .max = 1 << 24});
  flags->SetAction([=] { return RunTrace(*options); });
}

}  // namespace reprise::cli
