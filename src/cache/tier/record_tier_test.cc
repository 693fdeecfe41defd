// SPDX-License-Identifier: Apache-2.0
// Proves that state which went to the disk and came back is the state that was computed, for every
// kind of state, through restarts, faults and a memory that holds little; and that what should be
// on the disk is.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/rng.h"
#include "cache/tier/tier_test_machine.h"
#include "device/disguised_memory.h"
#include "tier/fault/memory_home.h"

namespace reprise {
namespace {

const StateSpec kKinds[] = {SpecOf(true, false, true), SpecOf(true, true, false),
                            SpecOf(false, false, true), SpecOf(false, true, true),
                            SpecOf(false, true, false)};

TEST(RecordTier, ARestartGoesOnWhereItWas) {
  for (const StateSpec& spec : kKinds) {
    for (const bool secret : {false, true}) {
      Machine machine(spec);
      if (secret) machine.state_keys = StateKey::Of({4, 2});
      machine.Begin();
      auto prompt = Tokens(1, 700);
      const auto reply = Tokens(2, 90);
      EXPECT_EQ(machine.Run(prompt, reply).used_tokens, 0);
      machine.Rest();
      EXPECT_GT(machine.cache->stats().tiers[0].records, 0u);

      machine.Begin();  // the old one ends here
      const auto next = Join(Join(prompt, reply), Tokens(3, 20));
      const ReuseReport report = machine.Run(next, Tokens(4, 70));
      EXPECT_EQ(report.used_tokens, 790);
      EXPECT_EQ(report.loaded_tokens, 790);
      EXPECT_GT(report.load_bytes, 0u);
      EXPECT_EQ(machine.Run(Join(prompt, Tokens(5, 50))).used_tokens,
                spec.has_recurrent() ? 699 : 700)
          << "another reply";
      EXPECT_TRUE(machine.cache->CheckInvariants().ok());

      // Another turn: only what is new is written, and read.
      machine.Rest();
      const TierStats disk = machine.cache->stats().tiers[0];
      if (spec.kv_block_bytes() > 0) {
        EXPECT_LT(disk.bytes_written, disk.bytes);
      }
      machine.Begin();
      EXPECT_EQ(machine.Run(Join(Join(next, Tokens(4, 70)), {1, 2, 3})).used_tokens, 880);
    }
  }
}

// A key is changed: what the old one closed is read; what goes on is written with the new one, all
// of it, so that nothing is lost when the old key is gone.
TEST(RecordTier, AKeyIsChangedAndNothingIsLost) {
  const StateKey old_key = StateKey::Of({1}), new_key = StateKey::Of({2});
  for (const StateSpec& spec : kKinds) {
    Machine machine(spec);
    machine.state_keys = old_key;
    machine.Begin();
    const auto prompt = Tokens(1, 700), other = Tokens(9, 300);
    machine.Run(prompt, Tokens(2, 90));
    machine.Run(other);
    machine.Rest();

    machine.state_keys = StateKeys(new_key, old_key);
    machine.Begin();
    EXPECT_EQ(machine.cache->stats().tiers[0].unreadable, 0u);
    auto next = Join(Join(prompt, Tokens(2, 90)), Tokens(3, 20));
    EXPECT_EQ(machine.Run(next, Tokens(4, 70)).loaded_tokens, 790);
    machine.Rest();
    next = Join(Join(next, Tokens(4, 70)), {1, 2, 3});
    machine.Begin();  // both keys still
    EXPECT_EQ(machine.Run(next).loaded_tokens, 880);
    EXPECT_GE(machine.Run(Join(other, Tokens(5, 40))).loaded_tokens, 299);
    EXPECT_TRUE(machine.cache->CheckInvariants().ok());
    machine.Rest();

    machine.state_keys = new_key;
    machine.Begin();
    EXPECT_GE(machine.Run(Join(next, Tokens(6, 30))).loaded_tokens, 880) << "of the old key alone";
    EXPECT_GE(machine.Run(Join(Join(other, Tokens(5, 40)), {7})).loaded_tokens, 339);

    // What is reset is gone by both.
    machine.state_keys = StateKeys(new_key, old_key);
    machine.Begin();
    machine.cache->Reset(machine.key);
    machine.Begin();
    EXPECT_EQ(machine.Run(Join(prompt, Tokens(8, 30))).loaded_tokens, 0);
  }
}

// The same below host memory and above a second folder, of which each writes what it lacks.
TEST(RecordTier, AKeyIsChangedOnAllLevels) {
  const StateKey old_key = StateKey::Of({1}), new_key = StateKey::Of({2});
  Machine machine(kKinds[0]);
  machine.far = machine.disk;
  machine.far.path = testing::TempDir() + "far";
  std::filesystem::remove_all(machine.far.path);
  machine.host_bytes = 4 << 20;
  machine.state_keys = old_key;
  machine.Begin();
  const auto prompt = Tokens(1, 700);
  machine.Run(prompt, Tokens(2, 90));
  machine.Rest();
  machine.state_keys = StateKeys(new_key, old_key);
  machine.Begin();
  const auto next = Join(Join(prompt, Tokens(2, 90)), Tokens(3, 20));
  EXPECT_EQ(machine.Run(next, Tokens(4, 70)).loaded_tokens, 790);
  machine.Rest();
  machine.state_keys = new_key;
  for (const bool near : {true, false}) {
    if (!near) machine.disk.path.clear();
    machine.Begin();
    EXPECT_EQ(machine.Run(Join(Join(next, Tokens(4, 70)), Tokens(5, 9))).loaded_tokens, 880)
        << near;
  }
}

// A snapshot cannot be cut: with it only what the window covers is written. Without one a prompt
// may part anywhere, so all is; but no more than the window is read.
TEST(RecordTier, WindowsAloneAreStoredAndReadAsFarAsTheyReach) {
  const StateSpec& cut = kKinds[3];
  const StateSpec& tails = kKinds[4];
  const auto prompt = Tokens(1, 1500);
  for (const StateSpec* spec : {&cut, &tails}) {
    Machine machine(*spec);
    const size_t block = 64 * 16 * sizeof(float), state = spec->has_recurrent() ? 2048 : 0;
    const size_t window = 3 * block + state;  // 100 tokens lie in at most so many blocks
    machine.Begin();
    machine.Run(prompt);
    machine.Rest();
    const uint64_t written = machine.cache->stats().tiers[0].bytes_written;
    if (spec->has_recurrent()) {
      EXPECT_LT(written, 2 * (window + 4096)) << "of the prompt's end, and of the whole";
    } else {
      EXPECT_GT(written, 23 * block);
    }
    machine.Begin();
    const ReuseReport report = machine.Run(Join(prompt, Tokens(2, 200)));
    EXPECT_GE(report.used_tokens, 1499);
    EXPECT_EQ(report.loaded_tokens, report.used_tokens);
    EXPECT_LE(report.load_bytes, window);
  }
}

// Large states that come from the disk are copied into memory by a thread beside the engine's.
TEST(RecordTier, LargeStatesAreCopiedByAnotherThread) {
  StateSpec spec = SpecOf(true, false, true);
  spec.layers.back().tensors[0].shape = {768 << 10};  // 3 MiB
  Machine machine(spec);
  machine.options.budget_bytes = size_t{128} << 20;
  machine.disk.bytes_max = size_t{128} << 20;
  machine.Begin();
  const auto prompt = Tokens(1, 500), reply = Tokens(2, 50);
  machine.Run(prompt, reply);
  machine.Rest();
  machine.Begin();
  const auto next = Join(Join(prompt, reply), Tokens(4, 50));
  EXPECT_GT(machine.Run(next).loaded_tokens, 500);
}

TEST(RecordTier, OthersFindNothing) {
  Machine machine(kKinds[0]);
  machine.Begin();
  const auto prompt = Tokens(1, 400);
  machine.Run(prompt);
  machine.Rest();
  machine.Begin();
  for (const NamespaceKey& key :
       {NamespaceKey{"model", "other"}, NamespaceKey{"other", "tenant"}}) {
    machine.key = key;
    const ReuseReport report = machine.Run(Join(prompt, {1}));
    EXPECT_EQ(report.used_tokens, 0);
    EXPECT_EQ(report.loaded_tokens, 0);
  }
}

// Blocks are written whole. Where a prompt ends inside one, its other rows were never written: they
// are zeros, and not what another tenant's request left in that memory.
TEST(RecordTier, RowsThatWereNotWrittenHoldNothing) {
  Machine machine(kKinds[1]);
  machine.Begin();
  machine.key.salt = "first";
  machine.Run(std::vector<TokenId>(1000, 54321));  // folds to 108642
  machine.cache->ResetAll();
  machine.key.salt = "second";
  machine.Run(Tokens(1, 70));
  machine.Rest();
  const std::string left = [] {
    float fold = 0;
    for (int i = 0; i < 60; ++i) fold = fold * 0.5f + 54321;
    return std::string(reinterpret_cast<const char*>(&fold), sizeof(fold));
  }();
  machine.cache.reset();
  size_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(machine.disk.path)) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(all.find(left), std::string::npos) << file.path();
    bytes += all.size();
  }
  EXPECT_GT(bytes, 10'000u);
}

uintmax_t BytesIn(const std::string& folder) {
  uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) bytes += file.file_size();
  return bytes;
}

