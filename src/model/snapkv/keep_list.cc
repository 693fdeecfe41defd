// SPDX-License-Identifier: Apache-2.0
#include "model/snapkv/keep_list.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"

namespace reprise {
namespace {

// What a place before the window is worth: of the weights around it, as far as they lie before the
// window, the largest. Not a number counts as nothing.
std::vector<float> Pool(std::span<const float> weights) {
  const auto count = static_cast<int32_t>(weights.size());
  std::vector<float> pooled(weights.size());
  for (int32_t i = 0; i < count; ++i) {
    const int32_t begin = std::max(0, i - kPoolTokens / 2);
    const int32_t end = std::min(count, i + kPoolTokens / 2 + 1);
    float most = 0;
    for (int32_t j = begin; j < end; ++j)
      most = weights[size_t(j)] > most ? weights[size_t(j)] : most;
    pooled[size_t(i)] = most;
  }
  return pooled;
}

int32_t WidestWindow(const StateSpec& spec) {
  int32_t widest = 0;
  for (const LayerState& layer : spec.layers) {
    if (layer.kind == StateKind::kWindowKv) widest = std::max(widest, layer.window);
  }
  return widest;
}

}  // namespace

Status CheckSnapKv(const StateSpec& spec, const SnapKv& options) {
  if (spec.bytes_per_token(StateKind::kFullKv) == 0) {
    return InvalidArgument(
        "snapkv is for models with full attention; the state of this one does not grow with the "
        "prompt beyond a window, so there is nothing to leave out");
  }
  if (options.budget < 0 || options.share < 0 || options.share >= 1 ||
      (options.budget > 0) == (options.share > 0)) {
    return InvalidArgument(
        "snapkv.budget must be a number of tokens, at least 1, or a share of the prompt between 0 "
        "and 1");
  }
  if (options.window < 1 || options.window > kSnapKvWindowMax) {
    return InvalidArgument("snapkv.window must be between 1 and " +
                           std::to_string(kSnapKvWindowMax) + " tokens");
  }
  return OkStatus();
}

int32_t KeptTokens(const StateSpec& spec, const SnapKv& options, int32_t tokens) {
  if (options.off()) return tokens;
  const int32_t wanted =
      options.budget > 0 ? options.budget : int32_t(std::ceil(options.share * double(tokens)));
  const int32_t least = std::max(kSinkTokens + options.window, WidestWindow(spec));
  return std::min(tokens, std::max(wanted, least));
}

void ChooseKept(std::span<const float> weights, int32_t window, std::span<int32_t> kept) {
  const auto rows = static_cast<int32_t>(weights.size());
  const auto count = static_cast<int32_t>(kept.size());
  const int32_t before = rows - window;  // the window begins
  CHECK(window > 0 && kSinkTokens + window <= count && count < rows);
  const std::vector<float> pooled = Pool(weights.first(size_t(before)));
  std::vector<int32_t> others;
  for (int32_t i = kSinkTokens; i < before; ++i) others.push_back(i);
  const auto chosen = others.begin() + (count - window - kSinkTokens);
  std::nth_element(others.begin(), chosen, others.end(), [&](int32_t a, int32_t b) {
    const float x = pooled[size_t(a)], y = pooled[size_t(b)];
    return x != y ? x > y : a < b;
  });
  std::sort(others.begin(), chosen);
  auto next = kept.begin();
  for (int32_t i = 0; i < kSinkTokens; ++i) *next++ = i;
  next = std::copy(others.begin(), chosen, next);
  for (int32_t i = before; i < rows; ++i) *next++ = i;
  CHECK(next == kept.end());
}

std::vector<uint8_t> KeptAlong(std::span<const int32_t> lists, int32_t kept, int32_t rows,
                               int32_t parts) {
  CHECK(parts > 0 && parts <= rows && kept > 0 && lists.size() % size_t(kept) == 0);
  const auto begin = [&](int64_t part) { return (part * rows + parts - 1) / parts; };
  std::vector<int64_t> counts(static_cast<size_t>(parts));
  for (const int32_t row : lists) ++counts[size_t(int64_t{row} * parts / rows)];
  const auto list_count = static_cast<int64_t>(lists.size()) / kept;
  std::vector<uint8_t> along;
  for (int32_t part = 0; part < parts; ++part) {
    const int64_t all = (begin(part + 1) - begin(part)) * list_count;
    along.push_back(uint8_t((100 * counts[size_t(part)] + all / 2) / all));
  }
  return along;
}

}  // namespace reprise
