// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/layout.h"

#include <gtest/gtest.h>

#include "kernels/cuda/quantised/random_blocks.h"

namespace reprise::cuda {
namespace {

class Layouts : public ::testing::TestWithParam<DType> {};

TEST_P(Layouts, GiveBackEveryBit) {
  const DType dtype = GetParam();
  Rng rng(3);
  for (const int64_t blocks : {1, 2, 3, 17}) {
    const int64_t rows = 7, cols = blocks * TraitsOf(dtype).block_elements;
    const size_t stride = RowBytes(dtype, cols);
    std::vector<std::byte> source(stride * size_t(rows));
    for (std::byte& byte : source) byte = std::byte(rng.Next() & 255);
    const QuantisedLayout layout = LayoutOf(dtype, rows, cols);
    std::vector<std::byte> packed(layout.bytes);
    PackRows(layout, source.data() + 3 * stride, stride, 3, rows, packed.data());
    PackRows(layout, source.data(), stride, 0, 3, packed.data());
    PackTables(layout, packed.data());
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<std::byte> back(stride);
      UnpackRow(layout, packed.data(), row, back.data());
      EXPECT_EQ(std::memcmp(back.data(), source.data() + size_t(row) * stride, stride), 0) << row;
    }
  }
}

TEST_P(Layouts, TakeLittleMoreThanTheFile) {
  const QuantisedLayout layout = LayoutOf(GetParam(), 4096, 4096);
  const size_t file = 4096 * RowBytes(GetParam(), 4096);
  EXPECT_GE(layout.bytes, file);
  EXPECT_LE(layout.bytes, file + file / 25);
}

INSTANTIATE_TEST_SUITE_P(EachType, Layouts, ::testing::ValuesIn(kQuantisedTypes),
                         [](const auto& one) { return std::string(NameOf(one.param)); });

}  // namespace
}  // namespace reprise::cuda