// Rounded state is lossy: who starts from it is told, and who wants exact state does not find it,
// nor the other way round.
// A store that lets go of what nobody looks up: what goes on in memory only is stored so that
// another server can read all of it.
TEST(RecordTier, WhatAStoreMayHaveLetGoIsNotContinued) {
  std::atomic<int64_t> now_ms = 1000;
  const auto server = std::make_shared<MemoryServer>();
  constexpr int64_t kKeepsMs = 3600'000;
  Machine machine(SpecOf(true, false, true));
  machine.disk.path.clear();
  machine.open_store = [&] {
    StoreLimits limits;
    limits.steady_ms = [&] { return now_ms.load(); };
    auto home = std::make_unique<MemoryHome>(server, nullptr, true, kKeepsMs);
    auto store = RecordStore::Open(std::move(home), limits, StateKey::Of({4}));
    CHECK(store.ok());
    return std::move(*store);
  };
  machine.Begin();
  const auto prompt = Tokens(1, 700);
  machine.Run(prompt);
  machine.Rest();
  ASSERT_FALSE(server->records.empty());
  now_ms += 2 * kKeepsMs;
  {
    std::lock_guard lock(server->mutex);
    server->records.clear();
    server->names.clear();
  }
  const auto next = Join(prompt, Tokens(2, 20));  // too few to ask the store for
  EXPECT_GT(machine.Run(next).used_tokens, 690) << "from memory";
  machine.Rest();  // what it would continue is gone: the turn after that is stored whole
  const auto last = Join(next, Tokens(3, 20));
  EXPECT_GT(machine.Run(last).used_tokens, 710);
  machine.Rest();
  machine.Begin();  // another server
  EXPECT_GE(machine.Run(Join(last, Tokens(4, 20))).loaded_tokens, 739);
}

