// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

// StopStrings watches a stream of text for strings at which it must end. Text that could be the
// beginning of one is held back until it is clear, so nothing is sent that a stop would take back.
//
// The stop that counts is the one whose last byte comes first (the longest of those that end
// together), so the result does not depend on how the text was cut.
//
// Costs: Append is O(number of stops * (text + longest stop)).
// Thread safety: none.
class StopStrings {
 public:
  // Empty stops are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // Appends to `out` what can be sent. Returns true if a stop was reached: the text before it was
  // sent, the stop and all that follows is dropped, and matched() tells which it was. Further text
  // is then ignored.
  bool Append(std::string_view text, std::string* out);

  // The text has ended: appends what was held back, unless a stop was reached.
  void Finish(std::string* out);

  bool stopped() const { return stopped_; }
  const std::string& matched() const { return matched_; }
  size_t held_bytes() const { return held_.size(); }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace reprise
