// SPDX-License-Identifier: Apache-2.0
// Proves that addresses mean what they say, that bad ones are refused in a sentence that does not
// repeat them, and that passwords are not shown.
#include "tier/redis/redis_address.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(RedisAddress, PartsAreRead) {
  const auto full = RedisAddress::Parse("rediss://us%3Aer:p%40ss:w@cache.example:7000/3");
  ASSERT_TRUE(full.ok()) << full.status().message();
  EXPECT_TRUE(full->tls);
  EXPECT_EQ(full->user, "us:er");
  EXPECT_EQ(full->password, "p@ss:w");
  EXPECT_EQ(full->host, "cache.example");
  EXPECT_EQ(full->port, 7000);
  EXPECT_EQ(full->db, 3);
  EXPECT_EQ(full->Show(), "rediss://cache.example:7000/3");

  const auto plain = RedisAddress::Parse("redis://127.0.0.1");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->tls);
  EXPECT_EQ(plain->port, 6379);
  EXPECT_EQ(plain->db, 0);

  const auto v6 = RedisAddress::Parse("redis://:pw@[::1]:6380/");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->user, "");
  EXPECT_EQ(v6->password, "pw");
  EXPECT_EQ(v6->Show(), "redis://[::1]:6380/0");
}

TEST(RedisAddress, SentinelsKnowTheMaster) {
  const auto one =
      RedisAddress::Parse("redis+sentinel://:p%40w@one.example,[::1]:7000/my%20master/2");
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_FALSE(one->tls);
  EXPECT_EQ(one->password, "p@w");
  ASSERT_EQ(one->sentinels.size(), 2u);
  EXPECT_EQ(one->sentinels[0].name, "one.example");
  EXPECT_EQ(one->sentinels[0].port, 26379);
  EXPECT_EQ(one->sentinels[1].name, "::1");
  EXPECT_EQ(one->sentinels[1].port, 7000);
  EXPECT_EQ(one->master, "my master");
  EXPECT_EQ(one->db, 2);
  EXPECT_EQ(one->Show(), "redis+sentinel://one.example:26379,[::1]:7000/my master/2");
  const auto tls = RedisAddress::Parse("rediss+sentinel://h/m");
  ASSERT_TRUE(tls.ok());
  EXPECT_TRUE(tls->tls);
  EXPECT_EQ(tls->db, 0);
  std::string many = "redis+sentinel://h";
  for (size_t i = 0; i < RedisAddress::kSentinelsMax; ++i) many += ",h";
  for (const char* bad : {"h", "h/", "/m", "h,/m", "h:0/m", "h/m/x"}) {
    EXPECT_FALSE(RedisAddress::Parse(std::string("redis+sentinel://") + bad).ok()) << bad;
  }
  EXPECT_FALSE(RedisAddress::Parse("sentinel://h/m").ok());
  EXPECT_FALSE(RedisAddress::Parse(many + "/m").ok());
}

TEST(RedisAddress, BadOnesAreRefused) {
  const std::string bad[] = {
      "",
      "http://host",
      "redis://",
      "redis://:6379",
      "redis://host:0",
      "redis://host:65536",
      "redis://host:x",
      "redis://host/x",
      "redis://host/-1",
      "redis://host/1/2",
      "redis://secret@host",
      "redis://u:%zz@host",
      "redis://u:%1@host",
      "redis://[::1",
      "redis://[::1]x",
      "redis://ho st",
      "redis://" + std::string(3000, 'a'),
  };
  for (const std::string& url : bad) {
    const auto parsed = RedisAddress::Parse(url);
    EXPECT_FALSE(parsed.ok()) << url.substr(0, 60);
    if (parsed.ok()) continue;
    EXPECT_EQ(parsed.status().message().find("secret"), std::string::npos);
  }
}

}  // namespace
}  // namespace reprise
