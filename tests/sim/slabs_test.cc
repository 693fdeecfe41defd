// SPDX-License-Identifier: Apache-2.0
// Objects in slabs: each has a place of its own, aligned and near the others, and places are used
// again, on whatever thread they were given back.
#include "engine/slabs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace reprise {
namespace {

struct alignas(64) Large {
  explicit Large(uint64_t number) { std::fill(std::begin(words), std::end(words), number); }
  bool Holds(uint64_t number) const {
    return std::all_of(std::begin(words), std::end(words), [&](uint64_t w) { return w == number; });
  }
  static void* operator new(size_t) { return Slabs<Large>::Take(); }
  static void operator delete(void* place) { Slabs<Large>::Give(place); }

  uint64_t words[64];  // 512 bytes
};

TEST(Slabs, ObjectsLieSideBySideAndApart) {
  std::vector<std::unique_ptr<Large>> all;
  std::vector<std::vector<int>> between;  // as callers allocate much else
  for (uint64_t i = 0; i < 64; ++i) {
    all.push_back(std::make_unique<Large>(i));
    between.emplace_back(10'000);
  }
  std::vector<uintptr_t> places;
  for (uint64_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(all[i]->Holds(i)) << i;
    places.push_back(reinterpret_cast<uintptr_t>(all[i].get()));
    EXPECT_EQ(places.back() % alignof(Large), 0u);
  }
  const auto [first, last] = std::minmax_element(places.begin(), places.end());
  EXPECT_LE(*last - *first, 64 * (sizeof(Large) + 64));
}

TEST(Slabs, TheLastPlaceGivenBackIsTakenNext) {
  auto one = std::make_unique<Large>(1), other = std::make_unique<Large>(2);
  const Large* const place = one.get();
  one.reset();
  one = std::make_unique<Large>(3);
  EXPECT_EQ(one.get(), place);
  EXPECT_TRUE(other->Holds(2));
}

TEST(Slabs, ThreadsTakeAndGiveBack) {
  const auto work = [](uint64_t thread) {
    std::vector<std::shared_ptr<Large>> mine;
    for (uint64_t i = 0; i < 2000; ++i) {
      mine.push_back(std::allocate_shared<Large>(SlabAllocator<Large>(), thread * 10'000 + i));
      if (i % 3 == 2) mine.erase(mine.begin() + static_cast<ptrdiff_t>(mine.size() / 2));
    }
    uint64_t last = 0;
    for (const auto& one : mine) {
      EXPECT_TRUE(one->Holds(one->words[0]));
      EXPECT_GE(one->words[0], std::max(last, thread * 10'000));
      last = one->words[0];
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i <= 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace reprise
