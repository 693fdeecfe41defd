// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>

namespace reprise::cuda {

// A matrix [rows, cols] of 16-bit values, `stride` elements apart, as the copy engine reads it: in
// boxes of `box_rows` x 64 values, swizzled by 128 bytes; what lies outside is zero.
// REQUIRES: data and stride are multiples of 16 bytes.
CUtensorMap MakeTensorMap(const uint16_t* data, int64_t rows, int64_t cols, int64_t stride,
                          int box_rows);

// The keys or values of a layer in all blocks of K/V: [blocks, rows, cols] of 16-bit values, rows
// one behind another, blocks `block_bytes` apart; in boxes of 64 x 64 of one block, likewise.
// REQUIRES: data, rows and block_bytes are multiples of 16 bytes.
CUtensorMap MakePageMap(const void* data, int64_t block_bytes, int64_t rows, int64_t cols);

// Rows of f32 as the copy engine writes them: boxes of `box_rows` x 32 values, swizzled likewise.
// REQUIRES: the same.
CUtensorMap MakeFloatMap(const float* data, int64_t rows, int64_t cols, int64_t stride,
                         int box_rows);

// Rows of `bytes` bytes, one behind another, as the copy engine reads them: in boxes that are
// swizzled by 128 bytes or lie in shared memory as they are. What lies outside is zero.
// REQUIRES: data and bytes are multiples of 16.
struct ByteBox {
  int bytes;  // a multiple of 16, at most 256
  int rows;
  bool swizzled = false;  // 128 bytes wide, then
};
CUtensorMap MakeByteMap(const void* data, int64_t rows, int64_t bytes, const ByteBox& box);

// Rows of `cols` elements of 2 or 4 bytes, `stride` bytes apart, in boxes of 16 bytes that begin at
// any element. REQUIRES: data and stride are multiples of 16.
CUtensorMap MakePieceMap(int element_bytes, const void* data, int64_t rows, int64_t cols,
                         int64_t stride, int box_rows);

}  // namespace reprise::cuda
