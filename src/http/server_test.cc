// SPDX-License-Identifier: Apache-2.0
// The server on real sockets: answers, streams, limits, deadlines, disconnects, draining. Clients
// here are plain sockets, so that every byte and every pause is the test's.
#include "http/server.h"

#include <zlib.h>

#include <atomic>
#include <thread>

#include "http/server_fixture.h"

namespace reprise::http {
namespace {

using namespace std::chrono_literals;

std::string Gunzip(const std::string& packed) {
  z_stream stream = {};
  EXPECT_EQ(::inflateInit2(&stream, 15 + 16), Z_OK);
  std::string bytes(size_t{1} << 20, 0);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(::inflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  ::inflateEnd(&stream);
  return bytes;
}

TEST_F(ServerTest, LargeAnswersAreCompressedForThoseWhoTakeIt) {
  Start();
  std::string body = "[0";
  for (int i = 1; i < 20'000; ++i) body += "," + std::to_string(i);
  body += "]";
  Client client = Connect();
  const auto ask = [&](const std::string& accepted, const std::string& text) {
    client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + accepted +
                "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text);
    return client.ReadAnswer();
  };
  for (const char* accepted : {"gzip", "br;q=1.0, gzip;q=0.8, *;q=0.1", "deflate,GZIP"}) {
    const std::string packed = ask("Accept-Encoding: " + std::string(accepted) + "\r\n", body);
    EXPECT_NE(packed.find("Content-Encoding: gzip\r\n"), std::string::npos) << accepted;
    EXPECT_NE(packed.find("Vary: Accept-Encoding\r\n"), std::string::npos);
    const std::string bytes = packed.substr(packed.find("\r\n\r\n") + 4);
    EXPECT_LT(bytes.size(), body.size() / 2);
    EXPECT_EQ(Gunzip(bytes), body);
  }
  for (const char* accepted : {"", "Accept-Encoding: gzip;q=0\r\n", "Accept-Encoding: br\r\n"}) {
    const std::string plain = ask(accepted, body);
    EXPECT_EQ(plain.find("Content-Encoding"), std::string::npos) << accepted;
    EXPECT_EQ(plain.substr(plain.find("\r\n\r\n") + 4), body);
    EXPECT_NE(plain.find("Vary: Accept-Encoding\r\n"), std::string::npos);
  }
  const std::string small = ask("Accept-Encoding: gzip\r\n", body.substr(0, 1000));
  EXPECT_EQ(small.find("Content-Encoding"), std::string::npos);
}

TEST_F(ServerTest, KeepsAliveAndPipelines) {
  Start();
  Client client = Connect();
  client.Send("GET /hello HTTP/1.1\r\nHost: h\r\nx-request-id: my-id\r\n\r\n");
  const std::string first = client.ReadAnswer();
  EXPECT_EQ(StatusOf(first), 200);
  EXPECT_NE(first.find("x-request-id: my-id\r\n"), std::string::npos);
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
      "GET /hello HTTP/1.1\r\nHost: h\r\n\r\nGET /nope HTTP/1.1\r\nHost: h\r\n\r\n"
      "PUT /hello HTTP/1.1\r\nHost: h\r\n\r\nHEAD /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(client.ReadAnswer().ends_with("abc"));
  EXPECT_TRUE(client.ReadAnswer().ends_with("hello"));
  EXPECT_EQ(StatusOf(client.ReadAnswer()), 404);
  const std::string wrong_method = client.ReadAnswer();
  EXPECT_EQ(StatusOf(wrong_method), 405);
  EXPECT_NE(wrong_method.find("Allow: GET"), std::string::npos);
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n").ends_with("\r\n\r\n"));
  ExpectIdle();
}

TEST_F(ServerTest, ClosesForThoseWhoAskAndForHttp10) {
  Start();
  Client client = Connect();
  client.Send("GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.ReadAll().ends_with("hello"));
  EXPECT_TRUE(client.Closed());
  Client old = Connect();
  old.Send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.ReadAll().ends_with("hello"));
}

// A client's own id is repeated if it is a short name; a longer one gets an id of the server's.
TEST_F(ServerTest, RequestIdsAreShortNames) {
  Start();
  Client client = Connect();
  for (const auto& [id, repeated] :
       {std::pair(std::string(128, 'a'), true), {std::string(129, 'a'), false}, {"a b", false}}) {
    client.Send("GET /hello HTTP/1.1\r\nHost: h\r\nx-request-id: " + id + "\r\n\r\n");
    const std::string answer = client.ReadAnswer();
    EXPECT_EQ(answer.find("x-request-id: " + id + "\r\n") != std::string::npos, repeated) << answer;
    EXPECT_EQ(answer.find("x-request-id: req_") != std::string::npos, !repeated) << answer;
  }
}

// HTTP/1.0 does not have chunks: the end of the connection is the end of the stream.
TEST_F(ServerTest, StreamsForHttp10EndWithTheConnection) {
  Start();
  Client client = Connect();
  client.Send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const ExchangePtr exchange = Held();
  ASSERT_NE(exchange, nullptr);
  exchange->Send("data: two\n\n");
  exchange->End();
  const std::string answer = client.ReadAll();
  EXPECT_EQ(answer.find("Transfer-Encoding"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\ndata: one\n\ndata: two\n\n")) << answer;
  EXPECT_TRUE(client.Closed());
}

// A connection serves one request after the other: what belongs to one ends with it.
TEST_F(ServerTest, WhatBelongsToARequestEndsWithIt) {
  options_.share_of = [](const Request& request) { return std::string(request.Header("key")); };
  router_.Add("POST", "/share", RunOn::kWorker, [](const ExchangePtr& exchange) {
    Response response;
    response.body = exchange->account()->share();
    exchange->Respond(std::move(response));
  });
  Start();
  Client client = Connect();
  for (const char* key : {"one", "two"}) {
    client.Send("POST /share HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nkey: " + std::string(key) +
                "\r\n\r\nx");
    EXPECT_TRUE(client.ReadAnswer().ends_with(key)) << "charged to the one who asks";
  }
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  const ExchangePtr first = Held();
  ASSERT_NE(first, nullptr);
  first->End();
  client.ReadUntil("\r\n0\r\n\r\n");
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  for (ExchangePtr second = first; second == first; second = Held()) std::this_thread::yield();
  first->Send("data: of the first\n\n");
  first->End();
  Held()->Send("data: of the second\n\n");
  Held()->End();
  const std::string answers = client.ReadUntil("second\n\n\r\n0\r\n\r\n");
  EXPECT_TRUE(answers.ends_with("data: of the second\n\n\r\n0\r\n\r\n")) << answers;
  EXPECT_EQ(answers.find("of the first"), std::string::npos) << answers;
  Drop();
  ExpectIdle();
}

TEST_F(ServerTest, ContinuesAfterExpect) {
  Start();
  Client client = Connect();
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  client.ReadUntil("100 Continue\r\n\r\n");
  client.Send("ok");
  EXPECT_NE(client.ReadUntil("\r\n\r\nok").find("200 OK"), std::string::npos);
}

TEST_F(ServerTest, APathThatIsNotThereIsNamedWithOneThatIs) {
  Start();
  Client client = Connect();
  for (const auto& [path, message] : {std::pair("/nope", "there is nothing at /nope\""),
                                      {"/v1/echo", "nothing at /v1/echo; did you mean /echo?\""},
                                      {"/o", "nothing at /o\""}}) {
    client.Send("GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n\r\n");
    const std::string answer = client.ReadAnswer();
    EXPECT_NE(answer.find(message), std::string::npos) << answer;
  }
}

TEST_F(ServerTest, AnswersHaveADate) {
  EXPECT_EQ(FormatDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  Start();
  Client client = Connect();
  client.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string answer = client.ReadAnswer();
  EXPECT_NE(answer.find("\r\nDate: "), std::string::npos) << answer;
  EXPECT_NE(answer.find(" GMT\r\n"), std::string::npos) << answer;
}

TEST_F(ServerTest, ASlashAtTheEndOfAPathIsPassedOver) {
  Start();
  Client client = Connect();
  client.Send("GET /hello/ HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(client.ReadAnswer().find("200 OK"), std::string::npos);
  client.Send("GET /hello// HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(client.ReadAnswer().find("404"), std::string::npos);
}

TEST_F(ServerTest, PagesOfNamedOriginsMayAsk) {
  options_.cors_origins = {"https://a.example"};
  Start();
  Client client = Connect();
  const auto ask = [&](const std::string& line, const std::string& origin,
                       const std::string& more = "") {
    client.Send(line + " HTTP/1.1\r\nHost: h\r\nOrigin: " + origin + "\r\n" + more + "\r\n");
    return client.ReadAnswer();
  };
  const std::string preflight =
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n";
  const std::string asked = ask("OPTIONS /echo", "https://a.example", preflight);
  EXPECT_EQ(StatusOf(asked), 200);
  EXPECT_NE(asked.find("Access-Control-Allow-Origin: https://a.example\r\n"), std::string::npos);
  EXPECT_NE(asked.find("Access-Control-Allow-Headers: authorization\r\n"), std::string::npos);
  const std::string allowed = ask("GET /hello", "https://a.example");
  EXPECT_NE(allowed.find("Access-Control-Allow-Origin: https://a.example\r\n"), std::string::npos);
  for (const char* origin :
       {"https://b.example", "http://a.example", "https://a.example.b", "null"}) {
    const std::string other = ask("GET /hello", origin);
    EXPECT_EQ(other.find("Access-Control-Allow"), std::string::npos) << origin;
    EXPECT_NE(other.find("Vary: Origin\r\n"), std::string::npos);
    EXPECT_EQ(StatusOf(ask("OPTIONS /echo", origin, preflight)), 405) << origin;
  }
}

TEST_F(ServerTest, AnUnansweredRequestGets500) {
  Start();
  Client client = Connect();
  client.Send("GET /drop HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(StatusOf(client.ReadAnswer()), 500);
  ExpectIdle();
}

TEST_F(ServerTest, StreamsInChunks) {
  Start();
  Client client = Connect();
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  const ExchangePtr exchange = Held();
  ASSERT_NE(exchange, nullptr);
  const std::string begin = client.ReadUntil("data: one\n\n\r\n");
  EXPECT_NE(begin.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_NE(begin.find("Transfer-Encoding: chunked"), std::string::npos);
  exchange->Send("data: two\n\n");
  exchange->End();
  exchange->Send("too late");
  EXPECT_TRUE(client.ReadUntil("0\r\n\r\n").ends_with("b\r\ndata: two\n\n\r\n0\r\n\r\n"));
  Drop();
  client.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");  // the connection lives on
  EXPECT_NE(client.ReadUntil("hello").find("200 OK"), std::string::npos);
  ExpectIdle();
}

TEST_F(ServerTest, HeadOfAStreamIsItsHead) {
  Start();
  Client client = Connect();
  client.Send("HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  const ExchangePtr exchange = Held();
  ASSERT_NE(exchange, nullptr);
  EXPECT_TRUE(gone_.Wait());  // the producer need not go on
  exchange->Send("data: two\n\n");
  client.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string answers = client.ReadUntil("hello");
  EXPECT_NE(answers.find("text/event-stream"), std::string::npos);
  EXPECT_EQ(answers.find("data:"), std::string::npos);
  Drop();
  ExpectIdle();
}

TEST_F(ServerTest, PingsSilentStreams) {
  options_.ping_interval = 30ms;
  Start();
  Client client = Connect();
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(client.ReadUntil(": ping\n\n").find(": ping"), std::string::npos);
}

// Comments are for events: other streams (JSON lines) would not be read with them.
TEST_F(ServerTest, PingsNoOtherStreams) {
  options_.ping_interval = 20ms;
  ExchangePtr lines;
  Signal begun;
  router_.Add("GET", "/lines", RunOn::kWorker, [&](const ExchangePtr& exchange) {
    exchange->StartStream({{"Content-Type", "application/x-ndjson"}});
    lines = exchange;
    begun.Raise();
  });
  Start();
  Client silent = Connect();
  silent.Send("GET /lines HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(begun.Wait());
  Client events = Connect();
  events.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  // Both are looked at together: two pings there are time enough for one here.
  const std::string two = ": ping\n\n\r\n8\r\n: ping\n\n";
  EXPECT_NE(events.ReadUntil(two).find(two), std::string::npos);
  lines->Send("{}\n");
  lines->End();
  const std::string answer = silent.ReadUntil("\r\n0\r\n\r\n");
  EXPECT_TRUE(answer.ends_with("\r\n\r\n3\r\n{}\n\r\n0\r\n\r\n")) << answer;
  lines = nullptr;
}

// Reading goes on beside an answer, to notice a client that leaves; but not without end.
TEST_F(ServerTest, WhatComesTooEarlyIsReadInPartOnly) {
  Start();
  Client client = Connect();
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_NE(Held(), nullptr);
  EXPECT_TRUE(client.SendUntilFull(size_t{64} << 20));
}

// A refused client that neither sends nor leaves holds its connection for a moment only.
TEST_F(ServerTest, ARefusedClientIsNotWaitedForLong) {
  options_.linger_max = 50ms;
  Start();
  Client client = Connect();
  client.Send("nonsense\r\n\r\n");
  EXPECT_EQ(StatusOf(client.ReadAnswer()), 400);
  for (int i = 0; i < 1000 && server_->stats().connections > 0; ++i) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(server_->stats().connections, 0u);
}

TEST(RouterTest, WhatIsBelowAPathIsNotThePath) {
  Router router;
  router.Add("GET", "/things/*", RunOn::kServer, nullptr);
  EXPECT_NE(router.Find("GET", "/things/a").route, nullptr);
  EXPECT_NE(router.Find("GET", "/things/a/b").route, nullptr);
  EXPECT_EQ(router.Find("GET", "/things/").route, nullptr);
  EXPECT_EQ(router.Find("GET", "/things").route, nullptr);
  EXPECT_EQ(router.Find("GET", "/thingsa").route, nullptr);
}

TEST_F(ServerTest, HearsOfDisconnects) {
  Start();
  Client client = Connect();
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  client.ReadUntil("one");
  client.Close();
  EXPECT_TRUE(gone_.Wait());
  ExpectIdle();
  EXPECT_EQ(server_->stats().disconnects, 1u);
}

TEST_F(ServerTest, AHalfClosedClientIsGone) {
  Start();
  Client client = Connect();
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  const ExchangePtr exchange = Held();
  EXPECT_FALSE(exchange->abandoned());
  client.HalfClose();
  EXPECT_TRUE(gone_.Wait());
  EXPECT_TRUE(exchange->abandoned());
  ExpectIdle();
}

// Work that would not end by itself, but asks whether anybody waits.
TEST_F(ServerTest, StoppingEndsWorkAndDropsWhatWaits) {
  Signal begun;
  std::atomic<int> ran{0};
  router_.Add("GET", "/work", RunOn::kWorker, [&](const ExchangePtr& exchange) {
    ++ran;
    begun.Raise();
    while (!exchange->abandoned()) std::this_thread::yield();
  });
  options_.worker_count = 1;
  Start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->Send("GET /work HTTP/1.1\r\nHost: h\r\n\r\n");
  }
  ASSERT_TRUE(begun.Wait());
  server_->Stop();
  EXPECT_EQ(ran, 1);
}

TEST_F(ServerTest, NobodyWorksForAClientThatLeft) {
  Signal begun;
  Signal finish;
  std::atomic<int> ran{0};
  router_.Add("GET", "/work", RunOn::kWorker, [&](const ExchangePtr& exchange) {
    ++ran;
    begun.Raise();
    EXPECT_TRUE(finish.Wait());
    exchange->Respond({});
  });
  options_.worker_count = 1;
  Start();
  Client first = Connect();
  first.Send("GET /work HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(begun.Wait());
  {
    Client second = Connect();
    second.Send("GET /work HTTP/1.1\r\nHost: h\r\n\r\n");
    while (server_->stats().requests < 2) std::this_thread::yield();
  }
  while (server_->stats().disconnects < 1) std::this_thread::yield();
  finish.Raise();
  EXPECT_EQ(StatusOf(first.ReadAnswer()), 200);
  ExpectIdle();
  server_->Stop();
  EXPECT_EQ(ran, 1);
}

TEST_F(ServerTest, OnCloseAfterTheFactIsCalledAtOnce) {
  Start();
  Client client = Connect();
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  const ExchangePtr exchange = Held();
  client.Close();
  ASSERT_TRUE(gone_.Wait());
  Signal again;
  exchange->OnClose([&again] { again.Raise(); });
  EXPECT_TRUE(again.Wait());
}

TEST_F(ServerTest, RefusesOverTheConnectionLimitAtOnce) {
  options_.connection_count_max = 3;
  Start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    clients.back()->ReadUntil("data: one");
  }
  const auto begin = std::chrono::steady_clock::now();
  Client fourth = Connect();
  EXPECT_EQ(StatusOf(fourth.ReadAnswer()), 503);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_TRUE(fourth.Closed());
  clients.pop_back();
  for (int i = 0; i < 100; ++i) {  // a place becomes free
    Client next = Connect();
    next.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    if (StatusOf(next.ReadAnswer()) == 200) return;
    std::this_thread::sleep_for(10ms);
  }
  FAIL() << "no place became free";
}

// One client's idle connections, however many, keep nobody out.
TEST_F(ServerTest, IdleConnectionsGiveWay) {
  options_.connection_count_max = 8;
  options_.address_count_max = 7;
  Start();
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(std::make_unique<Client>(server_->port()));
    idle.back()->Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(StatusOf(idle.back()->ReadAnswer()), 200) << i;
  }
  EXPECT_EQ(server_->stats().connections_evicted, 13u) << "an address has its share";
  EXPECT_TRUE(idle.front()->Closed()) << "the one that waited longest";
  Client other(server_->port(), 2);
  other.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(StatusOf(other.ReadAnswer()), 200);
  Client another(server_->port(), 3);
  another.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(StatusOf(another.ReadAnswer()), 200);
  other.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(StatusOf(other.ReadAnswer()), 200) << "the address that has the most gives way";
  EXPECT_EQ(server_->stats().connections_evicted, 14u);
  EXPECT_EQ(server_->stats().connections_refused, 0u);
}

// Nor do connections that are busy for ever: the last places are for other addresses.
TEST_F(ServerTest, OneAddressHasAShare) {
  options_.connection_count_max = 5;
  options_.address_count_max = 3;
  Start();
  std::vector<std::unique_ptr<Client>> busy;
  for (int i = 0; i < 3; ++i) {
    busy.push_back(std::make_unique<Client>(server_->port()));
    busy.back()->Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    busy.back()->ReadUntil("data: one");
  }
  EXPECT_EQ(StatusOf(Connect().ReadAnswer()), 503);
  Client other(server_->port(), 2);
  other.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(StatusOf(other.ReadAnswer()), 200);
}

// What an exchange keeps goes when its answer is complete, or its client has left.
TEST_F(ServerTest, TokensLiveAsLongAsTheAnswer) {
  std::weak_ptr<int> token;
  std::atomic<bool> set{false};
  ExchangePtr open;
  router_.Add("GET", "/keep", RunOn::kWorker, [&](const ExchangePtr& exchange) {
    auto kept = std::make_shared<int>(1);
    token = kept;
    exchange->Keep(std::move(kept));
    exchange->StartStream({});
    open = exchange;
    set = true;
  });
  Start();
  Client client = Connect();
  client.Send("GET /keep HTTP/1.1\r\nHost: h\r\n\r\n");
  while (!set) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(token.expired());
  open->End();
  open.reset();
  while (!token.expired()) std::this_thread::sleep_for(1ms);
}

TEST_F(ServerTest, RefusesBodiesItHasNoRoomFor) {
  options_.limits.body_bytes_max = 100;
  options_.ledger = std::make_shared<Ledger>(Ledger::Limits{150, 150});
  Start();
  Client large = Connect();
  large.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n");
  EXPECT_EQ(StatusOf(large.ReadAnswer()), 413);
  Client one = Connect();
  one.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n" + std::string(99, 'x'));
  while (server_->stats().bodies_bytes < 99) std::this_thread::sleep_for(1ms);
  Client two = Connect();
  two.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 60\r\n\r\n");
  EXPECT_EQ(StatusOf(two.ReadAnswer()), 503);
  Client three = Connect();
  three.Send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3c\r\n" +
             std::string(60, 'x'));
  EXPECT_EQ(StatusOf(three.ReadAnswer()), 503);
  one.Send("x");
  EXPECT_EQ(StatusOf(one.ReadAnswer()), 200);
  ExpectIdle();
}

TEST_F(ServerTest, WhatIsAnnouncedAndNotSentTakesNoRoom) {
  const size_t bytes = options_.limits.body_bytes_max;
  options_.ledger = std::make_shared<Ledger>(Ledger::Limits{bytes, bytes});
  Start();
  std::vector<std::unique_ptr<Client>> clients;
  for (const char* length : {"Content-Length: 33554432", "Transfer-Encoding: chunked"}) {
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<Client>(server_->port()));
      clients.back()->Send(std::string("POST /echo HTTP/1.1\r\nHost: h\r\n") + length +
                           "\r\n\r\n1");
    }
  }
  Client client = Connect();
  client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_TRUE(client.ReadAnswer().ends_with("abc"));
  EXPECT_LT(server_->stats().bodies_bytes, 100u);
}

TEST_F(ServerTest, ChunkHeadsWithoutEndAreRefused) {
  Start();
  Client client = Connect();
  client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;");
  client.Send(std::string(40000, 'a'));
  EXPECT_EQ(StatusOf(client.ReadAnswer()), 431);
}

TEST_F(ServerTest, ALargeBodyThatNobodyWantsIsNotRead) {
  options_.admit = [](const Request& request, const Router::Route&) -> std::optional<Response> {
    if (request.Header("key") == "right") return std::nullopt;
    Response response;
    response.status = 401;
    return response;
  };
  Start();
  const struct {
    const char* head;
    int status;
  } cases[] = {
      {"POST /echo HTTP/1.1\r\nHost: h\r\nx-request-id: i\r\nContent-Length: 1000000", 401},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nx-request-id: i\r\nTransfer-Encoding: chunked", 401},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nx-request-id: i\r\nContent-Length: 9\r\nExpect: "
       "100-continue",
       401},
      {"POST /nope HTTP/1.1\r\nHost: h\r\nx-request-id: i\r\nContent-Length: 1000000", 404},
      {"POST /hello HTTP/1.1\r\nHost: h\r\nx-request-id: i\r\nContent-Length: 1000000", 405},
  };
  for (const auto& c : cases) {
    Client client = Connect();
    client.Send(std::string(c.head) + "\r\n\r\n");
    const std::string answer = client.ReadAnswer();
    EXPECT_EQ(StatusOf(answer), c.status) << c.head;
    EXPECT_NE(answer.find("x-request-id: i\r\n"), std::string::npos) << answer;
    EXPECT_TRUE(client.Closed());
  }
  // A small one is, so that the connection lives on.
  Client client = Connect();
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
      "POST /echo HTTP/1.1\r\nHost: h\r\nkey: right\r\nContent-Length: 3\r\n\r\ndef");
  EXPECT_EQ(StatusOf(client.ReadAnswer()), 401);
  EXPECT_TRUE(client.ReadAnswer().ends_with("def"));
  ExpectIdle();
}

TEST_F(ServerTest, ABodyMustGoOn) {
  options_.body_max = 200ms;
  options_.body_bytes_per_second_min = 200;
  Start();
  Client steady = Connect();
  steady.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
  Client slow = Connect();  // sent nearly all at once, and rests on it
  slow.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" +
            std::string(60000, 'x'));
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(50ms);
    steady.Send(std::string(100, 'x'));
  }
  EXPECT_EQ(StatusOf(steady.ReadAnswer()), 200);
  EXPECT_EQ(StatusOf(slow.ReadAnswer()), 408);
  ExpectIdle();
}

TEST_F(ServerTest, CutsOffSlowHeadsAndBodies) {
  options_.head_max = 100ms;
  options_.body_max = 100ms;
  options_.idle_max = 100ms;
  Start();
  Client head = Connect();
  head.Send("GET /hello HT");
  Client body = Connect();
  body.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
  Client silent = Connect();
  Client idle = Connect();
  idle.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(StatusOf(idle.ReadAnswer()), 200);
  EXPECT_EQ(StatusOf(head.ReadAnswer()), 408);
  EXPECT_EQ(StatusOf(body.ReadAnswer()), 408);
  EXPECT_TRUE(silent.Closed());
  EXPECT_TRUE(idle.Closed());
  ExpectIdle();
}

TEST_F(ServerTest, CutsOffAHeadThatCameTooEarlyAndNotWhole) {
  options_.head_max = 100ms;
  Start();
  Client client = Connect();
  client.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\nGET /hel");
  EXPECT_EQ(StatusOf(client.ReadAnswer()), 200);
  EXPECT_EQ(StatusOf(client.ReadAnswer()), 408);
  ExpectIdle();
}

TEST_F(ServerTest, CutsOffClientsThatTakeNothing) {
  options_.stall_max = 100ms;
  options_.body_bytes_per_second_min = size_t{1} << 30;
  Start();
  Client client = Connect();
  client.ShrinkWindow();
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  const ExchangePtr exchange = Held();
  for (int i = 0; i < 64; ++i) exchange->Send(std::string(1 << 20, 'x'));
  EXPECT_TRUE(gone_.Wait());
  ExpectIdle();
}

TEST_F(ServerTest, DrainsWithoutCuttingStreams) {
  Start();
  Client client = Connect();
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  const ExchangePtr exchange = Held();
  client.ReadUntil("one");
  EXPECT_FALSE(server_->Drain(20ms));
  Client late = Connect();
  late.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(StatusOf(late.ReadAnswer()), 503);
  Client probe = Connect();
  probe.Send(
      "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");  // what runs on the server thread still does
  EXPECT_EQ(StatusOf(probe.ReadAnswer()), 200);
  exchange->Send("data: two\n\n");
  exchange->End();
  EXPECT_TRUE(server_->Drain(5s));
  EXPECT_NE(client.ReadUntil("0\r\n\r\n").find("two"), std::string::npos);
}

TEST_F(ServerTest, ManyClientsAtOnceLeaveNothingBehind) {
  Start();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        Client client(server_->port());
        const std::string body = "body " + std::to_string(t) + " " + std::to_string(i);
        client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n\r\n" + body);
        if (i % 3 == 0) continue;  // leaves without reading
        if (client.ReadAnswer().ends_with(body)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * 33);
  ExpectIdle();
}

}  // namespace
}  // namespace reprise::http
