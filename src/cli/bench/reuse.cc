// SPDX-License-Identifier: Apache-2.0
// reprise bench chat|rag|batch|agent|mixed|trace: what reuse is worth.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/mapped_file.h"
#include "cache/sim/simulate.h"
#include "cache/sim/trace.h"
#include "cli/bench/workload.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "model/executor.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  bool json = false;
  std::string plot;
  std::string trace;
  size_t requests = 2000;
};

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(at + 0.5)];
}

struct Comparison {
  WorkloadRun cold;
  WorkloadRun warm;
};

void PrintTable(const std::string& name, const Comparison& c) {
  const auto row = [](const char* what, const WorkloadRun& run) {
    fmt::print(
        "{:<6}{:>12.1f}{:>12.1f}{:>12}{:>10.1f}{:>14.1f}{:>12}\n", what,
        Percentile(run.first_token_ms, 0.5), Percentile(run.first_token_ms, 0.95),
        run.reused_tokens,
        100.0 * static_cast<double>(run.reused_tokens) / static_cast<double>(run.prompt_tokens),
        static_cast<double>(run.prompt_tokens + run.generated_tokens) / run.seconds,
        FormatBytes(run.cache_bytes));
  };
  fmt::print("{}: {} requests, {} prompt tokens, {} generated\n", name,
             c.warm.first_token_ms.size(), c.warm.prompt_tokens, c.warm.generated_tokens);
  fmt::print("{:<6}{:>12}{:>12}{:>12}{:>10}{:>14}{:>12}\n", "", "ttft p50 ms", "ttft p95 ms",
             "reused", "hit %", "tokens/s", "held");
  row("cold", c.cold);
  row("warm", c.warm);
  fmt::print("time to first token: {:.1f} times faster (median), {:.1f} (p95); whole run {:.1f}\n",
             Percentile(c.cold.first_token_ms, 0.5) / Percentile(c.warm.first_token_ms, 0.5),
             Percentile(c.cold.first_token_ms, 0.95) / Percentile(c.warm.first_token_ms, 0.95),
             c.cold.seconds / c.warm.seconds);
}

void PrintJson(const std::string& name, const Comparison& c) {
  const auto part = [](const WorkloadRun& run) {
    return fmt::format(
        "{{\"ttft_ms_p50\": {:.3f}, \"ttft_ms_p95\": {:.3f}, \"prompt_tokens\": {}, "
        "\"reused_tokens\": {}, \"generated_tokens\": {}, \"seconds\": {:.4f}, \"cache_bytes\": "
        "{}}}",
        Percentile(run.first_token_ms, 0.5), Percentile(run.first_token_ms, 0.95),
        run.prompt_tokens, run.reused_tokens, run.generated_tokens, run.seconds, run.cache_bytes);
  };
  fmt::print("{{\"workload\": \"{}\", \"cold\": {}, \"warm\": {}}}\n", name, part(c.cold),
             part(c.warm));
}

// Bars of time to first token, request by request: cold behind, warm in front.
std::string Plot(const std::string& name, const Comparison& c) {
  constexpr double kWidth = 800;
  constexpr double kHeight = 300;
  const size_t count = c.cold.first_token_ms.size();
  const double most = *std::max_element(c.cold.first_token_ms.begin(), c.cold.first_token_ms.end());
  const double step = kWidth / static_cast<double>(count);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 -40 {} {}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"14\">\n<text x=\"4\" y=\"-16\">{}: time to first token, cold (grey) and warm "
      "(blue); tallest bar {:.0f} ms</text>\n",
      kWidth, kHeight + 44, name, most);
  const auto bar = [&](size_t i, double ms, const char* color) {
    const double height = kHeight * ms / most;
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
        static_cast<double>(i) * step + step * 0.1, kHeight - height, step * 0.8, height, color);
  };
  for (size_t i = 0; i < count; ++i) {
    bar(i, c.cold.first_token_ms[i], "#b8b8b8");
    bar(i, c.warm.first_token_ms[i], "#2f6fb3");
  }
  return svg + "</svg>\n";
}

Status RunReuse(const std::string& name, const Options& options) {
  SetLogLevel(LogLevel::kWarning);
  REPRISE_ASSIGN(const Workload workload, MakeWorkload(name));
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  ModelExecutor executor(loaded->model(), loaded->context());
  CacheOptions cache;
  cache.context_tokens = 4096;
  cache.budget_bytes = DefaultBudget(executor.card().state, FindAvailableMemory().bytes, cache);
  Comparison comparison;
  cache.enabled = false;
  REPRISE_ASSIGN(comparison.cold, RunWorkload(workload, executor, cache));
  cache.enabled = true;
  REPRISE_ASSIGN(comparison.warm, RunWorkload(workload, executor, cache));
  if (options.json) {
    PrintJson(name, comparison);
  } else {
    PrintTable(name, comparison);
  }
  if (options.plot.empty()) return OkStatus();
  const std::string svg = Plot(name, comparison);
  return WriteFileAtomically(options.plot, std::as_bytes(std::span(svg)));
}

Status RunTrace(const Options& options) {
  REPRISE_ASSIGN(const Trace trace, ReadTrace(options.trace, Pace{}, options.requests));
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  SimulationOptions simulation;
  simulation.spec = loaded->model().state_spec();
  const double fractions[] = {0.125, 0.25, 0.5, 1.0};
  REPRISE_ASSIGN(const BudgetTable table, SimulateBudgets(trace, simulation, fractions));
  fmt::print("{}", FormatTable(table));
  return OkStatus();
}

}  // namespace

void DefineReuseBenches(Flags* bench) {
  for (const char* name : kWorkloads) {
    auto options = std::make_shared<Options>();
    Flags* flags = bench->AddCommand(name, std::string("cold against warm: ") + name);
    AddModelOptions(flags, &options->model);
    flags->Add("--json", &options->json, "one line of JSON");
    flags->Add("--plot", &options->plot, "write bars of time to first token as SVG");
    flags->SetAction([=] { return RunReuse(name, *options); });
  }
  auto options = std::make_shared<Options>();
  Flags* flags = bench->AddCommand("trace", "replay a request trace on tree and policy alone");
  flags->Add("FILE", &options->trace, "JSON lines: Mooncake, conversations or turns",
             {.required = true});
  AddModelOptions(flags, &options->model);
  flags->Add("--requests", &options->requests, "at most so many");
  flags->SetAction([=] { return RunTrace(*options); });
}

}  // namespace reprise::cli
