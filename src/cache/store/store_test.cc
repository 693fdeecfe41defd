// SPDX-License-Identifier: Apache-2.0
// Proves that the store does what actions say, that pages of free units can be given back without
// touching their neighbours, and that blocks and snapshots share one limit of resident memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/rng.h"
#include "cache/pieces.h"
#include "cache/store/state_store.h"
#include "cache/store/unit_arena.h"
#include "device/disguised_memory.h"
#include "device/raw.h"
#include "device/scarce_memory.h"

namespace reprise {
namespace {

using Verb = Action::Verb;

// Not even in the first piece, and whoever walks them finds them side by side.
TEST(Pieces, LargeElementsNeverMove) {
  struct alignas(64) Large {
    uint64_t words[32] = {};
  };
  Pieces<Large> pieces;
  std::vector<const Large*> places;
  for (uint64_t i = 0; i < 1000; ++i) {
    pieces.push_back({});
    pieces.back().words[31] = i;
    places.push_back(&pieces.back());
  }
  for (uint64_t i = 0; i < places.size(); ++i) {
    ASSERT_EQ(places[i], &pieces[i]);
    ASSERT_EQ(places[i]->words[31], i);
  }
  EXPECT_LE(places[63] - places[0], 63) << "those of a piece lie side by side";
}

// As a vector, but nothing moves behind the first piece.
TEST(Pieces, AgreeWithAVectorAndStayWhereTheyAre) {
  Pieces<uint64_t> pieces;
  std::vector<uint64_t> all;
  std::vector<const uint64_t*> places;
  Rng rng(1);
  for (int i = 0; i < 100'000; ++i) {
    if (rng.Below(3) > 0 || all.empty()) {
      pieces.push_back(rng.Next());
      all.push_back(pieces.back());
      places.resize(all.size() - 1);
      places.push_back(&pieces.back());
    } else {
      pieces.pop_back();
      all.pop_back();
    }
    ASSERT_EQ(pieces.size(), all.size());
    ASSERT_EQ(pieces.empty(), all.empty());
  }
  ASSERT_GT(all.size(), 10'000u);
  size_t i = 0;
  for (const uint64_t value : pieces) ASSERT_EQ(value, all[i++]);
  for (i = 1024; i < all.size(); ++i) ASSERT_EQ(places[i], &pieces[i]);
  EXPECT_LE(pieces.bytes(), 2 * places.size() * sizeof(uint64_t));
  const size_t before = pieces.size();
  pieces.Grow(before + 5000);
  EXPECT_EQ(pieces.size(), before + 5000);
  EXPECT_EQ(pieces.back(), 0u);
  pieces.Grow(1);
  EXPECT_EQ(pieces.size(), before + 5000);
}

// In memory whose pages are larger than a unit, too, and cannot be touched once they are given
// back.
class ArenaTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Pages, ArenaTest, testing::Bool());

TEST_P(ArenaTest, GivesPagesBackAndLeavesNeighboursAlone) {
  ScarceMemory strict(SIZE_MAX);
  for (const size_t unit : {size_t{192}, size_t{4096}, size_t{10'000}, size_t{100'032}}) {
    UnitArena arena;
    ASSERT_TRUE(arena.Reserve(GetParam() ? strict : HostMemory(), {unit}, 200).ok());
    Rng rng(unit);
    std::vector<int> content(200, -1);  // -1: free
    for (int i = 0; i < 3000; ++i) {
      const auto id = static_cast<uint32_t>(rng.Below(200));
      if (content[id] < 0) {
        arena.Want({&id, 1});
        ASSERT_TRUE(arena.Back().ok());
        arena.Take(id);
        content[id] = static_cast<int>(rng.Below(256));
        std::memset(Raw(arena.at(id)), content[id], unit);
      } else {
        arena.Free(id);
        content[id] = -1;
      }
      if (i % 7 == 0) arena.Discard(rng.Below(10) * unit);
      const auto other = static_cast<uint32_t>(rng.Below(200));
      if (content[other] >= 0) {
        ASSERT_EQ(Raw(arena.at(other))[0], std::byte(content[other]));
        ASSERT_EQ(Raw(arena.at(other))[unit - 1], std::byte(content[other]));
      }
    }
    const size_t used = 200 - size_t(std::count(content.begin(), content.end(), -1));
    arena.Discard(SIZE_MAX);
    EXPECT_EQ(arena.resident_bytes(), used * unit);
    EXPECT_EQ(arena.idle_bytes(), 0u);
  }
}

TEST(StateStore, DoesWhatActionsSay) {
  StateSpec spec;
  spec.layers.push_back({0, StateKind::kFullKv, 0, {{"kv", {64}, DType::kF32}}});
  spec.layers.push_back({1, StateKind::kRecurrent, 0, {{"s", {5000}, DType::kF32}}});
  const auto made = StateStore::Make(spec, {100, 100});
  ASSERT_TRUE(made.ok());
  StateStore& store = **made;
  const StateMemory& memory = store.memory();
  const auto apply = [&](std::initializer_list<Action> actions) { store.Apply(actions); };

  ASSERT_TRUE(store.Back({}, std::vector<StateId>{{1}, {7}}, 1 << 20).ok());
  apply({{.verb = Verb::kTakeState, .to = 1}, {.verb = Verb::kTakeState, .to = 7}});
  std::memset(Raw(memory.state({1})), 3, spec.state_bytes());
  apply({{Verb::kCopyState, 1, 7}, {.verb = Verb::kClearState, .to = 1}});
  EXPECT_EQ(Raw(memory.state({1}))[100], std::byte(0));
  apply({{Verb::kCopyState, 7, 1}});
  EXPECT_EQ(Raw(memory.state({1}))[19'999], std::byte(3));

  ASSERT_TRUE(store.Back(std::vector<BlockId>{{0}, {5}}, {}, 1 << 20).ok());
  apply({{.verb = Verb::kTakeBlock, .to = 0}, {.verb = Verb::kTakeBlock, .to = 5}});
  std::memset(Raw(memory.block({0})), 9, spec.kv_block_bytes());
  apply({{Verb::kCopyBlock, 0, 5}, {.verb = Verb::kFreeBlock, .from = 0}});
  EXPECT_EQ(Raw(memory.block({5}))[spec.kv_block_bytes() - 1], std::byte(9));
}

TEST(StateStore, BlocksAndSnapshotsShareOneLimit) {
  StateSpec spec;
  spec.layers.push_back({0, StateKind::kFullKv, 0, {{"kv", {256}, DType::kF32}}});  // 64 KiB
  spec.layers.push_back({1, StateKind::kRecurrent, 0, {{"s", {16384}, DType::kF32}}});
  const auto made = StateStore::Make(spec, {16, 16});
  ASSERT_TRUE(made.ok());
  const size_t limit = 16 * (64 << 10);
  for (int round = 0; round < 4; ++round) {
    const Verb take = round % 2 == 0 ? Verb::kTakeBlock : Verb::kTakeState;
    const Verb free = round % 2 == 0 ? Verb::kFreeBlock : Verb::kFreeState;
    for (uint32_t i = 0; i < 16; ++i) {
      const Action action{.verb = take, .to = i};
      const BlockId block{i};
      const StateId state{i};
      const Status backed = take == Verb::kTakeBlock ? (*made)->Back({&block, 1}, {}, limit)
                                                     : (*made)->Back({}, {&state, 1}, limit);
      ASSERT_TRUE(backed.ok());
      (*made)->Apply({&action, 1});
      EXPECT_LE((*made)->resident_bytes(), limit);
    }
    for (uint32_t i = 0; i < 16; ++i) {
      const Action action{.verb = free, .from = i};
      (*made)->Apply({&action, 1});
    }
  }
  EXPECT_TRUE((*made)->GiveBack(SIZE_MAX));
  EXPECT_EQ((*made)->resident_bytes(), 0u);
}

// Another thread fills it. Whoever frees one that is read waits for the reader; one that is being
// filled can be freed and taken anew at any time.
TEST(StateStore, LargeStatesAreFilledByAnotherThread) {
  constexpr size_t kWords = size_t{3} << 18;  // 3 MiB
  StateSpec spec;
  spec.layers.push_back({1, StateKind::kRecurrent, 0, {{"s", {int64_t{kWords}}, DType::kI32}}});
  const auto made = StateStore::Make(spec, {0, 4});
  ASSERT_TRUE(made.ok());
  StateStore& store = **made;
  const auto apply = [&](Action action) { store.Apply({&action, 1}); };
  const auto words = [&](uint32_t id) {
    return reinterpret_cast<int32_t*>(Raw(store.memory().state({id})));
  };
  const auto holds = [&](uint32_t id, int32_t value) {
    return std::all_of(words(id), words(id) + kWords, [&](int32_t one) { return one == value; });
  };
  ASSERT_TRUE(store.Back({}, std::vector<StateId>{{0}, {1}, {2}, {3}}, SIZE_MAX).ok());
  for (int32_t round = 1; round < 20; ++round) {
    apply({.verb = Verb::kTakeState, .to = 0});
    std::fill_n(words(0), kWords, round);
    apply({.verb = Verb::kTakeState, .to = 1});
    apply({.verb = Verb::kTakeState, .to = 2});
    apply({Verb::kCopyState, 0, 1});
    apply({Verb::kCopyState, 0, 2});
    apply({.verb = Verb::kFreeState, .from = 1});  // not wanted after all
    apply({.verb = Verb::kTakeState, .to = 1});
    apply({.verb = Verb::kClearState, .to = 1});
    apply({.verb = Verb::kFreeState, .from = 0});  // while 2 is filled from it
    std::fill_n(words(0), kWords, -1);             // as the next owner would
    EXPECT_TRUE(store.EndFilling({2}).has_value());
    EXPECT_FALSE(store.EndFilling({2}).has_value()) << "once";
    EXPECT_TRUE(holds(2, round));
    EXPECT_TRUE(store.EndFilling({1}).has_value());
    EXPECT_FALSE(store.filling({1}));
    EXPECT_TRUE(holds(1, 0));
    apply({.verb = Verb::kFreeState, .from = 1});
    apply({.verb = Verb::kFreeState, .from = 2});
  }
}

// Copies wait at a gate; what is given back is counted by whoever does it.
class GatedMemory : public DisguisedMemory {
 public:
  bool copies_by_caller() const override { return true; }
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    DisguisedMemory::Copy(to, from, bytes);
  }
  void Discard(DevicePtr<std::byte> begin, size_t bytes) override {
    (std::this_thread::get_id() == caller_ ? by_caller : beside) += bytes;
    DisguisedMemory::Discard(begin, bytes);
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  std::atomic<size_t> by_caller = 0, beside = 0;

 private:
  const std::thread::id caller_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// Whoever gives up a state that is to be filled does not wait for another that is.
TEST(StateStore, WhatIsNotWantedWaitsForNoOther) {
  StateSpec spec;
  spec.layers.push_back({1, StateKind::kRecurrent, 0, {{"s", {3 << 18}, DType::kI32}}});
  GatedMemory memory;
  const auto made = StateStore::Make(spec, {0, 4}, memory);
  ASSERT_TRUE(made.ok());
  StateStore& store = **made;
  const auto apply = [&](Action action) { store.Apply({&action, 1}); };
  ASSERT_TRUE(store.Back({}, std::vector<StateId>{{0}, {1}, {2}}, SIZE_MAX).ok());
  for (const uint32_t id : {0u, 1u, 2u}) apply({.verb = Verb::kTakeState, .to = id});
  apply({Verb::kCopyState, 0, 1});
  apply({.verb = Verb::kClearState, .to = 2});
  apply({.verb = Verb::kFreeState, .from = 2});  // the copy is still at the gate
  EXPECT_FALSE(store.filling({2}));
  EXPECT_TRUE(store.filling({1}));
  memory.Open();
  EXPECT_TRUE(store.EndFilling({1}).has_value());
}

// The system takes milliseconds for pages of a large state: another thread gives them back, and
// whoever takes the state anew has pages of its own.
TEST(StateStore, AnotherThreadGivesPagesBack) {
  constexpr size_t kWords = size_t{3} << 18;
  StateSpec spec;
  spec.layers.push_back({1, StateKind::kRecurrent, 0, {{"s", {int64_t{kWords}}, DType::kI32}}});
  GatedMemory memory;
  const auto made = StateStore::Make(spec, {0, 2}, memory);
  ASSERT_TRUE(made.ok());
  StateStore& store = **made;
  const auto apply = [&](Action action) { store.Apply({&action, 1}); };
  for (const uint32_t id : {0u, 1u, 0u, 1u, 0u}) {
    const StateId state{id};
    ASSERT_TRUE(store.Back({}, {&state, 1}, spec.state_bytes()).ok());
    apply({.verb = Verb::kTakeState, .to = id});
    auto* words = reinterpret_cast<int32_t*>(Raw(store.memory().state(state)));
    std::fill_n(words, kWords, 7);
    (void)store.GiveBack(SIZE_MAX);
    std::this_thread::yield();
    EXPECT_EQ(std::count(words, words + kWords, 7), int64_t{kWords});
    apply({.verb = Verb::kFreeState, .from = id});
    EXPECT_TRUE(store.GiveBack(SIZE_MAX));
    EXPECT_EQ(store.resident_bytes(), 0u);
  }
  EXPECT_EQ(memory.by_caller, 0u);
}

// A state that was freed a moment ago is the next one to be taken: its pages stay meanwhile.
TEST(StateStore, PagesAreGivenBackOnlyAfterALongPause) {
  StateSpec spec;
  spec.layers.push_back({1, StateKind::kRecurrent, 0, {{"s", {16384}, DType::kF32}}});
  const auto made = StateStore::Make(spec, {0, 16});
  ASSERT_TRUE(made.ok());
  StateStore& store = **made;
  const auto apply = [&](Action action) { store.Apply({&action, 1}); };
  const StateId state{3};
  for (int64_t now = 0; now < 1000; ++now) {  // taken and freed again and again
    store.SetTime(now * 1000);
    ASSERT_TRUE(store.Back({}, {&state, 1}, SIZE_MAX).ok());
    apply({.verb = Verb::kTakeState, .to = 3});
    apply({.verb = Verb::kFreeState, .from = 3});
    EXPECT_FALSE(store.GiveBack(SIZE_MAX, 60'000));
  }
  store.SetTime(1'050'000);
  EXPECT_FALSE(store.GiveBack(SIZE_MAX, 60'000));
  store.SetTime(1'060'000);
  EXPECT_TRUE(store.GiveBack(SIZE_MAX, 60'000));
  EXPECT_EQ(store.resident_bytes(), 0u);
}

}  // namespace
}  // namespace reprise
