// SPDX-License-Identifier: Apache-2.0
#include "sched/cost_curve.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace reprise {
namespace {

// Weights of the newest step. A step may take long for reasons of its own (a first launch, a busy
// core), but none is quicker than the machine: less time is believed sooner than more.
constexpr double kSlower = 0.25;
constexpr double kFaster = 0.5;

}  // namespace

void CostCurve::Observe(int32_t rows, double ms) {
  if (rows <= 0 || ms <= 0) return;
  const size_t size = std::bit_width(static_cast<uint32_t>(rows)) - 1;
  Point& point = points_[size];
  if (point.rows == 0) {
    point = {static_cast<double>(rows), ms, true};
  } else {
    // Compared at the same number of rows: a larger step is not a slower machine.
    const bool first = std::exchange(point.first, false);
    const double weight = ms > Ms(rows) ? kSlower : first ? 1 : kFaster;
    point.rows += weight * (rows - point.rows);
    point.ms += weight * (ms - point.ms);
  }
  for (size_t i = 0; i < points_.size(); ++i) {
    double& ms_there = points_[i].ms;
    if (points_[i].rows == 0) continue;
    ms_there = i < size ? std::min(ms_there, point.ms) : std::max(ms_there, point.ms);
  }
}

int32_t CostCurve::largest() const {
  double rows = 0;
  for (const Point& point : points_) rows = std::max(rows, point.rows);
  return static_cast<int32_t>(rows);
}

CostCurve::Line CostCurve::At(double rows) const {
  CHECK(known());
  const Point* first = nullptr;  // of the two points whose line holds
  const Point* second = nullptr;
  for (const Point& point : points_) {
    if (point.rows == 0) continue;
    if (first != nullptr && second->rows > rows) break;
    first = second;
    second = &point;
  }
  if (first == nullptr) return {.slope = second->ms / second->rows};
  const double slope = (second->ms - first->ms) / (second->rows - first->rows);
  const double fixed = first->ms - slope * first->rows;
  // Below the first point, a line that is negative at zero rows would promise steps for nothing.
  if (rows < first->rows && fixed < 0) return {.slope = first->ms / first->rows};
  return {.fixed = fixed, .slope = slope};
}

double CostCurve::Ms(int32_t rows) const {
  CHECK(rows > 0);
  const Line line = At(rows);
  return line.fixed + line.slope * rows;
}

int32_t CostCurve::RowsWithin(double ms) const {
  CHECK(known());
  // The curve never falls: a search by halves finds the place.
  int32_t fits = 0;
  int32_t beyond = std::min(2 * largest(), 1 << 29) + 1;
  while (beyond - fits > 1) {
    const int32_t middle = fits + (beyond - fits) / 2;
    (Ms(middle) <= ms ? fits : beyond) = middle;
  }
  return fits;
}

}  // namespace reprise
