// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/packed/packed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cuda/quantised/random_blocks.h"
#include "kernels/reference/gpu/quantised_weights.h"

namespace reprise::cuda {
namespace {

uint16_t HalfAt(const std::vector<std::byte>& bytes, int64_t at) {
  uint16_t half;
  std::memcpy(&half, bytes.data() + at, 2);
  return half;
}
uint32_t WordAt(const std::vector<std::byte>& bytes, int64_t at) {
  uint32_t word;
  std::memcpy(&word, bytes.data() + at, 4);
  return word;
}

// The weight at (row, column), read as packed.h says.
uint16_t WeightAt(const PackedLayout& layout, const std::vector<std::byte>& packed, int64_t row,
                  int64_t column) {
  const int64_t unit =
      row / 16 * layout.tile_bytes() + (column / 64 * 2 + row % 16 / 8) * UnitBytes(layout.form);
  const int g = int(row % 8), in_unit = int(column % 64);
  const int j = in_unit / 16, in_step = in_unit % 16;
  const int t = in_step % 8 / 2, which = in_step % 2, pair = 2 * j + in_step / 8;
  const int lane = 4 * g + t;
  if (layout.form == PackedForm::kBytes) {
    const int q = int(packed[size_t(unit + lane * 16 + 2 * pair + which)]) - 128;
    return reference::HalfWeight(q, HalfAt(packed, unit + 512 + g * 4 + in_unit / 32 * 2), 0);
  }
  const int low =
      int(WordAt(packed, unit + lane * 8 + pair / 4 * 4) >> (16 * which + 4 * (pair % 4)) & 15);
  if (layout.form == PackedForm::kNibbles || layout.form == PackedForm::kFives) {
    const bool five = layout.form == PackedForm::kFives;
    const int64_t scales = unit + (five ? 320 : 256) + g * 8 + in_unit / 32 * 4;
    const int upper = five ? HalfAt(packed, unit + 256 + lane * 2) >> (8 * which + pair) & 1 : 0;
    return reference::HalfWeight(low + 16 * upper, HalfAt(packed, scales),
                                 HalfAt(packed, scales + 2));
  }
  const int high = int(WordAt(packed, unit + 256 + lane * 4) >> (16 * which + SixPlace(pair)) & 3);
  return reference::HalfWeight(low + 16 * high - 32,
                               HalfAt(packed, unit + 384 + g * 8 + in_unit / 16 * 2), 0);
}

TEST(PackedTest, EveryWeightHasItsPlace) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                           DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ1_S, DType::kIQ1_M,
                           DType::kIQ3_XXS, DType::kIQ3_S, DType::kTQ1_0, DType::kTQ2_0}) {
    const int64_t rows = 37, cols = TraitsOf(type).block_elements == 32 ? 288 : 768;
    Rng rng(3);
    const std::vector<std::byte> blocks = RandomBlocks(rng, type, rows, cols);
    const size_t stride = RowBytes(type, cols);
    const PackedLayout layout = {PackedFormOf(type), type, rows, cols};
    EXPECT_EQ(layout.padded_rows(), 48);
    EXPECT_EQ(layout.padded_cols() % 128, 0);
    std::vector<std::byte> packed(layout.bytes(), std::byte{0xEE});
    PackWeights(layout, blocks.data(), stride, 0, 16, packed.data());
    PackWeights(layout, blocks.data() + 16 * stride, stride, 16, rows, packed.data());
    int different = 0;
    std::vector<uint16_t> weights(static_cast<size_t>(cols));
    for (int64_t r = 0; r < layout.padded_rows(); ++r) {
      if (r < rows) reference::HalfWeights(type, blocks.data() + size_t(r) * stride, weights);
      for (int64_t c = 0; c < layout.padded_cols(); ++c) {
        const bool real = r < rows && c < cols;
        const uint16_t expected = real ? weights[size_t(c)] : uint16_t{0};
        different += WeightAt(layout, packed, r, c) != expected;
      }
    }
    EXPECT_EQ(different, 0) << NameOf(type);
  }
}

}  // namespace
}  // namespace reprise::cuda
