// SPDX-License-Identifier: Apache-2.0
// Proves that no extents of a file, however large, negative or empty, make a shape or a size wrap.
#include "tensor/shape.h"

#include <gtest/gtest.h>

#include <vector>

namespace reprise {
namespace {

std::optional<Shape> Make(std::vector<int64_t> extents) { return Shape::FromUntrusted(extents); }

TEST(Shape, Accessors) {
  const Shape shape{4, 3, 64};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.elements(), 768);
  EXPECT_EQ(shape.rows(), 12);
  EXPECT_EQ(shape.cols(), 64);
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(shape.ToString(), "[4, 3, 64]");
  EXPECT_EQ(shape, (Shape{4, 3, 64}));
  EXPECT_FALSE(shape == (Shape{4, 3}));
  const Shape scalar;
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.rows(), 1);
  EXPECT_EQ(scalar.cols(), 1);
  EXPECT_EQ(scalar.ToString(), "[]");
}

TEST(Shape, UntrustedExtents) {
  constexpr int64_t kHuge = int64_t{1} << 32;
  EXPECT_TRUE(Make({kHuge, kHuge / 4}));
  EXPECT_FALSE(Make({kHuge, kHuge}));      // 2^64
  EXPECT_FALSE(Make({kHuge, kHuge / 2}));  // 2^63
  EXPECT_FALSE(Make({0, kHuge, kHuge}));   // empty, but its rows would wrap
  EXPECT_FALSE(Make({kHuge, kHuge, 0}));
  EXPECT_FALSE(Make({-1}));
  EXPECT_FALSE(Make({INT64_MIN, INT64_MIN}));
  EXPECT_FALSE(Make(std::vector<int64_t>(9, 1)));
  EXPECT_EQ(Make({0, 7})->elements(), 0);
}

TEST(Shape, TensorBytes) {
  EXPECT_EQ(TensorBytes(DType::kF32, {2, 3}), 24u);
  EXPECT_EQ(TensorBytes(DType::kF32, {}), 4u);
  EXPECT_EQ(TensorBytes(DType::kQ4_K, {3, 512}), 864u);
  EXPECT_EQ(TensorBytes(DType::kQ4_K, {512, 3}), std::nullopt);  // rows are not whole blocks
  EXPECT_EQ(TensorBytes(DType::kQ8_0, {}), std::nullopt);
  EXPECT_EQ(TensorBytes(DType::kF32, {INT64_MAX}), std::nullopt);
}

}  // namespace
}  // namespace reprise
