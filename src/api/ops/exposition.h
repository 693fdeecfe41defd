// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reprise::api {

// Prometheus' text format, version 0.0.4.

// A label value between its quotes: backslash, quote and newline escaped.
std::string EscapeLabel(std::string_view text);

// Counts of values up to each of some bounds, which must outlive it.
//
// Thread safety: none.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1, 0) {}
  void Add(double value);
  // Its series. `labels` without braces.
  void Write(std::string_view name, std::string_view labels, std::string* out) const;

 private:
  std::span<const double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

// Writes a page, one metric after the other. `labels` are without braces: reason="cold".
class Exposition {
 public:
  explicit Exposition(std::string* out) : out_(*out) {}

  // A metric with one sample.
  template <typename Number>
  void Gauge(std::string_view name, std::string_view help, std::string_view labels, Number value) {
    Head(name, "gauge", help);
    Sample(name, labels, value);
  }
  template <typename Number>
  void Counter(std::string_view name, std::string_view help, std::string_view labels,
               Number value) {
    Head(name, "counter", help);
    Sample(name, labels, value);
  }
  void Add(std::string_view name, std::string_view help, std::string_view labels,
           const Histogram& histogram);

  // A metric with several: its head, then they.
  void Head(std::string_view name, std::string_view type, std::string_view help);
  template <typename Number>
  void Sample(std::string_view name, std::string_view labels, Number value) {
    Write(name, labels, static_cast<double>(value));
  }

 private:
  void Write(std::string_view name, std::string_view labels, double value);

  std::string& out_;
};

// One page of the pages of several models: every sample gets the label model="NAME", and the
// samples of a metric stand together. REQUIRES: pages that Exposition has written.
std::string JoinPages(std::span<const std::pair<std::string, std::string>> pages);

}  // namespace reprise::api
