// SPDX-License-Identifier: Apache-2.0
// Proves that state which went to memory of the host and came back is the state that was computed,
// for every kind of state, with copies that are done as late as they may be (device/late_memory.h);
// that it stays within its bytes, and that tenants are apart. Machine::Compute checks every bit
// that a request reads.
#include "cache/tier/host_tier.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "base/rng.h"
#include "cache/tier/tier_test_machine.h"
#include "device/late_memory.h"

namespace reprise {
namespace {

const StateSpec kKinds[] = {SpecOf(true, false, true), SpecOf(true, true, false),
                            SpecOf(false, false, true), SpecOf(false, true, true),
                            SpecOf(false, true, false)};
constexpr size_t kWholeKinds = 3;  // of them: without windows alone, of which many fit

// Room for a few prompts of 500 tokens.
size_t Few(const StateSpec& spec) { return spec.kv_block_bytes() > 0 ? 256 << 10 : 16 << 10; }

// A machine with memory of the host under its own, and no disk.
class Demoting : public Machine {
 public:
  explicit Demoting(const StateSpec& spec, bool late = true) : Machine(spec) {
    disk.path.clear();
    host_bytes = 16 << 20;
    if (late) device = &late_;
  }
  const TierStats host() const { return cache->stats().tiers[0]; }
  // Nothing is in the machine's own memory any more.
  void Crowd() {
    Rest();
    (void)cache->GiveWay(SIZE_MAX / 2);
  }

