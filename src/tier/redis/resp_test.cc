// SPDX-License-Identifier: Apache-2.0
// Proves that answers of Redis are read as they were meant however they are cut into pieces, and
// that what is none, or more than was asked for, is refused.
#include "tier/redis/resp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace reprise {
namespace {

class Pieces : public ByteSource {
 public:
  Pieces(std::string bytes, size_t piece) : bytes_(std::move(bytes)), piece_(piece) {}
  Result<size_t> ReadSome(std::span<std::byte> into) override {
    const size_t count = std::min({into.size(), bytes_.size() - at_, piece_});
    if (count == 0) return Internal("the end");
    std::memcpy(into.data(), bytes_.data() + at_, count);
    at_ += count;
    return count;
  }

 private:
  const std::string bytes_;
  const size_t piece_;
  size_t at_ = 0;
};

Result<RespReply> ReadAll(const std::string& bytes, size_t piece = 1, size_t bytes_max = 1000) {
  Pieces source(bytes, piece);
  return RespReader(&source).Read(bytes_max);
}

TEST(Resp, EveryKindIsReadInPiecesOfAnySize) {
  const std::string all =
      "+OK\r\n-ERR no\r\n:-12\r\n$5\r\na\r\nbc\r\n$-1\r\n$0\r\n\r\n*-1\r\n"
      "*2\r\n$1\r\n0\r\n*2\r\n$2\r\nk1\r\n$2\r\nk2\r\n";
  for (size_t piece = 1; piece <= all.size(); ++piece) {
    Pieces source(all, piece);
    RespReader reader(&source);
    const auto next = [&] { return reader.Read(1000).value(); };
    EXPECT_EQ(next().text, "OK");
    const RespReply error = next();
    EXPECT_TRUE(error.is_error());
    EXPECT_EQ(error.text, "ERR no");
    EXPECT_EQ(next().number, -12);
    EXPECT_EQ(next().text, "a\r\nbc");
    EXPECT_EQ(next().kind, RespKind::kNull);
    const RespReply empty = next();
    EXPECT_EQ(std::pair(empty.kind, empty.text), std::pair(RespKind::kBulk, std::string()));
    EXPECT_EQ(next().kind, RespKind::kNull);
    const RespReply list = next();
    ASSERT_EQ(list.items.size(), 2u);
    EXPECT_EQ(list.items[1].items[1].text, "k2");
    EXPECT_FALSE(reader.Read(1000).ok()) << "there is no more";
  }
}

TEST(Resp, ABulkIsTakenByItsParts) {
  for (size_t piece = 1; piece < 20; ++piece) {
    Pieces source("$6\r\nabcdef\r\n$-1\r\n-WRONGTYPE no\r\n", piece);
    RespReader reader(&source);
    EXPECT_EQ(**reader.BeginBulk(), 6u);
    char bytes[6];
    ASSERT_TRUE(reader.Take(std::as_writable_bytes(std::span(bytes)).first(2)).ok());
    ASSERT_TRUE(reader.Take(std::as_writable_bytes(std::span(bytes)).subspan(2)).ok());
    EXPECT_EQ(std::string(bytes, 6), "abcdef");
    EXPECT_TRUE(reader.EndBulk().ok());
    EXPECT_FALSE(*reader.BeginBulk());
    EXPECT_EQ(reader.BeginBulk().status().code(), StatusCode::kDataLoss) << "somebody else's value";
  }
}

TEST(Resp, WhatIsNoAnswerIsRefused) {
  const std::string bad[] = {
      "HTTP/1.1 400 Bad Request\r\n",
      "\r\n",
      "$\r\n",
      "$x\r\n",
      "$-2\r\n",
      "$99999999999999999999\r\n",
      "$536870913\r\n",
      "*1048577\r\n",
      ":\r\n",
      ":1x\r\n",
      "+OK\n",
      "$3\r\nabcd\r\n",
      "$3\r\nab",
      "*2\r\n:1\r\n",
      "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
      "+" + std::string(kRespLineMax, 'a') + "\r\n",
      "",
  };
  for (const std::string& bytes : bad) EXPECT_FALSE(ReadAll(bytes).ok()) << bytes.substr(0, 40);
}

TEST(Resp, NothingIsTakenBeyondWhatWasAllowed) {
  EXPECT_TRUE(ReadAll("$90\r\n" + std::string(90, 'a') + "\r\n", 7, 95).ok());
  EXPECT_FALSE(ReadAll("$91\r\n" + std::string(91, 'a') + "\r\n", 7, 95).ok());
  EXPECT_FALSE(ReadAll("$500000000\r\n", 7, 95).ok()) << "before memory is taken";
  std::string many = "*1000\r\n";
  for (int i = 0; i < 1000; ++i) many += ":1\r\n";
  EXPECT_TRUE(ReadAll(many, 100, 5000).ok());
  EXPECT_FALSE(ReadAll(many, 100, 3000).ok());
}

TEST(Resp, CommandsAreWrittenAsRedisWantsThem) {
  std::string out;
  const std::string_view words[] = {"SET", "k\r\n", ""};
  AppendCommand(&out, words);
  EXPECT_EQ(out, "*3\r\n$3\r\nSET\r\n$3\r\nk\r\n\r\n$0\r\n\r\n");
}

}  // namespace
}  // namespace reprise
