// SPDX-License-Identifier: Apache-2.0
#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace reprise {
namespace {

// The length of the longest end of `text` that is a beginning of `stop`, but not all of it.
size_t BegunLength(std::string_view text, std::string_view stop) {
  size_t length = std::min(text.size(), stop.size() - 1);
  while (length > 0 && text.substr(text.size() - length) != stop.substr(0, length)) --length;
  return length;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

bool StopStrings::Append(std::string_view text, std::string* out) {
  if (stopped_) return true;
  held_.append(text);
  size_t end = held_.size() + 1;  // of the stop that counts
  const std::string* found = nullptr;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == held_.npos) continue;
    const size_t stop_end = at + stop.size();
    if (stop_end < end || (stop_end == end && stop.size() > found->size())) {
      end = stop_end;
      found = &stop;
    }
  }
  if (found != nullptr) {
    out->append(held_, 0, end - found->size());
    matched_ = *found;
    held_.clear();
    stopped_ = true;
    return true;
  }
  size_t begun = 0;
  for (const std::string& stop : stops_) begun = std::max(begun, BegunLength(held_, stop));
  out->append(held_, 0, held_.size() - begun);
  held_.erase(0, held_.size() - begun);
  return false;
}

void StopStrings::Finish(std::string* out) {
  out->append(held_);
  held_.clear();
}

}  // namespace reprise
