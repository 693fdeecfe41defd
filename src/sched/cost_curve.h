// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace reprise {

// What a step costs, as a curve over its rows, learnt from the steps that ran.
//
// A step reads all weights once, so most of a small step's time does not depend on its rows: time
// per row says little, a step of 512 rows may take hardly longer than one of 100. The curve has one
// point for every power of two of rows: means of the rows and of the time of recent steps of that
// size. Between points it is a line; below the first and beyond the last it goes on as the line
// through the nearest two, or through zero where there is only one point.
//
// Invariants:
// 1. More rows never cost less: a new point lowers dearer ones of fewer rows and raises cheaper
//    ones of more rows. A machine that becomes slower or faster is noticed at every size.
// 2. RowsWithin never answers more than twice largest(): no single step is far from
//    what is known.
//
// Pure numbers; no clock. Thread safety: none. Costs: O(1), 32 points.
class CostCurve {
 public:
  void Observe(int32_t rows, double ms);

  bool known() const { return largest() > 0; }
  int32_t largest() const;  // rows of the largest steps, about; 0: none was seen
  // Expected time of a step. REQUIRES: known(), rows > 0.
  double Ms(int32_t rows) const;
  // The largest step that is expected to end within `ms`; 0: not even one row.
  // REQUIRES: known().
  int32_t RowsWithin(double ms) const;

 private:
  struct Point {
    double rows = 0;  // 0: no step of this size yet
    double ms = 0;
    bool first = false;  // seen once: memory may have been touched for the first time
  };
  struct Line {
    double fixed = 0;
    double slope = 0;  // ms a row
  };

  // The line that holds at `rows`.
  Line At(double rows) const;

  std::array<Point, 32> points_;  // by the largest power of two that is at most rows
};

}  // namespace reprise
