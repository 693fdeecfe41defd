// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/norm.h"

#include <cmath>

#include "kernels/reference/lanes.h"

namespace reprise::reference {

namespace {

float SumOfSquares(const float* x, int64_t n) {
  Lanes lanes;
  for (int64_t i = 0; i < n; ++i) lanes.lane[i % 16] = std::fma(x[i], x[i], lanes.lane[i % 16]);
  return lanes.Sum();
}

}  // namespace

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  const float r = 1.0f / std::sqrt(SumOfSquares(x, n) / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * r) * weight[i];
}

void L2Norm(const float* x, float eps, float scale, int64_t n, float* y) {
  const float r = 1.0f / std::sqrt(SumOfSquares(x, n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * r) * scale;
}

void LayerNorm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
               float* y) {
  Lanes sum;
  for (int64_t i = 0; i < n; ++i) sum.lane[i % 16] += x[i];
  const float mean = sum.Sum() / static_cast<float>(n);
  Lanes squares;
  for (int64_t i = 0; i < n; ++i) {
    const float d = x[i] - mean;
    squares.lane[i % 16] = std::fma(d, d, squares.lane[i % 16]);
  }
  const float r = 1.0f / std::sqrt(squares.Sum() / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = (x[i] - mean) * r;
    y[i] = bias != nullptr ? std::fma(scaled, weight[i], bias[i]) : scaled * weight[i];
  }
}

void MatchMagnitude(const float* x, const float* like, float least, int64_t n, float* y) {
  const float wanted = std::sqrt(SumOfSquares(like, n) / static_cast<float>(n));
  const float mean_square = SumOfSquares(x, n) / static_cast<float>(n);
  const float magnitude = std::sqrt(mean_square < least ? least : mean_square);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * wanted) / magnitude;
}

void CutBelow(const float* x, float factor, int64_t n, float* y) {
  Lanes sum;
  for (int64_t i = 0; i < n; ++i) sum.lane[i % 16] += x[i];
  const float mean = sum.Sum() / static_cast<float>(n);
  Lanes squares;
  for (int64_t i = 0; i < n; ++i) {
    const float d = x[i] - mean;
    squares.lane[i % 16] = std::fma(d, d, squares.lane[i % 16]);
  }
  const float deviation = std::sqrt(squares.Sum() / static_cast<float>(n));
  const float least = std::fma(deviation, factor, mean);
  for (int64_t i = 0; i < n; ++i) {
    const float above = x[i] - least;
    y[i] = above < 0 ? 0 : above;
  }
}

}  // namespace reprise::reference