 private:
  LateMemory late_;
};

TEST(HostTier, WhatHasNoRoomIsDemotedAndComesBack) {
  for (const StateSpec& spec : kKinds) {
    for (const bool late : {false, true}) {
      Demoting machine(spec, late);
      machine.Begin();
      const auto first = Join(Tokens(1, 700), Tokens(2, 90));
      EXPECT_EQ(machine.Run(Tokens(1, 700), Tokens(2, 90)).used_tokens, 0);
      machine.Crowd();
      EXPECT_EQ(machine.cache->stats().bytes_cached, 0u);

      const ReuseReport report = machine.Run(Join(first, Tokens(3, 20)), Tokens(4, 70));
      EXPECT_EQ(report.used_tokens, 790);
      EXPECT_EQ(report.loaded_tokens, 790);
      EXPECT_EQ(report.load_tier, "host");
      EXPECT_EQ(machine.Run(Join(Tokens(1, 700), Tokens(5, 50))).used_tokens,
                spec.has_recurrent() ? 699 : 700)
          << "another reply";

      // Another turn: only what is new goes down.
      const uint64_t before = machine.host().bytes_written;
      machine.Crowd();
      if (spec.bytes_per_token(StateKind::kFullKv) > 0) {
        EXPECT_LT(machine.host().bytes_written - before, before);
      }
      const auto second = Join(Join(first, Tokens(3, 20)), Tokens(4, 70));
      EXPECT_EQ(machine.Run(Join(second, {1, 2, 3})).used_tokens, 880);
      EXPECT_TRUE(machine.cache->CheckInvariants().ok());
    }
  }
}

// A state that takes many blocks lies in few slots; its record shares them with blocks, and comes
// in on a thread of its own where this machine's cores compute.
TEST(HostTier, LargeStatesLieInFewSlots) {
  StateSpec spec = SpecOf(true, false, true);
  spec.layers.back().tensors[0].shape = {300'000};  // 293 blocks: 5 in a slot
  for (const bool late : {false, true}) {
    Demoting machine(spec, late);
    machine.options.budget_bytes = size_t{32} << 20;
    machine.host_bytes = size_t{8} << 20;
    machine.Begin();
    auto talk = Tokens(1, 700);
    for (uint64_t turn = 0; turn < 4; ++turn) {
      const auto reply = Tokens(50 + turn, 30);
      const ReuseReport report = machine.Run(talk, reply);
      EXPECT_EQ(report.loaded_tokens, turn == 0 ? 0 : report.used_tokens);
      machine.Crowd();
      talk = Join(Join(talk, reply), Tokens(10 + turn, 40));
      const TierStats host = machine.host();
      const size_t slot = 5 * spec.kv_block_bytes();
      EXPECT_EQ(host.bytes % slot, 0u);
      EXPECT_LE(host.bytes,
                host.records * (spec.state_bytes() + 14 * spec.kv_block_bytes() + slot));
    }
    EXPECT_EQ(machine.cache->stats().loads, 3u);
    EXPECT_TRUE(machine.cache->CheckInvariants().ok());
  }
}

// A model without recurrent state goes on from the end of any block.
TEST(HostTier, OthersBeginInTheMiddleOfARecord) {
  Demoting machine(kKinds[1]);
  machine.Begin();
  machine.Run(Tokens(1, 700));
  machine.Crowd();
  std::vector<TokenId> stem = Tokens(1, 700);
  stem.resize(300);
  EXPECT_EQ(machine.Run(Join(stem, Tokens(7, 40))).used_tokens, 256);
}

TEST(HostTier, ItStaysWithinItsBytes) {
  for (const StateSpec& spec : std::span(kKinds).first(kWholeKinds)) {
    Demoting machine(spec);
    machine.host_bytes = Few(spec);
    machine.Begin();
    for (uint64_t i = 0; i < 20; ++i) {
      machine.Run(Tokens(i, 500));
      machine.Crowd();
      ASSERT_LE(machine.host().bytes, machine.host().bytes_max);
      ASSERT_LE(machine.host().bytes_max, machine.host_bytes);
      const Status sound = machine.cache->CheckInvariants();
      ASSERT_TRUE(sound.ok()) << sound.message();
    }
    EXPECT_GT(machine.host().evicted, 0u);
    EXPECT_EQ(machine.cache->stats().records_lost, machine.host().evicted);
    // The last ones are there, the first ones are not.
    const int32_t whole = spec.has_recurrent() ? 499 : 500;
    EXPECT_EQ(machine.Run(Join(Tokens(19, 500), {1})).used_tokens, whole);
    EXPECT_EQ(machine.Run(Join(Tokens(0, 500), {1})).used_tokens, 0);
  }
}

TEST(HostTier, TooFewBytesAreRefused) {
  const StateLayout layout(kKinds[0]);
  const size_t least = layout.block_bytes() + (layout.state_bytes() + layout.block_bytes() - 1) /
                                                  layout.block_bytes() * layout.block_bytes();
  EXPECT_TRUE(HostTier::Make(layout, least, HostMemory()).ok());
  const auto none = HostTier::Make(layout, least - 1, HostMemory());
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("cannot hold state of this model"), std::string::npos);
}

TEST(HostTier, OthersFindNothing) {
  for (const StateSpec& spec : std::span(kKinds).first(kWholeKinds)) {
    Demoting machine(spec);
    machine.Begin();
    const auto prompt = Tokens(1, 400);
    machine.Run(prompt);
    machine.Crowd();
    const NamespaceKey mine = machine.key;
    for (const NamespaceKey& key :
         {NamespaceKey{"model", "other"}, NamespaceKey{"other", "tenant"}}) {
      machine.key = key;
      EXPECT_EQ(machine.Run(Join(prompt, {1})).loaded_tokens, 0);
      machine.cache->Reset(key);  // theirs, and nobody else's
    }
    machine.key = mine;
    EXPECT_GT(machine.Run(Join(prompt, {1})).loaded_tokens, 390);
  }
}

TEST(HostTier, ResetForgetsItToo) {
  for (const bool all : {false, true}) {
    Demoting machine(kKinds[0]);
    machine.Begin();
    machine.Run(Tokens(1, 400));
    machine.Crowd();
    EXPECT_GT(machine.host().bytes, 0u);
    all ? machine.cache->ResetAll() : machine.cache->Reset(machine.key);
    EXPECT_EQ(machine.host().bytes, 0u);
    EXPECT_EQ(machine.Run(Join(Tokens(1, 400), {1})).used_tokens, 0);
  }
}

// A server that is never idle: what memory has no room for goes down between its steps, and what
// runs takes the memory of what is being copied.
// However much a tenant has: its reset hides all of it at once, and takes bounded work a call.
TEST(HostTier, AResetGoesInPieces) {
  Demoting machine(kKinds[2], /*late=*/false);
  machine.Begin();
  constexpr uint64_t kRecords = 3 * HostTier::kDropsPerPoll;
  for (uint64_t i = 0; i < kRecords; ++i) {
    machine.Run(Tokens(1 + i, 40));
    machine.Crowd();
  }
  ASSERT_GE(machine.host().records, kRecords);
  machine.cache->Reset(machine.key);
  EXPECT_GE(machine.host().records, kRecords - HostTier::kDropsPerPoll) << "most are only hidden";
  EXPECT_EQ(machine.Run(Join(Tokens(1, 40), {1, 2})).loaded_tokens, 0);
  machine.Rest();
  EXPECT_LE(machine.host().records, 3u) << "of the last request";
  EXPECT_TRUE(machine.cache->CheckInvariants().ok());
}

TEST(HostTier, StateThatIsEvictedUnderLoadIsThere) {
  for (const StateSpec& spec : std::span(kKinds).first(2)) {
    Demoting machine(spec);
    machine.options.budget_bytes = 1 << 20;
    machine.Begin();
    for (uint64_t i = 0; i < 40; ++i) {
      machine.Run(Tokens(i, 500));
      for (int step = 0; step < 24; ++step) machine.Step();
    }
    EXPECT_GT(machine.cache->stats().blocks_evicted[size_t(EvictReason::kRunning)], 0u);
    EXPECT_GT(machine.cache->stats().spills, 30u);
    int32_t found = 0;
    for (uint64_t i = 0; i < 40; ++i) {
      found += machine.Run(Join(Tokens(i, 500), {1})).used_tokens >= 499;
    }
    EXPECT_GT(found, 30);
    EXPECT_GT(machine.cache->stats().loads, 5u);
  }
}

// Moves that are given up half-way leave no trace, whoever takes their memory next.
TEST(HostTier, AMoveGivenUpHalfWayHarmsNobody) {
  Demoting machine(kKinds[0]);
  machine.options.context_tokens = 1024;
  machine.options.sequence_count = 1;
  machine.options.budget_bytes = LeastBudget(kKinds[0], machine.options);
  machine.Begin();
  for (uint64_t i = 0; i < 30; ++i) {
    machine.Run(Tokens(i, 300));
    (void)machine.cache->Maintain();  // begins to go down; a copy or two are done,
    machine.Step();
    machine.Run(Tokens(100 + i, 1020));  // and then the memory is wanted
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(machine.host().stores_aborted, 0u);
  const Status sound = machine.cache->CheckInvariants();
  EXPECT_TRUE(sound.ok()) << sound.message();
}

// In front of a disk: what the host has comes from there, what it has lost, or a process that has
// ended, from the disk.
TEST(HostTier, InFrontOfADisk) {
  for (const StateSpec& spec : std::span(kKinds).first(kWholeKinds)) {
    Demoting machine(spec);
    machine.disk.path = testing::TempDir() + "host-and-disk";
    std::filesystem::remove_all(machine.disk.path);
    machine.host_bytes = Few(spec);
    machine.Begin();
    for (uint64_t i = 0; i < 12; ++i) {
      machine.Run(Tokens(i, 500));
      machine.Crowd();
    }
    EXPECT_EQ(machine.Run(Join(Tokens(11, 500), {1})).load_tier, "host");
    EXPECT_EQ(machine.Run(Join(Tokens(0, 500), {1})).load_tier, "disk");
    machine.Begin();
    EXPECT_EQ(machine.Run(Join(Tokens(11, 500), {1})).load_tier, "disk");
    EXPECT_TRUE(machine.cache->CheckInvariants().ok());
  }
}

// All three, with little of each, restarts and resets.
TEST(HostTier, RandomSchedules) {
  uint64_t fetches[3] = {};
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Rng rng(seed);
    Demoting machine(kKinds[seed % std::size(kKinds)], seed % 3 != 0);
    machine.options.budget_bytes = (768 + rng.Below(1024)) << 10;
    machine.host_bytes = (64 + rng.Below(512)) << 10;
    if (seed % 2 == 1) {
      machine.disk.path = testing::TempDir() + "host-near";
      machine.far = machine.disk;
      machine.far.path = testing::TempDir() + "host-far";
      machine.disk.bytes_max = (256 + rng.Below(1024)) << 10;
      machine.far.bytes_max = (512 + rng.Below(2048)) << 10;
      for (const auto& path : {machine.disk.path, machine.far.path}) {
        std::filesystem::remove_all(path);
      }
    }
    machine.Begin();
    RandomTalk talk(seed);
    const auto count = [&] {
      for (size_t i = 0; i < 3; ++i) fetches[i] += machine.cache->stats().tiers[i].fetches;
    };
    for (int step = 0; step < 60 && !HasFatalFailure(); ++step) {
      talk.Turn(rng, machine);
      switch (rng.Below(12)) {
        case 0:
          machine.Rest();
          break;
        case 1:
          count();
          machine.Begin();
          break;
        case 2:
          (void)machine.cache->StoreAll(std::chrono::milliseconds(rng.Below(20)));
          break;
        case 3:
          machine.Crowd();
          break;
        case 4:
          machine.cache->ResetAll();
          break;
        default:
          (void)machine.cache->Maintain();
      }
      const Status sound = machine.cache->CheckInvariants();
      ASSERT_TRUE(sound.ok()) << sound.message();
      ASSERT_LE(machine.host().bytes, machine.host_bytes);
    }
    count();
  }
  EXPECT_GT(fetches[0], 30u);
  EXPECT_GT(fetches[1], 5u);
}

}  // namespace
}  // namespace reprise
