// SPDX-License-Identifier: Apache-2.0
// What is no finite number in the state of a sequence is said, whatever op meets it.
#include <gtest/gtest.h>

#include "kernels/front/ops_fixture.h"
#include "kernels/front/spoilt_cases.h"
#include "kernels/make_backend.h"

namespace reprise {
namespace {

TEST(SpoiltState, IsSaidByEveryOp) {
  Machine machine(2);
  SpoiltCases(machine.context().backend).RunAll();
}

// What a device has no kernel for is refused by name, before a model is loaded.
TEST(StateSizes, NamesWhatIsTooLarge) {
  const StateSizes most = {576, 512, 16, 256, 0};
  EXPECT_TRUE(StateSizes(most).Within(most).ok());
  EXPECT_TRUE(StateSizes{}.Within(most).ok());
  EXPECT_TRUE((StateSizes{.channel_keys = 4096}.Within(most).ok()));
  EXPECT_EQ((StateSizes{.head_dim = 1024}.Within(most).message()),
            "the model has attention heads of width 1024, and the device computes up to 576; run "
            "it with --device cpu");
  EXPECT_FALSE((StateSizes{.value_dim = 576}.Within(most).ok()));
  EXPECT_FALSE((StateSizes{.conv_reach = 17}.Within(most).ok()));
  EXPECT_FALSE((StateSizes{.matrix_keys = 257}.Within(most).ok()));
}

TEST(MakeBackend, SaysWhyAGpuIsNotUsed) {
  EXPECT_EQ(WhyNotTheGpu(NotFound("there is none")), "");
  EXPECT_EQ(WhyNotTheGpu(Unimplemented("built without")), "");
  EXPECT_EQ(WhyNotTheGpu(FailedPrecondition("the driver is old")),
            "the CPU computes, though there is a GPU: the driver is old");
}

}  // namespace
}  // namespace reprise
