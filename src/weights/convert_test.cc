// SPDX-License-Identifier: Apache-2.0
// Proves that converting a tensor by any ranges of rows gives the bits of quantising whole rows.
#include "weights/convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"

namespace reprise {
namespace {

struct Weights {
  Weights(DType dtype, const Shape& shape) : bytes(*TensorBytes(dtype, shape)) {
    Rng rng(3);
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    for (float& value : values) value = rng.Uniform() - 0.5f;
    QuantiseRow(dtype, values.data(), bytes.data(), shape.elements());
    tensor = {"w", dtype, shape, bytes, 0};
  }
  std::vector<std::byte> bytes;
  StoredTensor tensor;
};

TEST(Convert, AnyRangesOfRowsGiveTheSameBits) {
  const Shape shape{5, 4096 + 256};  // rows longer than a chunk
  for (const DType from : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    const Weights weights(from, shape);
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    DequantiseRow(from, weights.bytes.data(), values.data(), shape.elements());
    for (int i = 0; i < kDTypeCount; ++i) {
      const DType to = static_cast<DType>(i);
      if (!CanQuantise(to)) continue;
      const size_t row_bytes = RowBytes(to, shape.cols());
      std::vector<std::byte> expected(row_bytes * 5), got(row_bytes * 5);
      QuantiseRow(to, values.data(), expected.data(), shape.elements());
      if (to == from) expected = weights.bytes;
      ConvertRows(weights.tensor, to, 0, 2, got.data());
      ConvertRows(weights.tensor, to, 2, 2, nullptr);
      ConvertRows(weights.tensor, to, 2, 5, got.data() + 2 * row_bytes);
      EXPECT_EQ(got, expected) << NameOf(from) << " to " << NameOf(to);
    }
  }
}

// Levels in pairs and scales in a tensor of their own are the same values as blocks.
TEST(Convert, SplitMxfp4IsTheSameAsBlocks) {
  const Shape shape{3, 2048 + 64};
  const Weights weights(DType::kMXFP4, shape);
  std::vector<std::byte> levels, scales;
  const auto* block = reinterpret_cast<const BlockMXFP4*>(weights.bytes.data());
  for (int64_t b = 0; b < shape.elements() / 32; ++b, ++block) {
    scales.push_back(std::byte{block->e});
    for (int j = 0; j < 16; ++j) {  // values 2j and 2j + 1
      const auto level = [&](int e) { return e < 16 ? block->qs[e] & 15 : block->qs[e - 16] >> 4; };
      levels.push_back(static_cast<std::byte>(level(2 * j) | level(2 * j + 1) << 4));
    }
  }
  StoredTensor split{"w", DType::kMXFP4, shape, levels, 0};
  split.scales = scales;
  for (const DType to : {DType::kMXFP4, DType::kF32, DType::kBF16, DType::kQ8_0}) {
    const size_t row_bytes = RowBytes(to, shape.cols());
    std::vector<std::byte> expected(row_bytes * 3), got(row_bytes * 3);
    ConvertRows(weights.tensor, to, 0, 3, expected.data());
    ConvertRows(split, to, 0, 1, got.data());
    ConvertRows(split, to, 1, 3, got.data() + row_bytes);
    EXPECT_EQ(got, expected) << NameOf(to);
  }
}

TEST(Convert, FittingType) {
  EXPECT_EQ(FittingType(DType::kQ4_K, 512), DType::kQ4_K);
  EXPECT_EQ(FittingType(DType::kQ4_K, 96), DType::kQ5_0);
  EXPECT_EQ(FittingType(DType::kQ5_K, 96), DType::kQ5_1);
  EXPECT_EQ(FittingType(DType::kQ6_K, 96), DType::kQ8_0);
  EXPECT_EQ(FittingType(DType::kQ2_K, 96), DType::kIQ4_NL);
  EXPECT_EQ(FittingType(DType::kQ4_K, 100), DType::kF16);
  EXPECT_EQ(FittingType(DType::kQ8_0, 100), DType::kF16);
  EXPECT_EQ(FittingType(DType::kBF16, 3), DType::kBF16);
}

}  // namespace
}  // namespace reprise
