// SPDX-License-Identifier: Apache-2.0
#include "weights/convert.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tensor/codec.h"
#include "weights/recipe/recipe.h"

namespace reprise {
namespace {

// The type of 32-blocks for rows that no 256-block divides.
DType WithSmallBlocks(DType dtype) {
  switch (dtype) {
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    default:
      return TraitsOf(dtype).block_elements == 256 ? DType::kIQ4_NL : dtype;
  }
}

}  // namespace

DType FittingType(DType wanted, int64_t cols) {
  const auto fits = [cols](DType dtype) { return cols % TraitsOf(dtype).block_elements == 0; };
  if (fits(wanted)) return wanted;
  const DType small = WithSmallBlocks(wanted);
  return fits(small) ? small : DType::kF16;
}

void ConvertRows(const StoredTensor& tensor, DType dtype, int64_t row_begin, int64_t row_end,
                 std::byte* out) {
  const int64_t cols = tensor.shape.cols();
  CHECK(0 <= row_begin && row_begin <= row_end && row_end <= tensor.shape.rows());
  const size_t out_bytes = RowBytes(dtype, cols);
  if (tensor.recipe != nullptr) {
    std::vector<float> made(static_cast<size_t>(cols));
    for (int64_t row = row_begin; row < row_end; ++row, out += out_bytes) {
      MakeRow(*tensor.recipe, row, made.data());
      QuantiseRow(dtype, made.data(), out, cols);
    }
    return;
  }
  const size_t in_bytes = RowBytes(tensor.dtype, cols);
  const size_t rows = static_cast<size_t>(row_end - row_begin);
  if (dtype == tensor.dtype && !tensor.split()) {
    const std::byte* in = tensor.bytes.data() + static_cast<size_t>(row_begin) * in_bytes;
    if (rows * in_bytes > 0) std::memcpy(out, in, rows * in_bytes);
    return;
  }
  constexpr int64_t kChunk = 2048;  // a multiple of every block: pieces of a row are independent
  float values[kChunk];
  std::byte blocks[kChunk * sizeof(float)];
  for (int64_t row = row_begin; row < row_end; ++row, out += out_bytes) {
    for (int64_t done = 0; done < cols; done += kChunk) {
      const int64_t count = std::min(kChunk, cols - done);
      std::byte* const to = out + RowBytes(dtype, done);
      if (dtype == tensor.dtype) {
        ReadBlocks(tensor, row, done, count, to);
        continue;
      }
      ReadBlocks(tensor, row, done, count, blocks);
      DequantiseRow(tensor.dtype, blocks, values, count);
      QuantiseRow(dtype, values, to, count);
    }
  }
}

}  // namespace reprise
