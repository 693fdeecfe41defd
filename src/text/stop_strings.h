// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reprise {

// StopStrings watches a stream of text for strings at which it must end. Text that could be the
// beginning of one is held back until it is clear, so nothing is sent that a stop would take back.
//
// The stop that counts is the one whose last byte comes first (the longest of those that end
// together), so the result does not depend on how the text was cut.
//
// The strings are shared by all that are made from the same list: a request with many choices holds
// them once.
//
// Costs: Append is O(number of stops * text), whatever was held back (Knuth, Morris, Pratt 1977).
// Thread safety: none; a list is immutable.
class StopStrings {
 public:
  struct Stop {
    std::string text;
    // [text] how much of it is matched still, where so much was and no more is.
    std::vector<uint32_t> shorter;
  };
  using List = std::shared_ptr<const std::vector<Stop>>;

  // Empty stops are ignored.
  static List MakeList(std::vector<std::string> stops);
  explicit StopStrings(List stops) : stops_(std::move(stops)), matched_bytes_(stops_->size()) {}
  explicit StopStrings(std::vector<std::string> stops) : StopStrings(MakeList(std::move(stops))) {}

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
  List stops_;
  std::vector<uint32_t> matched_bytes_;  // [stops] how much of each the text ends with
  std::string held_;
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace reprise