TEST(RecordTier, RoundedStateIsKeptApartAndReported) {
  for (const bool first : {false, true}) {
    Machine machine(kKinds[0]);
    machine.rounds = first;
    const auto prompt = Tokens(1, 400);
    machine.Begin();
    EXPECT_FALSE(machine.Run(prompt).rounded) << "computed";
    machine.Rest();
    const uintmax_t bytes = BytesIn(machine.disk.path);

    machine.rounds = !first;
    machine.Begin();
    EXPECT_EQ(machine.Run(Join(prompt, {1})).used_tokens, 0);
    machine.Rest();
    const uintmax_t other = BytesIn(machine.disk.path) - bytes;
    EXPECT_EQ(first ? other - bytes : bytes - other, 1024u) << "half of a state";

    machine.rounds = first;
    machine.Begin();
    const ReuseReport report = machine.Run(Join(prompt, {2}));
    EXPECT_EQ(report.used_tokens, 399);
    EXPECT_EQ(report.rounded, first);
    EXPECT_EQ(machine.rounded_seen, first ? 1 : 0);
    EXPECT_EQ(FormatReport(report).ends_with(", lossy: snapshots bf16"), first);
  }
}

// Blocks of others are not taken by one who has computed all by itself: they may come from rounded
// state.
TEST(RecordTier, WhoStartsFromNothingStaysExactBesideRoundedState) {
  Machine machine(kKinds[0]);
  machine.rounds = true;
  machine.Begin();
  machine.Run(Tokens(1, 400));
  CacheRequest alone;
  alone.key = &machine.key;
  alone.read = false;
  const auto prompt = Tokens(1, 400);
  alone.tokens = prompt;
  Lease lease = machine.cache->Acquire(alone);
  ASSERT_TRUE(machine.cache->Start(lease).ready());
  ASSERT_TRUE(machine.cache->Reserve(lease, 400).ok());
  const std::vector<BlockId> mine(lease.blocks().begin(), lease.blocks().end());
  ASSERT_TRUE(machine.cache->Commit(lease, {400}).ok());
  EXPECT_TRUE(std::equal(mine.begin(), mine.end(), lease.blocks().begin()));
}

