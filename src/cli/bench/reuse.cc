// SPDX-License-Identifier: Apache-2.0
// reprise bench chat|rag|batch|agent|mixed: what reuse is worth.
#include <memory>
#include <string>

#include "base/log.h"
#include "cli/bench/report.h"
#include "cli/bench/workload.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "model/executor.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  ReportOptions report;
};

Status RunReuse(const std::string& name, const Options& options) {
  SetLogLevel(LogLevel::kWarning);
  REPRISE_ASSIGN(const Workload workload, MakeWorkload(name));
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  ModelExecutor executor(loaded->model(), loaded->context());
  CacheOptions cache;
  cache.context_tokens = 4096;
  cache.budget_bytes =
      DefaultBudget(executor.card().state, FindAvailableMemory(executor.memory()).bytes, cache);
  Comparison comparison;
  cache.enabled = false;
  REPRISE_ASSIGN(comparison.cold, RunWorkload(workload, executor, cache));
  cache.enabled = true;
  REPRISE_ASSIGN(comparison.warm, RunWorkload(workload, executor, cache));
  return Report(name, comparison, options.report);
}

}  // namespace

void DefineReuseBenches(Flags* bench) {
  for (const char* name : kWorkloads) {
    auto options = std::make_shared<Options>();
    Flags* flags = bench->AddCommand(name, std::string("cold against warm: ") + name);
    AddModelOptions(flags, &options->model);
    AddReportOptions(flags, &options->report);
    flags->SetAction([=] { return RunReuse(name, *options); });
  }
}

}  // namespace reprise::cli
