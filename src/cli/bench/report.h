// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/sim/simulate.h"
#include "cli/bench/workload.h"
#include "cli/flags.h"

namespace reprise::cli {

// How a bench command says what it found: a table, or one line of JSON, and a picture.
struct ReportOptions {
  bool json = false;
  std::string plot;  // path of an SVG file, or empty
};
void AddReportOptions(Flags* flags, ReportOptions* options);

// The same requests with nothing reused, and with reuse.
struct Comparison {
  WorkloadRun cold;
  WorkloadRun warm;
};
Status Report(const std::string& name, const Comparison& comparison, const ReportOptions& options);

// Hit ratios of a simulated trace by budget.
Status Report(const std::string& name, const BudgetTable& table, const ReportOptions& options);

double Percentile(std::vector<double> values, double share);
inline double Median(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

}  // namespace reprise::cli
