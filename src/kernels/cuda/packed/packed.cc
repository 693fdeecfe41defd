// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/packed/packed.h"

#include <cstring>
#include <vector>

#include "kernels/reference/gpu/quantised_weights.h"

namespace reprise::cuda {
namespace {

constexpr int kLanes = 32;

// A row of a matrix, filled up with zeros.
struct Row {
  std::vector<int8_t> q;
  std::vector<uint16_t> scale, shift;  // of 16 columns

  explicit Row(int64_t cols)
      : q(size_t(cols)), scale(size_t(cols / reference::kScaledWeights)), shift(scale.size()) {}
};

// The column of value `which` (0 or 1) of a pair, inside a unit.
int ColumnOf(int pair, int t, int which) { return pair / 2 * 16 + pair % 2 * 8 + 2 * t + which; }

void PutScales(uint8_t* to, const Row& row, int64_t first, PackedForm form) {
  const auto put = [&](uint16_t half) {
    std::memcpy(to, &half, 2);
    to += 2;
  };
  const int64_t at = first / reference::kScaledWeights;
  for (int64_t i = at; i < at + kUnitCols / reference::kScaledWeights; ++i) {
    if (form != PackedForm::kSixes && i % 2 != 0) continue;  // one for 32 columns
    put(row.scale[size_t(i)]);
    if (form == PackedForm::kNibbles || form == PackedForm::kFives) put(row.shift[size_t(i)]);
  }
}

// Row g of a unit, columns from `first` on.
void PutRow(PackedForm form, const Row& row, int64_t first, int g, uint8_t* unit) {
  const int8_t* const q = row.q.data() + first;
  for (int t = 0; t < 4; ++t) {
    const int lane = 4 * g + t;
    uint32_t low[2] = {}, upper = 0;
    for (int pair = 0; pair < 8; ++pair) {
      for (int which = 0; which < 2; ++which) {
        const int value = q[ColumnOf(pair, t, which)];
        if (form == PackedForm::kBytes) {
          unit[lane * 16 + 2 * pair + which] = uint8_t(value + 128);
          continue;
        }
        const auto bits = uint32_t(form == PackedForm::kSixes ? value + 32 : value);
        low[pair / 4] |= (bits & 15) << (16 * which + 4 * (pair % 4));
        upper |= (bits >> 4) << (form == PackedForm::kFives ? 8 * which + pair
                                                            : 16 * which + SixPlace(pair));
      }
    }
    if (form == PackedForm::kBytes) continue;
    std::memcpy(unit + lane * 8, low, 8);
    if (form == PackedForm::kFives) std::memcpy(unit + kLanes * 8 + lane * 2, &upper, 2);
    if (form == PackedForm::kSixes) std::memcpy(unit + kLanes * 8 + lane * 4, &upper, 4);
  }
  const int scales = form == PackedForm::kBytes     ? kLanes * 16 + 4 * g
                     : form == PackedForm::kNibbles ? kLanes * 8 + 8 * g
                     : form == PackedForm::kFives   ? kLanes * 10 + 8 * g
                                                    : kLanes * 12 + 8 * g;
  PutScales(unit + scales, row, first, form);
}

}  // namespace

void PackWeights(const PackedLayout& layout, const std::byte* source, size_t stride, int64_t begin,
                 int64_t end, std::byte* packed) {
  const int64_t cols = layout.padded_cols();
  const int unit_bytes = UnitBytes(layout.form);
  Row row(cols);
  const int64_t last = (end + kPackedRows - 1) / kPackedRows * kPackedRows;
  for (int64_t r = begin; r < last; ++r) {
    if (r < end) {
      reference::TakeApart(layout.dtype, source + size_t(r - begin) * stride, layout.cols,
                           {row.q.data(), row.scale.data(), row.shift.data()});
    } else {
      row = Row(cols);
    }
    auto* tile = reinterpret_cast<uint8_t*>(packed) + r / kPackedRows * layout.tile_bytes();
    for (int64_t first = 0; first < cols; first += kUnitCols) {
      uint8_t* unit =
          tile + (first / kUnitCols * 2 + r % kPackedRows / kUnitRows) * int64_t{unit_bytes};
      PutRow(layout.form, row, first, int(r % kUnitRows), unit);
    }
  }
}

}  // namespace reprise::cuda
