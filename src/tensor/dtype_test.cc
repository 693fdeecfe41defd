// SPDX-License-Identifier: Apache-2.0
// Proves that the table of types is in the order of the enum and that lookups find every row.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(DType, EveryRowIsFoundByNameAndId) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(FindDType(NameOf(dtype)), dtype);
    EXPECT_EQ(FindDTypeByGgufId(TraitsOf(dtype).gguf_id), dtype);
  }
  EXPECT_EQ(FindDType("q9_9"), std::nullopt);
  EXPECT_EQ(FindDTypeByGgufId(-1), std::nullopt);
  EXPECT_EQ(NameOf(DType::kIQ2_XXS), "iq2_xxs");
}

TEST(DType, RowBytes) {
  EXPECT_EQ(RowBytes(DType::kF32, 3), 12u);
  EXPECT_EQ(RowBytes(DType::kQ8_0, 64), 68u);
  EXPECT_EQ(RowBytes(DType::kQ6_K, 512), 420u);
}

}  // namespace
}  // namespace reprise
