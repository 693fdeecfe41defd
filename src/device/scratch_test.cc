// SPDX-License-Identifier: Apache-2.0
// Proves that a warmed-up arena hands out the same memory again.
#include "device/scratch.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "device/raw.h"

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
