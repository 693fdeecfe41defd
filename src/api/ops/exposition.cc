// SPDX-License-Identifier: Apache-2.0
#include "api/ops/exposition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace reprise::api {
namespace {

// Counts come as integers, however large: 123456789, not 1.23456789e+08.
std::string Number(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (std::trunc(value) == value && std::abs(value) < kExact) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

}  // namespace

std::string EscapeLabel(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    c == '\n' ? out += "\\n" : out += c;
  }
  return out;
}

void Histogram::Add(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(at - bounds_.begin())];
  sum_ += value;
}

void Histogram::Write(std::string_view name, std::string_view labels, std::string* out) const {
  const char* comma = labels.empty() ? "" : ",";
  uint64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_.size() ? Number(bounds_[i]) : "+Inf";
    *out += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, bound, total);
  }
  const std::string braces = labels.empty() ? "" : fmt::format("{{{}}}", labels);
  *out += fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, braces, Number(sum_), total);
}

void Exposition::Head(std::string_view name, std::string_view type, std::string_view help) {
  out_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

void Exposition::Write(std::string_view name, std::string_view labels, double value) {
  out_ += name;
  if (!labels.empty()) out_ += fmt::format("{{{}}}", labels);
  out_ += fmt::format(" {}\n", Number(value));
}

void Exposition::Add(std::string_view name, std::string_view help, std::string_view labels,
                     const Histogram& histogram) {
  Head(name, "histogram", help);
  histogram.Write(name, labels, &out_);
}

std::string JoinPages(std::span<const std::pair<std::string, std::string>> pages) {
  struct Family {
    std::string_view name;  // of the metric
    std::string head;       // its HELP and TYPE
    std::string samples;
  };
  std::vector<Family> families;
  for (const auto& [model, page] : pages) {
    const std::string label = "model=\"" + EscapeLabel(model) + "\"";
    Family* family = nullptr;
    for (std::string_view rest = page; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.starts_with("# HELP ")) {
        const std::string_view name = line.substr(7, line.find(' ', 7) - 7);
        auto known = std::find_if(families.begin(), families.end(),
                                  [&](const Family& one) { return one.name == name; });
        const bool first = known == families.end();
        if (first) known = families.insert(known, Family{name, "", ""});
        family = &*known;
        if (first) family->head = std::string(line) + "\n";
      } else if (line.starts_with("# TYPE ")) {
        if (family->samples.empty()) family->head += std::string(line) + "\n";
      } else if (!line.empty()) {
        const size_t name_end = line.find_first_of("{ ");
        const std::string_view tail = line.substr(name_end);
        family->samples += line.substr(0, name_end);
        if (tail.find("model=\"") != std::string_view::npos) {
          family->samples += tail;
        } else if (tail.starts_with('{')) {
          family->samples += "{" + label + "," + std::string(tail.substr(1));
        } else {
          family->samples += "{" + label + "}" + std::string(tail);
        }
        family->samples += '\n';
      }
    }
  }
  std::string joined;
  for (const Family& family : families) joined += family.head + family.samples;
  return joined;
}

}  // namespace reprise::api