TEST(RecordTier, WithoutReadingNothingIsFetched) {
  Machine machine(kKinds[0]);
  machine.Begin();
  machine.Run(Tokens(1, 400));
  machine.Rest();
  machine.Begin();
  CacheRequest request;
  request.read = false;
  EXPECT_EQ(machine.Run(Join(Tokens(1, 400), {1}), {}, request).used_tokens, 0);
  EXPECT_EQ(machine.cache->stats().tiers[0].fetches, 0u);
}

TEST(RecordTier, ResetForgetsTheDiskToo) {
  for (const bool all : {false, true}) {
    Machine machine(kKinds[0]);
    machine.Begin();
    machine.Run(Tokens(1, 400));
    machine.Rest();
    all ? machine.cache->ResetAll() : machine.cache->Reset(machine.key);
    EXPECT_EQ(machine.Run(Join(Tokens(1, 400), {1})).used_tokens, 0);
    machine.cache->ResetAll();
    machine.Begin();
    EXPECT_EQ(machine.Run(Join(Tokens(1, 400), {1})).used_tokens, 0);
  }
}

TEST(RecordTier, StoreAllKeepsWhatIsWarm) {
  for (const StateSpec& spec : kKinds) {
    Machine machine(spec);
    machine.Begin();
    for (uint64_t i = 0; i < 10; ++i) machine.Run(Tokens(i, 300 + 10 * i));
    EXPECT_TRUE(machine.cache->StoreAll(std::chrono::seconds(60)));
    machine.Begin();
    for (uint64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(machine.Run(Join(Tokens(i, 300 + 10 * i), {1, 2})).used_tokens,
                static_cast<int32_t>(300 + 10 * i) - (spec.has_recurrent() ? 1 : 0));
    }
  }
}

