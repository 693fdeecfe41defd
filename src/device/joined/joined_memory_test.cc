// SPDX-License-Identifier: Apache-2.0
#include "device/joined/joined_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "device/disguised_memory.h"
#include "device/raw.h"
#include "device/scarce_memory.h"

namespace reprise {
namespace {

std::vector<std::byte> Noise(size_t bytes, int seed) {
  std::vector<std::byte> noise(bytes);
  for (size_t i = 0; i < bytes; ++i)
    noise[i] = std::byte((i * 31 + size_t(seed) * 17 + i / 251) % 256);
  return noise;
}

// 640 bytes: two pieces of the first memory around one of the second.
const UnitShape kUnit = {640, {{0, 192}, {1, 320}, {0, 128}}};

TEST(JoinedMemory, UnitsComeBackAsTheyWereAndLieInPieces) {
  DisguisedMemory a, b;
  JoinedMemory joined({{&a, 0}, {&b, 1}});
  auto units = joined.ReserveUnits(kUnit, 5);
  ASSERT_TRUE(units.ok());
  ASSERT_TRUE(joined.Commit(units->data(), 5 * kUnit.bytes).ok());
  const std::vector<std::byte> noise = Noise(5 * kUnit.bytes, 1);
  joined.Upload(units->data(), noise.data(), noise.size());
  std::vector<std::byte> back(noise.size());
  joined.Download(back.data(), units->data(), back.size());
  EXPECT_EQ(back, noise);
  // Any part of it, also across units.
  joined.Download(back.data(), units->data() + 600, 777);
  EXPECT_EQ(std::memcmp(back.data(), noise.data() + 600, 777), 0);
  // The ops of a memory see its parts of all units one behind the other.
  const std::byte* const in_a = Raw(joined.PlaceIn(0, units->data()));
  const std::byte* const in_b = Raw(joined.PlaceIn(1, units->data()));
  for (size_t u = 0; u < 5; ++u) {
    const std::byte* const unit = noise.data() + u * kUnit.bytes;
    EXPECT_EQ(std::memcmp(in_a + u * 320, unit, 192), 0);
    EXPECT_EQ(std::memcmp(in_a + u * 320 + 192, unit + 512, 128), 0);
    EXPECT_EQ(std::memcmp(in_b + u * 320, unit + 192, 320), 0);
  }
}

TEST(JoinedMemory, CopiesWithinAndBetweenUnitsOfOtherShapes) {
  DisguisedMemory a, b;
  JoinedMemory joined({{&a, 0}, {&b, 1}});
  auto units = joined.ReserveUnits(kUnit, 3);
  auto others = joined.ReserveUnits({640, {{1, 448}, {0, 192}}}, 2);
  ASSERT_TRUE(units.ok() && others.ok());
  ASSERT_TRUE(joined.Commit(units->data(), 3 * 640).ok());
  ASSERT_TRUE(joined.Commit(others->data(), 2 * 640).ok());
  const std::vector<std::byte> noise = Noise(640, 2);
  std::vector<std::byte> back(640);
  joined.Upload(units->data(), noise.data(), 640);
  joined.Copy(units->data() + 2 * 640, units->data(), 640);
  joined.Copy(others->data() + 640, units->data() + 2 * 640, 640);
  joined.Download(back.data(), others->data() + 640, 640);
  EXPECT_EQ(back, noise);
  joined.Zero(units->data() + 640, 640);
  joined.Zero(others->data() + 640 + 100, 500);
  joined.Download(back.data(), others->data() + 640, 640);
  for (size_t i = 0; i < 640; ++i) {
    EXPECT_EQ(back[i], i >= 100 && i < 600 ? std::byte{0} : noise[i]) << i;
  }
  joined.Download(back.data(), units->data() + 2 * 640, 640);
  EXPECT_EQ(back, noise);
}

// Pages of about 13 units, which fault when they are not there: a page stays as long as one of its
// units does, and goes with the last of them.
TEST(JoinedMemory, PagesStayAsLongAsAUnitNeedsThem) {
  ScarceMemory a(SIZE_MAX, 4096), b(SIZE_MAX, 4096);
  JoinedMemory joined({{&a, 0}, {&b, 1}});
  constexpr size_t kCount = 64;
  auto units = joined.ReserveUnits(kUnit, kCount);
  ASSERT_TRUE(units.ok());
  const auto at = [&](size_t unit) { return units->data() + int64_t(unit * 640); };
  std::vector<int> content(kCount, -1);
  std::vector<std::byte> back(640);
  for (int i = 0; i < 2000; ++i) {
    const size_t unit = size_t(i) * 7919 % kCount;
    if (content[unit] < 0) {
      ASSERT_TRUE(joined.Commit(at(unit), 640).ok());
      content[unit] = i;
      joined.Upload(at(unit), Noise(640, i).data(), 640);
    } else {
      joined.Download(back.data(), at(unit), 640);
      ASSERT_EQ(back, Noise(640, content[unit]));
      if (i % 3 == 0) {
        joined.Discard(at(unit), 640);
        content[unit] = -1;
      }
    }
  }
  EXPECT_GT(a.committed_bytes() + b.committed_bytes(), 0u);
  for (size_t unit = 0; unit < kCount; ++unit) {
    if (content[unit] >= 0) joined.Discard(at(unit), 640);
  }
  EXPECT_EQ(a.committed_bytes() + b.committed_bytes(), 0u);
}

TEST(JoinedMemory, ARefusalOfOneIsARefusalOfAllAndLeavesNothing) {
  ScarceMemory a(SIZE_MAX, 4096), b(2 * size_t{4096}, 4096);
  JoinedMemory joined({{&a, 0}, {&b, 1}});
  const UnitShape shape = {8192, {{0, 4096}, {1, 4096}}};
  auto units = joined.ReserveUnits(shape, 4);
  ASSERT_TRUE(units.ok());
  ASSERT_TRUE(joined.Commit(units->data(), 2 * 8192).ok());
  EXPECT_FALSE(joined.Commit(units->data() + 2 * 8192, 8192).ok());
  EXPECT_EQ(a.committed_bytes(), 2 * size_t{4096});
  joined.Discard(units->data(), 8192);
  EXPECT_TRUE(joined.Commit(units->data() + 2 * 8192, 8192).ok());
}

TEST(JoinedMemory, RoomIsWhatTheTightestAllows) {
  DisguisedMemory a, b, c;
  JoinedMemory joined({{&a, 0}, {&b, 1}, {&c, 1}});
  const auto free = [&](const DeviceMemory& memory) -> uint64_t {
    return &memory == &a ? 1000 : 4000;
  };
  EXPECT_EQ(joined.Room(free), 1000u);  // all in the first
  joined.SetShares({0.5, 0.25, 0.25});
  EXPECT_EQ(joined.Room(free), 2000u);
  joined.SetShares({0.1, 0.5, 0.4});  // the second and the third take from one store
  EXPECT_EQ(joined.Room(free), 4444u);
}

}  // namespace
}  // namespace reprise
