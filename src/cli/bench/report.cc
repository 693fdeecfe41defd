// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/mapped_file.h"
#include "cli/flags.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

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

Status WritePlot(const std::string& path, const std::string& svg) {
  if (path.empty()) return OkStatus();
  return WriteFileAtomically(path, std::as_bytes(std::span(svg)));
}

void PrintJson(const std::string& name, const BudgetTable& table) {
  std::string rows;
  for (const BudgetRow& row : table.rows) {
    rows += fmt::format(
        "{}{{\"fraction\": {}, \"budget_bytes\": {}, \"policy_tokens\": {}, \"lru_tokens\": {}, "
        "\"foresight_tokens\": {}, \"policy_saved\": {:.5f}, \"lru_saved\": {:.5f}}}",
        rows.empty() ? "" : ", ", row.fraction, row.budget_bytes, row.policy.reused_tokens,
        row.lru.reused_tokens, row.foresight_tokens, row.policy.saved_ratio(),
        row.lru.saved_ratio());
  }
  fmt::print(
      "{{\"trace\": \"{}\", \"prompt_tokens\": {}, \"ideal_tokens\": {}, \"ideal_saved\": {:.5f}, "
      "\"working_set_bytes\": {}, \"rows\": [{}]}}\n",
      name, table.ideal.prompt_tokens, table.ideal.reused_tokens, table.ideal.saved_ratio(),
      table.working_set_bytes, rows);
}

// Lines of hits, as a share of the ideal, over the budget.
std::string Plot(const std::string& name, const BudgetTable& table) {
  constexpr double kWidth = 800;
  constexpr double kHeight = 300;
  const double ideal = std::max(static_cast<double>(table.ideal.reused_tokens), 1.0);
  const double whole = std::max(static_cast<double>(table.foresight_tokens), 1.0);
  const auto line = [&](const char* color, const auto& share) {
    std::string points;
    for (const BudgetRow& row : table.rows) {
      points += fmt::format("{:.1f},{:.1f} ", kWidth * row.fraction, kHeight * (1 - share(row)));
    }
    return fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>\n",
                       color, points);
  };
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 -40 {} {}\" "
             "font-family=\"sans-serif\" font-size=\"14\">\n<text x=\"4\" y=\"-16\">{}: tokens "
             "reused, of ideal, by budget, of the working set; policy (blue), LRU (grey), with "
             "foresight (green)</text>\n<path fill=\"none\" stroke=\"#d0d0d0\" d=\"M0 0H{}M0 "
             "{}H{}\"/>\n",
             kWidth, kHeight + 44, name, kWidth, kHeight, kWidth) +
         line("#6aa84f",
              [&](const BudgetRow& row) { return double(row.foresight_tokens) / whole; }) +
         line("#999999",
              [&](const BudgetRow& row) { return double(row.lru.reused_tokens) / ideal; }) +
         line("#2f6fb3",
              [&](const BudgetRow& row) { return double(row.policy.reused_tokens) / ideal; }) +
         "</svg>\n";
}

}  // namespace

void AddReportOptions(Flags* flags, ReportOptions* options) {
  flags->Add("--json", &options->json, "one line of JSON");
  flags->Add("--plot", &options->plot, "write a picture as SVG");
}

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(at + 0.5)];
}

Status Report(const std::string& name, const Comparison& comparison, const ReportOptions& options) {
  if (options.json) {
    PrintJson(name, comparison);
  } else {
    PrintTable(name, comparison);
  }
  return WritePlot(options.plot, options.plot.empty() ? "" : Plot(name, comparison));
}

Status Report(const std::string& name, const BudgetTable& table, const ReportOptions& options) {
  if (options.json) {
    PrintJson(name, table);
  } else {
    fmt::print("{}", FormatTable(table));
    for (const BudgetRow& row : table.rows) {
      fmt::print("at {:.1f} %:\n{}", 100 * row.fraction, FormatReasons(row.policy));
    }
  }
  return WritePlot(options.plot, options.plot.empty() ? "" : Plot(name, table));
}

}  // namespace reprise::cli
