// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tensor/dtype.h"

// Quantised weights as products with 16-bit activations read them. A weight is made f16 in
// registers (reference/gpu/quantised_weights.h has the rule) and goes into the tensor cores like a
// weight of F16.
//
// A *unit* is 8 rows by 64 columns. The values lie as a thread of m16n8k16 wants them: thread
// (g, t) = (lane / 4, lane % 4) has row g, and of step j = 0..3 the columns 16 j + {2t, 2t + 1,
// 2t + 8, 2t + 9}: pairs 2 j and 2 j + 1. Units of rows 0-7 and 8-15 lie one behind another; then
// come the next 64 columns, and behind all columns the next 16 rows. Columns are filled up with
// zeros to a multiple of 128, rows to one of 16.
//
//   form         bytes   values                                   scales, of a row
//   kBytes        544    16 bytes a lane: q + 128                 2 f16, one for every 32 columns
//   kNibbles      320    8 bytes a lane: word j / 2 has pairs     2 pairs of f16: scale, shift
//                        4 (j / 2) + p at bits 4 p and 16 + 4 p
//   kFives        384    the same for 4 bits, then 2 bytes a lane the same
//                        for the fifth: of value v of pair P at bit
//                        8 v + P
//   kSixes        448    the same for 4 bits, then 4 bytes a lane 4 f16, one for every 16 columns
//                        for the others (SixPlace)
namespace reprise::cuda {

enum class PackedForm : uint8_t { kNone, kBytes, kNibbles, kFives, kSixes };
inline constexpr int kPackedForms = 5;

inline constexpr int kUnitRows = 8;
inline constexpr int kUnitCols = 64;
inline constexpr int kPackedRows = 16;   // rows are filled up to a multiple of these
inline constexpr int kPackedCols = 128;  // and columns

constexpr int UnitBytes(PackedForm form) {
  switch (form) {
    case PackedForm::kNone:
      return 0;
    case PackedForm::kBytes:
      return 544;
    case PackedForm::kNibbles:
      return 320;
    case PackedForm::kFives:
      return 384;
    case PackedForm::kSixes:
      return 448;
  }
  return 0;
}
// Where pair P of a row has its upper two bits in the word of a lane: at this bit and 16 behind it.
constexpr int SixPlace(int pair) {
  return pair % 2 != 0 ? pair + 7 : pair < 4 ? pair + 4 : 6 - pair;
}

// The form that weights of a type have; kNone: their products are computed with integers.
constexpr PackedForm PackedFormOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return PackedForm::kBytes;
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ4_K:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
      return PackedForm::kNibbles;
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return PackedForm::kFives;
    case DType::kQ6_K:
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return PackedForm::kSixes;
    default:
      return PackedForm::kNone;
  }
}

struct PackedLayout {
  PackedForm form = PackedForm::kNone;
  DType dtype = DType::kQ8_0;
  int64_t rows = 0;
  int64_t cols = 0;

  int64_t padded_cols() const { return (cols + kPackedCols - 1) / kPackedCols * kPackedCols; }
  int64_t padded_rows() const { return (rows + kPackedRows - 1) / kPackedRows * kPackedRows; }
  // Of 16 rows.
  int64_t tile_bytes() const { return padded_cols() / kUnitCols * 2 * UnitBytes(form); }
  size_t bytes() const { return size_t(padded_rows() / kPackedRows * tile_bytes()); }
};

// Writes rows [begin, end) into `packed`, bytes() of host memory. begin is a multiple of 16, and so
// is end unless it is the last row. source: row `begin` of the file's blocks, `stride` bytes apart.
void PackWeights(const PackedLayout& layout, const std::byte* source, size_t stride, int64_t begin,
                 int64_t end, std::byte* packed);

}  // namespace reprise::cuda
