// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace reprise::cli {

// Progress of long work on stderr: a bar with bytes, rate and time left where a person watches, a
// plain line now and then where not.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  // Ends the line if it was never finished.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // The work begins with so many bytes done: they do not count for the rate.
  void Begin(uint64_t bytes_done) { begin_bytes_ = bytes_done; }
  void Show(uint64_t bytes_done, uint64_t bytes_total);

 private:
  const std::string label_;
  const bool terminal_;
  const int64_t start_ns_;
  int64_t shown_ns_ = 0;
  uint64_t begin_bytes_ = 0;
  bool open_ = false;  // the cursor stands in a bar
};

bool StderrIsTerminal();

// Writes a model's text to stdout at once. On a terminal control characters (but newline and tab)
// are left out: a model must not be able to move the cursor or set the title.
void WriteText(std::string_view text);

}  // namespace reprise::cli
