// SPDX-License-Identifier: Apache-2.0
// Beside tiers no call of the engine's thread copies more, or gives more memory back, because a
// state is larger: counted, not timed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "cache/tier/host_tier.h"
#include "cache/tier/record_tier.h"
#include "device/disguised_memory.h"
#include "engine_fixture.h"
#include "fake_executor.h"

namespace reprise {
namespace {

// What the thread that made it moves by itself, since it was asked last.
class MeteredMemory : public DisguisedMemory {
 public:
  bool copies_by_caller() const override { return true; }
  void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) override {
    Count(bytes, &in_);
    DisguisedMemory::Upload(to, from, bytes);
  }
  void Download(void* to, DevicePtr<const std::byte> from, size_t bytes) override {
    Count(bytes, &out_);
    DisguisedMemory::Download(to, from, bytes);
  }
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override {
    Count(bytes, &in_);
    DisguisedMemory::Copy(to, from, bytes);
  }
  void Zero(DevicePtr<std::byte> to, size_t bytes) override {
    Count(bytes, &in_);
    DisguisedMemory::Zero(to, bytes);
  }
  void Discard(DevicePtr<std::byte> begin, size_t bytes) override {
    Count(bytes, &given_back_);
    DisguisedMemory::Discard(begin, bytes);
  }

  // In and out, since it was asked last.
  size_t moved() const { return in_ + out_; }
  size_t given_back() const { return given_back_; }
  template <typename Call>
  auto Measure(const Call& call) {
    in_ = out_ = 0;
    return call();
  }

 private:
  void Count(size_t bytes, size_t* of) const {
    if (std::this_thread::get_id() == caller_) *of += bytes;
  }

  const std::thread::id caller_ = std::this_thread::get_id();
  size_t in_ = 0, out_ = 0, given_back_ = 0;
};

enum class Below { kHost, kDisk };

std::unique_ptr<Tier> Make(Below below, const StateCache& cache, DeviceMemory& memory) {
  if (below == Below::kHost) {
    auto tier = HostTier::Make(*cache.memory().layout, size_t{256} << 20, memory);
    EXPECT_TRUE(tier.ok()) << tier.status().message();
    return std::move(*tier);
  }
  DiskOptions disk;
  disk.path = testing::TempDir() + "large-states";
  disk.bytes_max = size_t{256} << 20;
  disk.sync = false;
  std::filesystem::remove_all(disk.path);
  auto store = RecordStore::Open(disk, StateKey());
  EXPECT_TRUE(store.ok()) << store.status().message();
  return std::make_unique<RecordTier>(std::move(*store));
}

class LargeStates : public testing::TestWithParam<Below> {};
INSTANTIATE_TEST_SUITE_P(Tiers, LargeStates, testing::Values(Below::kHost, Below::kDisk));

TEST_P(LargeStates, NoCallMovesMoreBesideATier) {
  std::vector<TokenId> wanted;
  for (const int64_t words : {1 << 10, 1 << 20, 3 << 20}) {  // up to 24 MiB
    MeteredMemory memory;
    FakeExecutor executor(FakeExecutor::Kind::kHybrid, 4096, words);
    executor.set_memory(&memory);
    CacheOptions options;
    options.budget_bytes = size_t{512} << 20;
    EngineFixture fixture(executor, options);
    fixture.cache().AttachTier(Make(GetParam(), fixture.cache(), memory));
    // Of steps that compute, and of those at rest.
    size_t most = 0, most_at_rest = 0;
    const auto step = [&] {
      const uint64_t before = fixture.engine().stats().steps;
      const bool more = memory.Measure([&] { return fixture.engine().Step(); });
      const bool computed = fixture.engine().stats().steps > before;
      size_t& of = computed ? most : most_at_rest;
      of = std::max(of, memory.moved());
      fixture.clock().AdvanceMs(1);
      return more;
    };
    // Until all has gone down.
    const auto rest = [&] {
      for (int quiet = 0; quiet < 3; ++quiet) {
        if (step() || fixture.cache().moves_under_way() > 0) quiet = -1;
        std::this_thread::yield();
      }
    };
    Conversation talk = Conversation(FakeExecutor::kVocab).Say(1, 500);
    std::vector<TokenId> tokens;
    int32_t loaded = 0;
    for (uint64_t turn = 0; turn < 3; ++turn) {
      auto stream = fixture.Submit(talk.Request(5));
      rest();
      const auto answer = EngineFixture::Read(*stream);
      loaded += answer.completion.report.loaded_tokens;
      tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
      talk.Append(answer.tokens).Say(20 + turn, 40);
      (void)fixture.cache().GiveWay(SIZE_MAX / 2);
      ASSERT_EQ(fixture.cache().stats().bytes_cached, 0u);
      ASSERT_TRUE(fixture.cache().CheckInvariants().ok());
    }
    EXPECT_GE(loaded, 2 * 499) << "came up again";
    if (wanted.empty()) wanted = tokens;
    EXPECT_EQ(tokens, wanted);
    constexpr size_t kMost = HostTier::kInBytesPerCall + HostTier::kOutBytesPerCall;
    EXPECT_LE(most, kMost) << words << " words";
    // A step at rest asks the tier twice: as every step does, and for what there is time for.
    EXPECT_LE(most_at_rest, 2 * kMost) << words << " words";
    EXPECT_EQ(memory.given_back(), 0u);
  }
}

}  // namespace
}  // namespace reprise
