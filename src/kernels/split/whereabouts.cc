// SPDX-License-Identifier: Apache-2.0
#include "kernels/split/whereabouts.h"

#include <algorithm>
#include <utility>

#include "device/raw.h"

namespace reprise {
namespace {

int64_t FloorDivide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

bool Meet(const float* begin, const float* end, const float* other_begin, const float* other_end) {
  return begin < other_end && other_begin < end;
}

}  // namespace

// One row has any stride. What goes on behind the end of a row of x is its next row.
int Whereabouts::Align(const Area& area, const Area& x, Placed (&placed)[2]) {
  const int64_t distance = area.at - x.at;
  if (area.rows == 1 && x.rows == 1) {
    placed[0] = {0, distance, 1, area.cols};
    return 1;
  }
  const int64_t stride = x.rows > 1 ? x.stride : area.stride;
  if ((area.rows > 1 && area.stride != stride) || area.cols > stride || x.cols > stride) return 0;
  const int64_t row = FloorDivide(distance, stride);
  const int64_t col = distance - row * stride;
  const int64_t cols = std::min(area.cols, stride - col);
  placed[0] = {row, col, area.rows, cols};
  placed[1] = {row + 1, 0, area.rows, area.cols - cols};
  return cols < area.cols ? 2 : 1;
}

void Whereabouts::Add(Area area) {
  for (Area& other : areas_) {
    if (other.where != area.where || other.rows != area.rows) continue;
    if (other.stride != area.stride) continue;
    const bool behind = other.at + other.cols == area.at;
    if (!behind && area.at + area.cols != other.at) continue;
    const Area joined = {behind ? other.at : area.at, area.rows, other.cols + area.cols,
                         area.stride, area.where};
    if (joined.cols > joined.stride) continue;
    other = areas_.back();
    areas_.pop_back();
    return Add(joined);
  }
  areas_.push_back(area);
}

// What is left of a piece above, below, and on both sides.
void Whereabouts::KeepAround(const Area& area, const Placed& piece, const Area& set,
                             std::vector<Area>* kept) {
  const int64_t row_end = piece.row + piece.rows, col_end = piece.col + piece.cols;
  const int64_t stride = set.rows > 1 ? set.stride : area.stride;
  const auto keep = [&](int64_t rows_begin, int64_t rows_end, int64_t cols_begin,
                        int64_t cols_end) {
    if (rows_begin >= rows_end || cols_begin >= cols_end) return;
    kept->push_back({set.at + rows_begin * stride + cols_begin, rows_end - rows_begin,
                     cols_end - cols_begin, area.stride, area.where});
  };
  const int64_t first = std::clamp<int64_t>(0, piece.row, row_end);
  const int64_t last = std::clamp(set.rows, first, row_end);
  keep(piece.row, first, piece.col, col_end);
  keep(last, row_end, piece.col, col_end);
  keep(first, last, piece.col, std::min<int64_t>(col_end, 0));
  keep(first, last, std::max(piece.col, set.cols), col_end);
}

void Whereabouts::Set(const ConstRows& x, DeviceSet where) {
  if (x.rows == 0 || x.cols == 0) return;
  const bool one = x.rows == 1 || x.stride == 0;
  const Area set = {Raw(x.data), one ? 1 : x.rows, x.cols, std::max(x.cols, x.stride), where};
  std::vector<Area> kept;
  for (size_t i = 0; i < areas_.size();) {
    const Area area = areas_[i];
    Placed placed[2];
    const bool meets = Meet(area.at, area.end(), set.at, set.end());
    const int pieces = meets ? Align(area, set, placed) : 0;
    const auto touches = [&](const Placed& piece) {
      return piece.row < set.rows && piece.row + piece.rows > 0 && piece.col < set.cols &&
             piece.col + piece.cols > 0;
    };
    if (!meets || (pieces > 0 && std::none_of(placed, placed + pieces, touches))) {
      ++i;
      continue;
    }
    areas_[i] = areas_.back();
    areas_.pop_back();
    // Not in one frame: memory that is used anew.
    for (int p = 0; p < pieces; ++p) KeepAround(area, placed[p], set, &kept);
  }
  for (const Area& area : kept) Add(area);
  if (where != all_) Add(set);
}

std::vector<Whereabouts::Part> Whereabouts::PartsOf(const ConstRows& x) const {
  std::vector<Part> parts;
  if (x.rows == 0 || x.cols == 0) return parts;
  const bool one = x.rows == 1 || x.stride == 0;
  const Area asked = {Raw(x.data), one ? 1 : x.rows, x.cols, one ? x.cols : x.stride, 0};
  for (const Area& area : areas_) {
    Placed placed[2];
    if (!Meet(area.at, area.end(), asked.at, asked.end())) continue;
    const int pieces = Align(area, asked, placed);
    for (int p = 0; p < pieces; ++p) {
      const Placed& piece = placed[p];
      const Part part = {std::max<int64_t>(piece.row, 0),
                         std::min(piece.row + piece.rows, asked.rows),
                         std::max<int64_t>(piece.col, 0),
                         std::min(piece.col + piece.cols, asked.cols), area.where};
      if (part.row_begin < part.row_end && part.col_begin < part.col_end) parts.push_back(part);
    }
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.col_begin, a.row_begin) < std::pair(b.col_begin, b.row_begin);
  });
  return parts;
}

std::vector<ConstRows> Whereabouts::Strangers(const void* begin, size_t bytes,
                                              const ConstRows& x) const {
  std::vector<ConstRows> strangers;
  const auto* const first = static_cast<const float*>(begin);
  const float* const last = first + (bytes + sizeof(float) - 1) / sizeof(float);
  const bool one = x.rows == 1 || x.stride == 0;
  const Area asked = {Raw(x.data), one ? 1 : x.rows, x.cols, one ? x.cols : x.stride, 0};
  for (const Area& area : areas_) {
    Placed placed[2];
    if (!Meet(area.at, area.end(), first, last)) continue;
    if (x.rows > 0 && Align(area, asked, placed) > 0) continue;
    strangers.push_back({PlaceAt(area.at), area.rows, area.cols, area.stride});
  }
  return strangers;
}

void Whereabouts::Forget(const void* begin, size_t bytes) {
  const auto* const first = static_cast<const float*>(begin);
  const float* const last = first + (bytes + sizeof(float) - 1) / sizeof(float);
  std::erase_if(areas_,
                [&](const Area& area) { return first <= area.at && area.end() <= last; });
}

}  // namespace reprise
