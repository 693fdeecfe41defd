// SPDX-License-Identifier: Apache-2.0
#include "model/snapkv/keep_list.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"

namespace reprise {
namespace {

// What a place before the window is worth: of the weights around it, as far as they lie before the
// window, the largest. Not a number counts as nothing. So all are at least 0.
std::vector<float> Pool(std::span<const float> weights) {
  static_assert(kPoolTokens == 7);
  constexpr size_t kSide = kPoolTokens / 2;
  const size_t count = weights.size();
  std::vector<float> most(count + 2 * kSide);  // [i]: at first of the place i - kSide alone
  for (size_t i = 0; i < count; ++i) most[i + kSide] = weights[i] > 0 ? weights[i] : 0;
  const auto widen = [&](size_t by, size_t end) {
    for (size_t i = 0; i < end; ++i) most[i] = most[i + by] > most[i] ? most[i + by] : most[i];
  };
  widen(1, count + 5);  // of two,
  widen(2, count + 3);  // four,
  widen(3, count);      // and seven from i on
  most.resize(count);
  return most;
}

// The `count`-th largest of the values, as bits (values of at least 0 are ordered as their bits
// are), and how many are larger. REQUIRES: 0 < count <= values.size().
struct Threshold {
  uint32_t bits = 0;
  size_t larger = 0;
};
Threshold FindThreshold(std::span<const float> values, size_t count) {
  constexpr int kDigitBits = 8;
  Threshold found;
  uint32_t mask = 0;  // of the digits that are known
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    std::array<uint32_t, 1 << kDigitBits> counts{};
    for (const float value : values) {
      const auto bits = std::bit_cast<uint32_t>(value);
      if ((bits & mask) == found.bits) ++counts[bits >> shift & 0xff];
    }
    uint32_t digit = counts.size() - 1;
    for (; found.larger + counts[digit] < count; --digit) found.larger += counts[digit];
    found.bits |= digit << shift;
    mask |= uint32_t{0xff} << shift;
  }
  return found;
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
  const auto wanted = size_t(count - window - kSinkTokens);
  auto next = kept.begin();
  for (int32_t i = 0; i < kSinkTokens; ++i) *next++ = i;
  if (wanted > 0) {
    const Threshold least = FindThreshold(std::span(pooled).subspan(kSinkTokens), wanted);
    size_t equals = wanted - least.larger;  // so many of those that are as large as the least
    for (int32_t i = kSinkTokens; i < before; ++i) {
      const auto bits = std::bit_cast<uint32_t>(pooled[size_t(i)]);
      const bool equal = bits == least.bits && equals > 0;
      if (equal) --equals;
      if (equal || bits > least.bits) *next++ = i;
    }
  }
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
