// SPDX-License-Identifier: Apache-2.0
// Proves that a warmed-up arena hands out the same memory again.
#include "device/scratch.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "device/raw.h"
#include "device/scarce_memory.h"

namespace reprise {
namespace {

TEST(ScratchArena, ReusesItsMemory) {
  ScratchArena arena;
  const DevicePtr<float> first = arena.Floats(100);
  const DevicePtr<float> second = arena.Floats(5'000'000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(Raw(second)) % 64, 0u);
  Raw(second)[4'999'999] = 1;
  arena.Reset();
  EXPECT_EQ(arena.Floats(100), first);
  EXPECT_EQ(arena.Floats(5'000'000), second);
  EXPECT_GE(arena.peak_bytes(), 20'000'400u);
}

// What was provided can be taken when the device has no more, however it is cut.
TEST(ScratchArena, ProvidesWhatIsTakenLater) {
  ScarceMemory memory(0);
  memory.set_allocations_max(8 << 20);
  ScratchArena arena(memory);
  ASSERT_TRUE(arena.Provide(100).ok());
  const DevicePtr<float> first = arena.Floats(10);
  ASSERT_TRUE(arena.Provide(64 + 4'000'000 + 64).ok());
  memory.set_allocations_max(0);
  const DevicePtr<float> kept = arena.Floats(10);
  for (int layer = 0; layer < 3; ++layer) {
    ScratchScope scope(arena);
    EXPECT_NE(arena.Floats(1'000'000), kept);
    arena.Floats(1);
  }
  const Status refused = arena.Provide(100'000'000);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("95 MiB"), std::string::npos) << refused.message();
  arena.Reset();
  EXPECT_EQ(arena.Floats(10), first);
}

TEST(ScratchArena, AScopeGivesBackWhatItTook) {
  ScratchArena arena;
  {
    ScratchScope empty(arena);
    arena.Floats(10);
  }
  const DevicePtr<float> outer = arena.Floats(100);
  DevicePtr<float> inner;
  DevicePtr<float> large;
  for (int layer = 0; layer < 3; ++layer) {
    ScratchScope scope(arena);
    const DevicePtr<float> a = arena.Floats(100);
    const DevicePtr<float> b = arena.Floats(5'000'000);
    if (layer == 0) inner = a, large = b;
    EXPECT_EQ(a, inner);
    EXPECT_EQ(b, large);
  }
  EXPECT_EQ(arena.Floats(100), inner);
  EXPECT_NE(inner, outer);
}

}  // namespace
}  // namespace reprise
