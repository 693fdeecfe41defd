// SPDX-License-Identifier: Apache-2.0
// Nobody is evicted below his share by others; alone, a tenant may have everything.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "cache/index/index_fixture.h"

namespace reprise {
namespace {

class TenantsTest : public testing::TestWithParam<std::tuple<bool, bool>> {  // K/V, recurrent
 protected:
  static constexpr size_t kBudget = 16 << 20;
  static constexpr size_t kPromptTokens = 300;
  // What one prompt leaves, and half of what it takes while it runs, is less than that.
  static constexpr size_t kEntryBytes = 1 << 20;

  TenantsTest() : client_(OptionsFor()) {}

  static StateIndex::Options OptionsFor() {
    const auto [kv, recurrent] = GetParam();
    StateIndex::Options options;
    options.spec = SpecOfKinds(kv, 0, recurrent);
    options.cache.budget_bytes = kBudget;
    options.ladder_share = 0;
    return options;
  }

  void Store(const std::string& tenant, uint64_t prompt, int32_t weight = 1, int64_t pin_ms = 0) {
    NamespaceKey key{"model", tenant};
    CacheRequest request;
    request.key = &key;
    request.tenant = tenant;
    request.tenant_weight = weight;
    request.pin_ms = pin_ms;
    client_.index.SetTime(++now_ms_);
    client_.Run(RandomTokens(prompt, kPromptTokens), request);
    ASSERT_EQ(client_.index.CheckInvariants().message(), "");
  }
  void StoreMany(const std::string& tenant, int count, int32_t weight = 1, int64_t pin_ms = 0) {
    for (int i = 0; i < count; ++i) Store(tenant, ++prompts_, weight, pin_ms);
  }
  size_t BytesOf(const std::string& tenant) { return client_.index.BytesAndShareOf(tenant).first; }

  IndexClient client_;
  int64_t now_ms_ = 0;
  uint64_t prompts_ = 0;
};

TEST_P(TenantsTest, AloneATenantMayHaveEverything) {
  StoreMany("a", 200);
  EXPECT_GT(BytesOf("a"), kBudget * 9 / 10);
  EXPECT_EQ(BytesOf("b"), 0u);
}

TEST_P(TenantsTest, OneThatComesLaterGetsItsShareAndKeepsIt) {
  StoreMany("a", 200);
  StoreMany("b", 200);
  const auto [before, share] = client_.index.BytesAndShareOf("b");
  EXPECT_GT(share, kBudget * 4 / 10);
  EXPECT_GT(before + kEntryBytes, share)
      << "what others have above their share is its for the asking";
  for (int i = 0; i < 400; ++i) {
    StoreMany("a", 1);
    ASSERT_GT(BytesOf("b") + kEntryBytes, client_.index.BytesAndShareOf("b").second) << i;
  }
  EXPECT_GT(BytesOf("a") + kEntryBytes, kBudget * 4 / 10);
}

TEST_P(TenantsTest, WhatIsLittleStaysWhole) {
  StoreMany("b", 4);
  const size_t few = BytesOf("b");
  StoreMany("a", 400);
  EXPECT_EQ(BytesOf("b"), few) << "however old it is and however much others store";
}

TEST_P(TenantsTest, SharesGoByWeight) {
  for (int i = 0; i < 300; ++i) {
    StoreMany("a", 1, 1);
    StoreMany("b", 1, 3);
  }
  EXPECT_GT(BytesOf("b"), 2 * BytesOf("a"));
  EXPECT_LT(BytesOf("b"), 4 * BytesOf("a"));
}

TEST_P(TenantsTest, MoreTenantsThanAreCountedApart) {
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 100; ++i) Store("t" + std::to_string(i), static_cast<uint64_t>(i));
  }
  EXPECT_LE(client_.index.bytes_used(), kBudget);
}

// A tenant that pins everything has its share of it, and no more, once others want theirs.
TEST_P(TenantsTest, PinsHoldWithinTheShare) {
  for (const char* tenant : {"a", "b", "c"}) StoreMany(tenant, 100);
  StoreMany("b", 100);
  constexpr int64_t kHour = 3'600'000;
  StoreMany("a", 100, 1, kHour);
  for (int i = 0; i < 50; ++i) {
    StoreMany("b", 1);
    StoreMany("c", 1);
    if (i % 5 == 0) StoreMany("a", 1, 1, kHour);
  }
  for (const char* tenant : {"a", "b", "c"}) {
    const auto [bytes, share] = client_.index.BytesAndShareOf(tenant);
    EXPECT_GT(bytes + kEntryBytes / 2, share) << tenant;
    EXPECT_LT(bytes, share + kEntryBytes / 2) << tenant;
  }
}

// What pins may hold is shared out, too: the first one to pin does not keep others from it.
TEST_P(TenantsTest, EachTenantMayPinItsShare) {
  constexpr int64_t kHour = 3'600'000;
  StoreMany("a", 100, 1, kHour);
  const std::vector<TokenId> prompt = RandomTokens(++prompts_, kPromptTokens);
  NamespaceKey key{"model", "b"};
  CacheRequest request;
  request.key = &key;
  request.tenant = "b";
  request.pin_ms = kHour;
  client_.Run(prompt, request);
  request.pin_ms = 0;
  StoreMany("b", 100);
  EXPECT_GT(client_.Reusable(prompt, request), 200) << "it is pinned and within the share of b";
}

// Room for many blocks beside many tenants: what is looked at for each block is bounded.
TEST_P(TenantsTest, RoomIsMadeInTimeLinearInTenants) {
  if (!std::get<0>(GetParam())) GTEST_SKIP() << "it takes blocks";
  for (int i = 0; i < 400; ++i) StoreMany("t" + std::to_string(i % 64), 1);
  const uint64_t before = client_.index.tenant_steps();
  Lease lease = client_.Acquire(RandomTokens(++prompts_, 6400));
  ASSERT_TRUE(client_.index.Start(lease).ready());
  ASSERT_TRUE(client_.index.Reserve(lease, 6400).ok());
  const uint64_t blocks = 100;
  EXPECT_LT(client_.index.tenant_steps() - before, blocks * 64 * 8);
}

// The salt is what keeps tenants apart: equal prompts in two namespaces share nothing, not even
// while one of them is being computed.
TEST_P(TenantsTest, NobodyWaitsForAnotherNamespace) {
  const std::vector<TokenId> prompt = RandomTokens(1, kPromptTokens);
  NamespaceKey alice{"model", "alice"}, bob{"model", "bob"};
  CacheRequest request;
  request.key = &alice;
  Lease first = client_.Acquire(prompt, request);
  ASSERT_TRUE(client_.index.Start(first).ready());
  Lease second = client_.Acquire(prompt, request);
  EXPECT_TRUE(client_.index.FindAwaited(second)) << "it waits within one namespace";
  request.key = &bob;
  Lease other = client_.Acquire(prompt, request);
  EXPECT_FALSE(client_.index.FindAwaited(other));
  ASSERT_TRUE(client_.Compute(first).ok());
  client_.index.Finish(std::move(first));
  EXPECT_FALSE(client_.index.FindAwaited(other));
  ASSERT_TRUE(client_.index.Start(other).ready());
  EXPECT_EQ(client_.index.record(other).report.used_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TenantsTest,
                         testing::Values(std::tuple(true, false), std::tuple(false, true),
                                         std::tuple(true, true)));

}  // namespace
}  // namespace reprise
