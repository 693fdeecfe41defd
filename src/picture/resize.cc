// SPDX-License-Identifier: Apache-2.0
#include "picture/resize.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace reprise {
namespace {

// What one pixel of the result is made of: `count` pixels from `first` on.
struct Reach {
  int first = 0;
  int count = 0;
  size_t weight = 0;  // where its weights begin
};

struct Filter {
  std::vector<Reach> reaches;  // of each pixel of the result
  std::vector<int32_t> weights;
  int precision = 0;  // weights are multiples of 2^-precision
};

double Cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

double Triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

// The largest precision with which all weights fit into 16 bits.
int PrecisionOf(double weight_max) {
  int precision = 0;
  for (; precision < 22; ++precision) {
    if (static_cast<int>(0.5 + weight_max * (1 << (precision + 1))) >= 1 << 15) break;
  }
  return precision;
}

Filter MakeFilter(int from, int to, ResizeFilter kind) {
  const double scale = static_cast<double>(from) / to;
  const double radius = kind == ResizeFilter::kBicubic ? 2.0 : 1.0;
  const double support = scale >= 1 ? radius * scale : radius;
  const double inverse = scale >= 1 ? 1 / scale : 1.0;
  Filter filter;
  filter.reaches.resize(static_cast<size_t>(to));
  std::vector<double> weights;
  double most = 0;
  for (int i = 0; i < to; ++i) {
    const double center = scale * (i + 0.5);
    Reach& reach = filter.reaches[static_cast<size_t>(i)];
    reach.first = std::max(static_cast<int>(center - support + 0.5), 0);
    reach.count =
        std::max(std::min(static_cast<int>(center + support + 0.5), from) - reach.first, 0);
    reach.weight = weights.size();
    double total = 0;
    for (int j = 0; j < reach.count; ++j) {
      const double distance = (j + reach.first - center + 0.5) * inverse;
      weights.push_back(kind == ResizeFilter::kBicubic ? Cubic(distance) : Triangle(distance));
      total += weights.back();
    }
    for (int j = 0; j < reach.count && total != 0; ++j) {
      double& weight = weights[reach.weight + static_cast<size_t>(j)];
      weight /= total;
      most = std::max(most, weight);
    }
  }
  filter.precision = PrecisionOf(most);
  filter.weights.reserve(weights.size());
  for (const double weight : weights) {
    const double scaled = weight * (1 << filter.precision);
    filter.weights.push_back(static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return filter;
}

uint8_t Rounded(int32_t sum, int precision) {
  return static_cast<uint8_t>(std::clamp((sum + (1 << precision >> 1)) >> precision, 0, 255));
}

Pixels ResizeColumns(const Pixels& pixels, int width, ResizeFilter kind) {
  const Filter filter = MakeFilter(pixels.width, width, kind);
  Pixels out{width, pixels.height, {}};
  out.rgb.resize(static_cast<size_t>(width) * static_cast<size_t>(pixels.height) * 3);
  uint8_t* to = out.rgb.data();
  for (int y = 0; y < pixels.height; ++y) {
    const uint8_t* row = pixels.rgb.data() + static_cast<size_t>(y) * size_t(pixels.width) * 3;
    for (const Reach& reach : filter.reaches) {
      const uint8_t* x = row + static_cast<ptrdiff_t>(reach.first) * 3;
      const int32_t* weight = filter.weights.data() + reach.weight;
      int32_t sum[3] = {};
      for (int j = 0; j < reach.count; ++j, x += 3) {
        for (int c = 0; c < 3; ++c) sum[c] += x[c] * weight[j];
      }
      for (int c = 0; c < 3; ++c) *to++ = Rounded(sum[c], filter.precision);
    }
  }
  return out;
}

Pixels ResizeRows(const Pixels& pixels, int height, ResizeFilter kind) {
  const Filter filter = MakeFilter(pixels.height, height, kind);
  const size_t stride = static_cast<size_t>(pixels.width) * 3;
  Pixels out{pixels.width, height, {}};
  out.rgb.resize(stride * static_cast<size_t>(height));
  std::vector<int32_t> sums(stride);
  uint8_t* to = out.rgb.data();
  for (const Reach& reach : filter.reaches) {
    std::fill(sums.begin(), sums.end(), 0);
    for (int j = 0; j < reach.count; ++j) {
      const uint8_t* row = pixels.rgb.data() + static_cast<size_t>(reach.first + j) * stride;
      const int32_t weight = filter.weights[reach.weight + static_cast<size_t>(j)];
      for (size_t x = 0; x < stride; ++x) sums[x] += row[x] * weight;
    }
    for (const int32_t sum : sums) *to++ = Rounded(sum, filter.precision);
  }
  return out;
}

}  // namespace

Pixels Resize(const Pixels& pixels, int width, int height, ResizeFilter filter) {
  CHECK(pixels.width > 0 && pixels.height > 0 && width > 0 && height > 0);
  Pixels resized = width == pixels.width ? pixels : ResizeColumns(pixels, width, filter);
  if (height != resized.height) resized = ResizeRows(resized, height, filter);
  return resized;
}

}  // namespace reprise