TEST(RecordTier, SharedAndPinnedPlacesAreStoredAtOnce) {
  Machine machine(kKinds[0]);
  machine.Begin();
  const Boundary boundaries[] = {{200, BoundaryKind::kSystem}, {300, BoundaryKind::kMessage}};
  CacheRequest request;
  request.boundaries = boundaries;
  machine.Run(Tokens(1, 500), {}, request);
  for (int i = 0; i < 2000 && machine.cache->stats().tiers[0].stores == 0; ++i) {
    machine.cache->SetTime(100 + i);  // never idle
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  machine.Begin();
  EXPECT_EQ(machine.Run(Join(std::vector<TokenId>(Tokens(1, 200)), Tokens(9, 100))).used_tokens,
            200);
}

// A server that is never idle stores what memory has no room for before it goes.
TEST(RecordTier, StateThatIsEvictedUnderLoadIsOnTheDisk) {
  for (const StateSpec& spec : {kKinds[0], kKinds[1], kKinds[4]}) {
    Machine machine(spec);
    HandClock clock;  // steps are long enough to copy all that they let go
    machine.clock = &clock;
    machine.options.budget_bytes = 1 << 20;
    machine.Begin();
    for (uint64_t i = 0; i < 40; ++i) {
      machine.Run(Tokens(i, 500));
      for (int step = 0; step < 8 || (step < 2000 && machine.cache->moves_under_way() > 0);
           ++step) {
        clock.now_ns += 100'000'000;
        machine.Step();
      }
    }
    const CacheStats stats = machine.cache->stats();
    EXPECT_GT(stats.blocks_evicted[size_t(EvictReason::kRunning)], 0u);
    EXPECT_GT(stats.spills, 30u);
    int32_t found = 0;
    for (uint64_t i = 0; i < 40; ++i) {
      found += machine.Run(Join(Tokens(i, 500), {1})).used_tokens >= 499;
    }
    EXPECT_GT(found, 30);
    EXPECT_GT(machine.cache->stats().loads, 5u);
  }
}

// What goes down between steps goes in pieces that end anywhere in a block and in a state; where no
// time passes, nothing goes.
TEST(RecordTier, StepsGiveWhatTimeTheyHave) {
  StateSpec spec = SpecOf(true, false, true);
  for (int layer = 3; layer < 6; ++layer) {
    spec.layers.insert(spec.layers.begin(), {layer, StateKind::kFullKv, 0, spec.layers[0].tensors});
  }
  spec.layers.back().tensors[0].shape = {30'000};
  for (const bool host : {false, true}) {
    for (const bool rounds : {false, !host}) {
      Machine machine(spec);
      HandClock clock;
      machine.clock = &clock;
      machine.disk.writer_ns = [] { return 0; };
      machine.rounds = rounds;
      machine.options.budget_bytes = 64 << 20;
      if (host) machine.disk.path.clear(), machine.host_bytes = 16 << 20;
      machine.Begin();
      const auto prompt = Tokens(1, 500);
      machine.Run(prompt);
      (void)machine.cache->StoreAll(std::chrono::milliseconds(0));  // wishes
      (void)machine.cache->Maintain();
      const uint64_t before = machine.cache->stats().tiers[0].stores;
      for (int i = 0; i < 20; ++i) machine.Step();
      EXPECT_LE(machine.cache->stats().tiers[0].stores, before + 1) << "what had begun at rest";
      for (int i = 0; i < 4000 && machine.cache->moves_under_way() > 0; ++i) {
        clock.now_ns += 1'000'000;
        machine.Step();
      }
      EXPECT_EQ(machine.cache->moves_under_way(), 0u);
      EXPECT_GT(machine.cache->stats().tiers[0].stores, before);
      if (host) {
        (void)machine.cache->GiveWay(SIZE_MAX / 2);
      } else {
        machine.Begin();
      }
      const ReuseReport report = machine.Run(Join(prompt, Tokens(2, 20)));
      EXPECT_GE(report.loaded_tokens, 499);
      EXPECT_EQ(machine.rounded_seen > 0, rounds);
    }
  }
}

// Between steps the time that the disk's thread takes from the cores counts like copies; at rest it
// does not.
TEST(RecordTier, WhatWritingTakesIsPaidOffBeforeMoreGoesDown) {
  for (const bool rest : {false, true}) {
    Machine machine(SpecOf(true, false, true));
    HandClock clock;
    machine.clock = &clock;
    std::atomic<int64_t> writer_ns = 0;
    machine.disk.writer_ns = [&] { return writer_ns.load(); };
    machine.Begin();
    machine.Step();
    writer_ns += 1'000'000'000;
    CacheRequest pinned;
    pinned.pin_ms = 60'000;  // goes down at once
    machine.Run(Tokens(1, 500), {}, pinned);
    const auto stores = [&] { return machine.cache->stats().tiers[0].stores; };
    if (rest) machine.Rest();
    EXPECT_EQ(stores() > 0, rest);
    if (rest) continue;
    const auto steps = [&](int64_t count) {
      for (; count > 0; --count) {
        clock.now_ns += 1'000'000'000;
        machine.Step();
      }
    };
    steps(CopyPace::kShare - 2);
    EXPECT_EQ(stores(), 0u);
    EXPECT_GT(machine.cache->moves_under_way(), 0u);
    for (int i = 0; i < 100 && stores() == 0; ++i) steps(1);
    EXPECT_GT(stores(), 0u);
  }
}

// Wishes to store that nobody has time for do not pile up.
TEST(RecordTier, SoManyWishesWaitAndNoMore) {
  constexpr uint64_t kWishesMax = 256;
  Machine machine(SpecOf(true, false, false));
  machine.options.budget_bytes = 64 << 20;
  machine.Begin();
  for (uint64_t i = 0; i < 2 * kWishesMax; ++i) machine.Run(Tokens(i, 70));
  EXPECT_EQ(machine.cache->stats().spills, 0u);
  machine.Rest();
  EXPECT_GT(machine.cache->stats().spills, 0u);
  EXPECT_LE(machine.cache->stats().spills, kWishesMax);
}

// Counts what goes into it.
class CountingMemory : public DisguisedMemory {
 public:
  void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) override {
    uploaded += bytes;
    DisguisedMemory::Upload(to, from, bytes);
  }

  size_t uploaded = 0;
};

// What comes up is copied a piece a step: no request waits for all of a large state of another.
TEST(RecordTier, AStepCopiesInSoMuchAndNoMore) {
  StateSpec spec = SpecOf(true, false, false);
  for (int layer = 1; layer < 160; ++layer) {
    spec.layers.push_back({layer, StateKind::kFullKv, 0, spec.layers[0].tensors});
  }
  const size_t block = 160 * kBlockTokens * 16 * sizeof(float);
  Machine machine(spec);
  CountingMemory memory;
  machine.device = &memory;
  machine.options.budget_bytes = 64 << 20;
  machine.Begin();
  const auto prompt = Tokens(1, 1920);  // 30 blocks of 640 KiB
  machine.Run(prompt);
  machine.Rest();
  machine.Begin();
  CacheRequest request;
  request.key = &machine.key;
  const auto next = Join(prompt, {1, 2, 3});
  request.tokens = next;
  machine.cache->SetTime(1);
  Lease lease = machine.cache->Acquire(request);
  ASSERT_TRUE(machine.cache->Start(lease).pending());
  size_t most = 0, all = 0;
  while (machine.cache->FindAwaited(lease)) {
    memory.uploaded = 0;
    machine.Step();
    most = std::max(most, memory.uploaded);
    all += memory.uploaded;
  }
  EXPECT_GE(all, 30 * block);
  EXPECT_LE(most, (size_t{16} << 20) + block);
}

// Many requests on few stems, little memory, a small folder, a disk that fails now and then, and
// restarts: everything that is read is right (Machine::Compute), and the cache stays sound.
// Each turn of a tool loop leaves a snapshot that nobody goes on from once there is the next.
TEST(RecordTier, AConversationKeepsFewSnapshots) {
  StateSpec spec = SpecOf(true, false, false);
  spec.layers.push_back({2, StateKind::kRecurrent, 0, {{"s", {4096}, DType::kF32}}});  // 16 KiB
  for (const bool host : {false, true}) {
    Machine machine(spec);
    machine.host_bytes = host ? size_t{16} << 20 : 0;
    machine.Begin();
    auto talk = Tokens(1, 500);
    for (uint64_t turn = 0; turn < 60; ++turn) {
      const auto reply = Tokens(200 + turn, 10);
      (void)machine.Run(talk, reply);
      machine.Rest();
      talk = Join(Join(talk, reply), Tokens(100 + turn, 14));
    }
    const size_t block_bytes = spec.kv_block_bytes(), state_bytes = spec.state_bytes();
    const size_t blocks = talk.size() / kBlockTokens + 1;
    for (const TierStats& tier : machine.cache->stats().tiers) {
      if (!tier.present()) continue;
      // The last ones, and one for as many bytes of blocks; records overlap in the block where they
      // part, and take whole pages of a disk.
      EXPECT_LE(tier.records, 4 + blocks * block_bytes / (state_bytes / 2)) << tier.kind;
      EXPECT_GT(tier.replaced, 40u) << tier.kind;
    }
    machine.host_bytes = 0;
    machine.Begin();  // what is left leads to the end
    const ReuseReport report = machine.Run(talk);
    EXPECT_EQ(report.used_tokens, static_cast<int32_t>(talk.size()) - 25) << "the last prompt";
    EXPECT_EQ(report.loaded_tokens, report.used_tokens);
  }
}

TEST(RecordTier, RandomSchedules) {
  uint64_t all = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Rng rng(seed);
    Machine machine(kKinds[seed % std::size(kKinds)]);
    std::atomic<int> faults = 0;
    machine.options.budget_bytes = (768 + rng.Below(1024)) << 10;
    machine.disk.bytes_max = (256 + rng.Below(2048)) << 10;
    machine.disk.compress = seed % 3 != 0;
    machine.disk.fault = [&](const char*) { return faults > 0 && --faults == 0 ? EIO : 0; };
    machine.Begin();
    RandomTalk talk(seed);
    uint64_t fetches = 0;
    for (int step = 0; step < 80 && !testing::Test::HasFatalFailure(); ++step) {
      talk.Turn(rng, machine);
      switch (rng.Below(12)) {
        case 0:
          machine.Rest();
          break;
        case 1:
          fetches += machine.cache->stats().tiers[0].fetches;
          machine.Begin();
          break;
        case 2:
          (void)machine.cache->StoreAll(std::chrono::milliseconds(rng.Below(20)));
          break;
        case 3:
          faults = static_cast<int>(1 + rng.Below(10));
          break;
        case 4:
          machine.cache->ResetAll();
          break;
        default:
          (void)machine.cache->Maintain();
      }
      const Status sound = machine.cache->CheckInvariants();
      ASSERT_TRUE(sound.ok()) << sound.message();
      ASSERT_LE(machine.cache->stats().tiers[0].bytes, machine.disk.bytes_max);
    }
    fetches += machine.cache->stats().tiers[0].fetches;
    all += fetches;
  }
  EXPECT_GT(all, 15u);
}

}  // namespace
}  // namespace reprise
