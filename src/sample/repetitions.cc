// SPDX-License-Identifier: Apache-2.0
#include "sample/repetitions.h"

#include <algorithm>

namespace reprise {

std::span<const std::pair<int32_t, int32_t>> Repetitions::Find(std::span<const int32_t> said,
                                                               const DryParams& params) {
  if (params.last_tokens >= 0 && said.size() > static_cast<size_t>(params.last_tokens)) {
    said = said.last(static_cast<size_t>(params.last_tokens));
  }
  const auto breaks = [&](int32_t token) {
    return std::binary_search(params.breakers.begin(), params.breakers.end(), token);
  };
  found_.clear();
  reversed_.assign(said.rbegin(), said.rend());
  const auto end = std::find_if(reversed_.begin(), reversed_.end(), breaks);
  const auto longest = static_cast<int32_t>(end - reversed_.begin());
  const auto count = static_cast<int32_t>(reversed_.size());
  // The Z function: [left, right) is the part furthest right that is known to equal the beginning.
  common_.assign(reversed_.size(), 0);
  for (int32_t i = 1, left = 0, right = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    int32_t same = i < right ? std::min(right - i, common_[static_cast<size_t>(i - left)]) : 0;
    while (i + same < count &&
           reversed_[static_cast<size_t>(same)] == reversed_[static_cast<size_t>(i + same)]) {
      ++same;
    }
    common_[at] = same;
    if (i + same > right) left = i, right = i + same;
    const int32_t length = std::min(same, longest);
    // What is no word (a part of a picture) cannot be said again.
    if (length > 0 && reversed_[at - 1] >= 0 && !breaks(reversed_[at - 1]))
      found_.emplace_back(reversed_[at - 1], length);
  }
  std::sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  const auto same_token = [](const auto& a, const auto& b) { return a.first == b.first; };
  found_.erase(std::unique(found_.begin(), found_.end(), same_token), found_.end());
  return found_;
}

float DryPenalty(const DryParams& params, int32_t length) {
  if (length < params.allowed_length) return 0;
  // By multiplication alone, so that it is the same on every CPU.
  constexpr double kMost = 1e30;
  double penalty = static_cast<double>(params.multiplier);
  for (int32_t i = params.allowed_length; i < length && penalty < kMost && params.base > 1; ++i) {
    penalty *= static_cast<double>(params.base);
  }
  return static_cast<float>(std::min(penalty, kMost));
}

}  // namespace reprise
