// SPDX-License-Identifier: Apache-2.0
// Proves the bytes of events against MessagePack written by hand, and what is replayed to whom.
// tests/clients/events_test.py has subscribers.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "events/event_batch.h"
#include "events/msgpack.h"
#include "events/publisher.h"
#include "events/replay.h"

namespace reprise {
namespace {

using namespace std::string_literals;

TEST(Msgpack, ShortestForms) {
  const auto of = [](auto write) {
    std::string bytes;
    MsgpackWriter out(&bytes);
    write(out);
    return bytes;
  };
  EXPECT_EQ(of([](auto& out) { out.Nil(); }), "\xc0"s);
  EXPECT_EQ(of([](auto& out) { out.Uint(0x7f); }), "\x7f"s);
  EXPECT_EQ(of([](auto& out) { out.Uint(0x80); }), "\xcc\x80"s);
  EXPECT_EQ(of([](auto& out) { out.Uint(0x100); }), "\xcd\x01\x00"s);
  EXPECT_EQ(of([](auto& out) { out.Uint(0x10000); }), "\xce\x00\x01\x00\x00"s);
  EXPECT_EQ(of([](auto& out) { out.Uint(uint64_t{1} << 63); }), "\xcf\x80\0\0\0\0\0\0\0"s);
  EXPECT_EQ(of([](auto& out) { out.Double(1.5); }), "\xcb\x3f\xf8\0\0\0\0\0\0"s);
  EXPECT_EQ(of([](auto& out) { out.String("ab"); }), "\xa2"s + "ab");
  EXPECT_EQ(of([](auto& out) { out.String(std::string(32, 'x')); }),
            "\xd9\x20"s + std::string(32, 'x'));
  EXPECT_EQ(of([](auto& out) { out.String(std::string(300, 'x')); }),
            "\xda\x01\x2c"s + std::string(300, 'x'));
  EXPECT_EQ(of([](auto& out) { out.Array(15); }), "\x9f"s);
  EXPECT_EQ(of([](auto& out) { out.Array(16); }), "\xdc\x00\x10"s);
  EXPECT_EQ(of([](auto& out) { out.Array(70000); }), "\xdd\x00\x01\x11\x70"s);
}

TEST(EventBatch, AsVllmHasThem) {
  const std::vector<BlockEvent> events = {
      {BlockEvent::Kind::kCleared},
      {BlockEvent::Kind::kRemoved, {1, 200}},
      {BlockEvent::Kind::kStored, {5}, 7, {3, 300}},
      {BlockEvent::Kind::kStored, {6}, std::nullopt, {1, 2}},
  };
  EXPECT_EQ(EncodeBatch(1.5, events, 2),
            "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x94"s + "\x91\xb0"s + "AllBlocksCleared" + "\x93\xac"s +
                "BlockRemoved" + "\x92\x01\xcc\xc8\xa3"s + "GPU" + "\x98\xab"s + "BlockStored" +
                "\x91\x05\x07\x92\x03\xcd\x01\x2c\x02\xc0\xa3"s + "GPU" + "\xc0\x98\xab"s +
                "BlockStored" + "\x91\x06\xc0\x92\x01\x02\x02\xc0\xa3"s + "GPU" + "\xc0\x00"s);
}

TEST(Replay, KeepsTheLastAndSaysFromWhere) {
  ReplayBuffer buffer(3, 100);
  const auto from = [&](uint64_t first) {
    std::string text;
    buffer.Visit(first, [&](uint64_t number, const EventPayload& payload) {
      text += std::to_string(number) + *payload + " ";
    });
    return text;
  };
  EXPECT_EQ(from(0), "");
  for (const char* payload : {"a", "b", "c", "d"}) {
    buffer.Add(std::make_shared<const std::string>(payload));
  }
  EXPECT_EQ(from(0), "1b 2c 3d ");
  EXPECT_EQ(from(2), "2c 3d ");
  EXPECT_EQ(from(4), "");
  EXPECT_EQ(from(UINT64_MAX), "");
  EXPECT_EQ(buffer.Add(std::make_shared<const std::string>(99, 'x')), 4u);
  EXPECT_EQ(buffer.size(), 2u) << "bytes";
  EXPECT_EQ(buffer.bytes(), 100u);
  buffer.Add(std::make_shared<const std::string>(200, 'x'));
  EXPECT_EQ(buffer.size(), 1u) << "the last one stays, whatever its size";
}

TEST(Replay, AnythingElseIsNoRequest) {
  using Frames = std::vector<std::string>;
  EXPECT_EQ(ParseReplayRequest(Frames{"id", "", "\0\0\0\0\0\0\1\2"s}), 258u);
  EXPECT_EQ(ParseReplayRequest(Frames{"", "", FormatNumber(kReplayEnd)}), kReplayEnd);
  EXPECT_FALSE(ParseReplayRequest(Frames{}));
  EXPECT_FALSE(ParseReplayRequest(Frames{"id", FormatNumber(1)}));
  EXPECT_FALSE(ParseReplayRequest(Frames{"id", "x", FormatNumber(1)}));
  EXPECT_FALSE(ParseReplayRequest(Frames{"id", "", "1234567"}));
  EXPECT_FALSE(ParseReplayRequest(Frames{"id", "", "123456789"}));
  EXPECT_FALSE(ParseReplayRequest(Frames{"id", "", FormatNumber(1), ""}));
}

TEST(EventAddress, HostAndPort) {
  for (const char* text : {"tcp://127.0.0.1:5557", "tcp://[::1]:5557"}) {
    const auto address = EventAddress::Parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_TRUE(address->loopback);
    EXPECT_EQ(address->text, text);
  }
  for (const char* text : {"tcp://*:5557", "tcp://0.0.0.0:1", "tcp://eth0:5557"}) {
    const auto address = EventAddress::Parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_FALSE(address->loopback);
  }
  for (const char* text :
       {"", "tcp://", "tcp://:1", "tcp://*", "tcp://*:", "tcp://*:0", "tcp://*:65536", "tcp://*:1x",
        "ipc:///tmp/x", "127.0.0.1:5557", "tcp://a b:1", "tcp://eth0;1.2.3.4:5"}) {
    EXPECT_FALSE(EventAddress::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace reprise
