// SPDX-License-Identifier: Apache-2.0
// The parser of requests: what it takes, whatever the cuts, and with which status it refuses the
// rest. A table; the fuzz target http_head_fuzz looks for what the table forgot.
#include "http/request_parser.h"

#include <gtest/gtest.h>

namespace reprise::http {
namespace {

using State = RequestParser::State;

struct Parsed {
  int status = 0;  // of a refusal; 0: taken; -1: more bytes wanted
  Request request;
  size_t left = 0;
};

// Feeds `text` in pieces of `piece` bytes.
Parsed Parse(std::string_view text, size_t piece, const Limits& limits = Limits()) {
  RequestParser parser(limits);
  std::string buffer;
  size_t at = 0;
  Parsed parsed;
  while (parser.state() == State::kHead || parser.state() == State::kBody) {
    const State before = parser.state();
    const size_t used = buffer.empty() ? 0 : parser.Feed(buffer);
    buffer.erase(0, used);
    if (parser.state() != before || used > 0) continue;
    if (at == text.size()) break;
    buffer += text.substr(at, piece);
    at += std::min(piece, text.size() - at);
  }
  parsed.left = buffer.size() + text.size() - at;
  if (parser.state() == State::kFailed) {
    parsed.status = parser.status();
    EXPECT_FALSE(parser.problem().empty());
  } else if (parser.state() == State::kDone) {
    parsed.request = parser.Take();
  } else {
    parsed.status = -1;
  }
  return parsed;
}

TEST(RequestParserTest, TakesRequestsHoweverTheyAreCut) {
  const std::string get = "GET /v1/models?a=1&b=x%20y HTTP/1.1\r\nHost: h\r\nX-Key: v\r\n\r\n";
  const std::string post =
      "POST /v1/chat HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello world";
  const std::string chunked =
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
    Parsed parsed = Parse(get, piece);
    EXPECT_EQ(parsed.status, 0);
    EXPECT_EQ(parsed.request.path, "/v1/models");
    EXPECT_EQ(parsed.request.QueryValue("b"), "x y");
    EXPECT_EQ(parsed.request.Header("x-key"), "v");
    parsed = Parse(post, piece);
    EXPECT_EQ(parsed.request.body, "hello world");
    parsed = Parse(chunked, piece);
    EXPECT_EQ(parsed.status, 0) << piece;
    EXPECT_EQ(parsed.request.body, "hello world");
    EXPECT_EQ(parsed.left, 0u);
  }
}

TEST(RequestParserTest, TakesTheFormThatProxiesAreSent) {
  const struct {
    const char* target;
    const char* path;
    const char* query;
  } cases[] = {
      {"http://h:1/a/b?c", "/a/b", "c"}, {"HTTPS://h", "/", ""}, {"http://h?x=/", "", "x=/"}};
  for (const auto& c : cases) {
    const std::string text = std::string("GET ") + c.target + " HTTP/1.1\r\nHost: h\r\n\r\n";
    const Parsed parsed = Parse(text, text.size());
    EXPECT_EQ(parsed.status, 0) << c.target;
    EXPECT_EQ(parsed.request.path, c.path);
    EXPECT_EQ(parsed.request.query, c.query);
  }
}

TEST(RequestParserTest, ATrailerAddsNoHeaders) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "2\r\n{}\r\n0\r\nAuthorization: Bearer k\r\n\r\n";
  const Parsed parsed = Parse(text, 5);
  EXPECT_EQ(parsed.status, 0);
  EXPECT_EQ(parsed.request.body, "{}");
  EXPECT_EQ(parsed.request.headers.size(), 2u);
}

TEST(RequestParserTest, LeavesTheNextRequestAlone) {
  const std::string two = "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n";
  const Parsed parsed = Parse(two, two.size());
  EXPECT_EQ(parsed.request.path, "/a");
  EXPECT_EQ(parsed.left, two.size() / 2);
}

TEST(RequestParserTest, Refusals) {
  const std::string host = "Host: h\r\n";
  const std::string chunked = "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n";
  const struct {
    std::string text;
    int status;
  } cases[] = {
      {"\r\n\r\n\r\nnonsense\r\n\r\n", 400},
      {"GET\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"GET / HTTQ/1.1\r\n\r\n", 400},
      {"G\x01T / HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA: \x01\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400},
      {"GET / HTTP/1.1\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "X: a\r\n\tb\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "X:\r\n Content-Length: 3\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {chunked + "5;" + std::string(20000, 'a') + "\r\n12345\r\n0\r\n\r\n", 431},
      {chunked + "2\r\n{}\r\n" + std::string(20000, '0') + "\r\n\r\n", 431},
      {chunked + "2\r\n{}\r\n0\r\nA: " + std::string(20000, 'a') + "\r\n\r\n", 431},
      {chunked + "zz\r\n", 400},
      {chunked + "-1\r\n", 400},
      {chunked + "fffffffffffffffff\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 107374182400\r\n\r\n", 413},
      {"GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n\r\n", 431},
      {"GET / HTTP/1.1\r\nA: " + std::string(20000, 'a') + "\r\n\r\n", 431},
      {"GET / HTTP/1.1\r\n" + std::string(20000, 'a'), 431},
  };
  for (const auto& c : cases) {
    const std::string name = c.text.substr(0, 60);
    EXPECT_EQ(Parse(c.text, c.text.size()).status, c.status) << name;
    EXPECT_EQ(Parse(c.text, 1).status, c.status) << "byte by byte: " << name;
  }
}

TEST(RequestParserTest, CountsHeadersAndChunks) {
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 101; ++i) many += "A" + std::to_string(i) + ": b\r\n";
  EXPECT_EQ(Parse(many + "\r\n", 4096).status, 431);
  Limits limits;
  limits.body_bytes_max = 10;
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(Parse(head + "8\r\n12345678\r\n2\r\n90\r\n0\r\n\r\n", 3, limits).status, 0);
  EXPECT_EQ(Parse(head + "8\r\n12345678\r\n3\r\n901\r\n0\r\n\r\n", 3, limits).status, 413);
}

TEST(MessageTest, PercentDecoding) {
  std::string out;
  EXPECT_TRUE(PercentDecode("a%2Fb%00c", &out));
  EXPECT_EQ(out, std::string("a/b\0c", 5));
  EXPECT_FALSE(PercentDecode("a%2", &out));
  EXPECT_FALSE(PercentDecode("%zz", &out));
}

}  // namespace
}  // namespace reprise::http
