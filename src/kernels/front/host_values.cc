// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"

namespace reprise {

bool AllFinite(std::span<const float> values) {
  // x * 0 is NaN for infinities and NaN; the sum keeps it. Sixteen sums so that the compiler can
  // use vectors without changing an order.
  float sum[16] = {};
  size_t i = 0;
  for (; i + 16 <= values.size(); i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) sum[lane] += values[i + lane] * 0.0f;
  }
  float total = 0;
  for (; i < values.size(); ++i) total += values[i] * 0.0f;
  for (const float s : sum) total += s;
  return total == 0;
}

int64_t ArgMax(std::span<const float> values) {
  if (values.empty() || !AllFinite(values)) return -1;
  // The largest value first (its position does not matter), then its first occurrence.
  float best[16];
  for (float& b : best) b = values[0];
  size_t i = 0;
  for (; i + 16 <= values.size(); i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) {
      best[lane] = values[i + lane] > best[lane] ? values[i + lane] : best[lane];
    }
  }
  float largest = best[0];
  for (const float b : best) largest = b > largest ? b : largest;
  for (; i < values.size(); ++i) largest = values[i] > largest ? values[i] : largest;
  for (i = 0; values[i] != largest; ++i) {
  }
  return static_cast<int64_t>(i);
}

}  // namespace reprise
