// SPDX-License-Identifier: Apache-2.0
// Requests that turn out to be heavy, and requests that wait: neither keeps others waiting.
#include <atomic>
#include <thread>

#include "http/server_fixture.h"
#include "http/shares/past_sizes.h"

namespace reprise::http {
namespace {

// A request that turns out to be large is handled once more, where large ones are, with all that a
// request may have; and what it held is given back.
TEST_F(ServerTest, ARequestThatWantsMoreStartsOver) {
  options_.ledger = std::make_shared<Ledger>(Ledger::Limits{1000, 1000});
  options_.account = {.small_work = 10, .work = 100, .bytes = 1000};
  std::vector<uint64_t> left;
  router_.Add("POST", "/work", RunOn::kWorker, [&left](const ExchangePtr& exchange) {
    Account& account = *exchange->account();
    left.push_back(account.work_left());
    EXPECT_EQ(account.bytes(), 5u) << "the body";
    EXPECT_TRUE(account.TakeReading(200, "text").ok());
    if (!account.Spend(50, "work").ok() && account.wants_more()) return exchange->StartOver();
    Response response;
    response.body = exchange->request().body;
    exchange->Respond(std::move(response));
  });
  Start();
  Client client = Connect();
  client.Send("POST /work HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_TRUE(client.ReadAnswer().ends_with("hello"));
  EXPECT_EQ(left, (std::vector<uint64_t>{10, 100}));
  EXPECT_EQ(server_->stats().restarts, 1u);
  ExpectIdle();
}

// Small requests, and what watches the server, do not wait for heavy ones of the same client.
TEST_F(ServerTest, HeavyRequestsKeepNobodyWaiting) {
  options_.account.small_work = 0;
  Signal finish;
  std::atomic<int> begun{0};
  router_.Add("GET", "/heavy", RunOn::kWorker, [&](const ExchangePtr& exchange) {
    if (!exchange->account()->Spend(1, "work").ok()) return exchange->StartOver();
    ++begun;
    EXPECT_TRUE(finish.Wait());
    exchange->Respond({});
  });
  router_.Add("GET", "/numbers", RunOn::kQuick,
              [](const ExchangePtr& exchange) { exchange->Respond({}); });
  options_.worker_count = 4;
  Start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 16; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->Send("GET /heavy HTTP/1.1\r\nHost: h\r\n\r\n");
  }
  const auto all_came = [&] {
    const ServerStats stats = server_->stats();
    return stats.requests_active == 16 && stats.restarts >= uint64_t{PastSizes::kHeavyAt};
  };
  while (!all_came()) std::this_thread::yield();
  Client client = Connect();
  for (const char* path : {"/numbers", "/drop", "/hello"}) {
    client.Send(std::string("GET ") + path + " HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_NE(StatusOf(client.ReadAnswer()), 0) << path;
  }
  EXPECT_LE(begun, 1) << "of one address";
  finish.Raise();
  for (const auto& each : clients) EXPECT_EQ(StatusOf(each->ReadAnswer()), 200);
}

// Whoever sends heavy requests and nothing else stops trying them on a small one's thread; a few
// small ones, and these are small again.
TEST_F(ServerTest, WhoSendsHeavyRequestsBeginsThemAsSuch) {
  options_.account.small_work = 1;
  std::atomic<bool> closed{false};
  Signal open;
  router_.Add("GET", "/any", RunOn::kWorker, [&](const ExchangePtr& exchange) {
    const bool heavy = exchange->request().query == "heavy";
    if (!exchange->account()->Spend(heavy ? 2 : 1, "work").ok()) return exchange->StartOver();
    if (heavy && closed) (void)open.Wait();
    exchange->Respond({});
  });
  options_.worker_count = 4;
  Start();
  Client client = Connect();
  const auto ask = [&](const char* what) {
    client.Send(std::string("GET /any?") + what + " HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(StatusOf(client.ReadAnswer()), 200);
  };
  for (int i = 0; i < 40; ++i) ask("heavy");
  EXPECT_EQ(server_->stats().restarts, uint64_t{PastSizes::kHeavyAt});
  for (int i = 0; i < 6; ++i) ask("small");
  closed = true;
  Client busy = Connect();
  busy.Send("GET /any?heavy HTTP/1.1\r\nHost: h\r\n\r\n");
  for (int i = 0; i < 3; ++i) ask("small");  // do not wait for it
  open.Raise();
  EXPECT_EQ(StatusOf(busy.ReadAnswer()), 200);
}

// A request that waits for something takes no thread. It is handled again, with its body, when the
// wait is over, whether that was before its handler returned or long after.
TEST_F(ServerTest, ParkedRequestsHoldNoThread) {
  std::mutex mutex;
  std::vector<std::function<void()>> waiting;
  std::atomic<bool> open{false};
  router_.Add("POST", "/wait", RunOn::kWorker, [&](const ExchangePtr& exchange) {
    if (!open) {
      auto go = exchange->Park();
      if (exchange->request().body == "at once") {
        open = true;
        return go();
      }
      const std::lock_guard lock(mutex);
      return waiting.push_back(std::move(go));
    }
    Response response;
    response.body = exchange->request().body;
    exchange->Respond(std::move(response));
  });
  options_.worker_count = 2;
  Start();
  const auto ask = [&](const std::string& body) {
    auto client = std::make_unique<Client>(server_->port());
    client->Send("POST /wait HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n\r\n" + body);
    return client;
  };
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return waiting.size();
  };
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(ask("text " + std::to_string(i)));
  while (count() < 8) std::this_thread::sleep_for(1ms);
  Client other = Connect();
  other.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(StatusOf(other.ReadAnswer()), 200) << "eight wait, and two threads are free";

  clients.pop_back();              // a client that leaves is not waited for
  waiting.erase(waiting.begin());  // nobody will call: it is dropped, and answered 500
  EXPECT_EQ(StatusOf(clients.front()->ReadAnswer()), 500);
  clients.erase(clients.begin());
  EXPECT_TRUE(ask("at once")->ReadAnswer().ends_with("at once"));
  for (const auto& go : waiting) go();
  waiting.clear();
  for (size_t i = 0; i < clients.size(); ++i) {
    EXPECT_TRUE(clients[i]->ReadAnswer().ends_with("text " + std::to_string(i + 1)));
  }
  ExpectIdle();
}

}  // namespace
}  // namespace reprise::http
