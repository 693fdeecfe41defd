// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/architecture.h"

#include <gtest/gtest.h>

namespace reprise::cuda {
namespace {

constexpr Architecture kHopper = {true, true, true, true, true, 132, 227 << 10};

TEST(ArchitectureTest, AsAnOlderOneItHasNothingOfHopper) {
  for (const char* capability : {"8.0", "8.6", "8.7", "8.9"}) {
    const Architecture gpu = As(kHopper, capability).value();
    EXPECT_TRUE(gpu.known);
    EXPECT_FALSE(gpu.early_launch || gpu.clusters || gpu.copy_engine || gpu.wgmma) << capability;
    EXPECT_EQ(gpu.multiprocessors, kHopper.multiprocessors);
  }
  EXPECT_EQ(As(kHopper, "8.6")->block_shared, size_t{99} << 10);
  EXPECT_EQ(As(kHopper, "8.0")->block_shared, size_t{163} << 10);
}

TEST(ArchitectureTest, AsALaterOneItHasAllButProductsOfWarpgroups) {
  for (const char* capability : {"10.0", "10.3", "12.0", "12.1"}) {
    const Architecture gpu = As(kHopper, capability).value();
    EXPECT_TRUE(gpu.early_launch && gpu.clusters && gpu.copy_engine) << capability;
    EXPECT_FALSE(gpu.wgmma) << capability;
  }
  EXPECT_EQ(As(kHopper, "12.0")->block_shared, size_t{99} << 10);
}

TEST(ArchitectureTest, NothingIsGainedAndOthersAreNotKnown) {
  const Architecture small = As(kHopper, "8.6").value();
  const Architecture again = As(small, "9.0").value();
  EXPECT_FALSE(again.early_launch || again.wgmma);
  EXPECT_EQ(again.block_shared, small.block_shared);
  for (const char* capability : {"", "8", "8.6 ", "sm_86", "7.0"}) {
    EXPECT_FALSE(As(kHopper, capability).has_value()) << capability;
  }
}

}  // namespace
}  // namespace reprise::cuda
