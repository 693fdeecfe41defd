// SPDX-License-Identifier: Apache-2.0
#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace reprise {
namespace {

// How much of the stop the text ends with after one more byte.
uint32_t Advance(const StopStrings::Stop& stop, uint32_t matched, char byte) {
  while (matched > 0 && stop.text[matched] != byte) matched = stop.shorter[matched - 1];
  return stop.text[matched] == byte ? matched + 1 : 0;
}

}  // namespace

StopStrings::List StopStrings::MakeList(std::vector<std::string> stops) {
  std::vector<Stop> list;
  for (std::string& text : stops) {
    if (text.empty()) continue;
    Stop stop{std::move(text), {0}};
    for (size_t i = 1; i < stop.text.size(); ++i) {
      stop.shorter.push_back(Advance(stop, stop.shorter.back(), stop.text[i]));
    }
    list.push_back(std::move(stop));
  }
  return std::make_shared<const std::vector<Stop>>(std::move(list));
}

bool StopStrings::Append(std::string_view text, std::string* out) {
  if (stopped_) return true;
  const size_t before = held_.size();
  held_.append(text);
  const std::string* found = nullptr;
  for (size_t i = before; i < held_.size() && found == nullptr; ++i) {
    for (size_t j = 0; j < stops_->size(); ++j) {
      const Stop& stop = (*stops_)[j];
      matched_bytes_[j] = Advance(stop, matched_bytes_[j], held_[i]);
      const bool whole = matched_bytes_[j] == stop.text.size();
      if (whole && (found == nullptr || stop.text.size() > found->size())) found = &stop.text;
    }
    if (found == nullptr) continue;
    out->append(held_, 0, i + 1 - found->size());
    matched_ = *found;
    held_.clear();
    stopped_ = true;
    return true;
  }
  const auto most = std::max_element(matched_bytes_.begin(), matched_bytes_.end());
  const size_t begun = most == matched_bytes_.end() ? 0 : *most;
  out->append(held_, 0, held_.size() - begun);
  held_.erase(0, held_.size() - begun);
  return false;
}

void StopStrings::Finish(std::string* out) {
  out->append(held_);
  held_.clear();
}

}  // namespace reprise
