// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

// How a matrix of a quantised type lies in device memory: the file's blocks taken apart into planes
// so that every load is aligned and neighbouring threads read neighbouring words.
//
// A *unit* is 32 consecutive values of a row: a 32-block, or an eighth of a 256-block. Element e of
// a unit is written 16 h + 4 i + c (h = 0..1, i = 0..3, c = 0..3): word pair i of a unit is its
// elements 4 i .. 4 i + 3 and 16 + 4 i .. 16 + 4 i + 3, what one thread of an m16n8k32 multiplies.
// Parts of a value, per unit, in words of 32 bits:
//
//   bytes    8 words   word 4 h + i, byte c: element (h, i, c), int8
//   nibbles  4 words   word i, byte c: element (0, i, c) low, element (1, i, c) high
//   pairs    2 words   word i / 2, byte c, bits 4 (i % 2) + 2 h and the next one: element (h, i, c)
//   bits     1 word    byte c, bit 2 i + h: element (h, i, c)
//
// A *quad* is four consecutive units, which share their place: word w of unit j of a quad is word
// 4 w + j, so that a thread reads what it needs of four units in 16 bytes. Rows are whole quads.
//
//   type             quants   extra   scales, per block
//   Q8_0             bytes            d
//   Q4_0   IQ4_NL    nibbles          d
//   Q4_1             nibbles          d m
//   Q5_0             nibbles  bits    d
//   Q5_1             nibbles  bits    d m
//   Q2_K             pairs            d dmin   sub: 16 bytes as in the file
//   Q3_K             pairs    bits    d        sub: 16 int8, scale - 32
//   Q4_K             nibbles          d dmin   sub: 8 scales, 8 minima
//   Q5_K             nibbles  bits    d dmin   sub: 8 scales, 8 minima
//   Q6_K             nibbles  pairs   d        sub: 16 int8
//   IQ4_XS           nibbles          d        sub: 8 int8, scale - 32
//   IQ2_XXS          2 words as in the file    d; the grid follows the planes
//
// d, m and dmin are f16. Rows of a plane are a multiple of 16 bytes apart. Q4_K takes 148 bytes
// for 144, Q5_K 180 for 176, Q3_K 114 for 110, IQ4_XS 138 for 136; the others are as in the file.
namespace reprise::cuda {

// Bytes from one row of a plane to the next, and where planes begin. A plane that a type does not
// have is 0 bytes wide.
struct QuantisedLayout {
  DType dtype = DType::kQ8_0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t quant_stride = 0;
  int64_t extra_stride = 0;
  int64_t sub_stride = 0;
  int64_t scale_stride = 0;
  size_t extra = 0;
  size_t sub = 0;
  size_t scale = 0;
  size_t grid = 0;  // IQ2_XXS: 256 points of 8 magnitudes, int8
  size_t bytes = 0;
};

// A matrix whose memory is on the device. A stack of experts is one matrix, expert e's rows behind
// those of e - 1.
struct QuantisedMatrix {
  QuantisedLayout layout;
  const std::byte* data = nullptr;  // aligned to 256 bytes
};

// REQUIRES: IsQuantised(dtype), cols is a multiple of its block.
QuantisedLayout LayoutOf(DType dtype, int64_t rows, int64_t cols);

// Writes rows [begin, end) of the matrix into `packed` (layout.bytes of host memory), which may be
// called for separate ranges at once. source: row `begin` of the file's blocks, `stride` bytes
// apart.
void PackRows(const QuantisedLayout& layout, const std::byte* source, size_t stride, int64_t begin,
              int64_t end, std::byte* packed);
// Writes what belongs to no row (the grid of IQ2_XXS). Once per matrix.
void PackTables(const QuantisedLayout& layout, std::byte* packed);

// The inverse of PackRows for one row: the file's blocks.
void UnpackRow(const QuantisedLayout& layout, const std::byte* packed, int64_t row,
               std::byte* blocks);

}  // namespace reprise::cuda
