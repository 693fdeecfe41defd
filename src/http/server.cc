// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/check.h"
#include "http/connection.h"

namespace reprise::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Connections over the limit that are being told so; beyond these they are closed without a word.
constexpr size_t kRefusingMax = 256;
constexpr int kBacklog = 1024;
constexpr std::chrono::milliseconds kSweepMax{500};
constexpr std::chrono::milliseconds kSweepMin{5};

std::string RandomPrefix() {
  std::random_device random;
  char text[16];
  std::snprintf(text, sizeof(text), "%08x", random());
  return text;
}

}  // namespace

struct Server::Loop {
  std::shared_ptr<Hub> hub = std::make_shared<Hub>();
  tcp::acceptor acceptor{hub->io};
  asio::steady_timer sweeper{hub->io};
  asio::steady_timer retry{hub->io};
  std::thread thread;
  uint16_t port = 0;

  Status Listen();
  void Accept();
  void Take(tcp::socket socket);
  void Sweep();
  void Each(const std::function<void(Connection&)>& visit);
  std::chrono::milliseconds SweepInterval() const;

  // Runs `task` on the server thread and waits for it.
  template <typename Task>
  auto Ask(Task task) const {
    std::packaged_task<decltype(task())()> packaged(std::move(task));
    auto result = packaged.get_future();
    asio::post(hub->io, [&packaged] { packaged(); });
    return result.get();
  }
};

Server::Server(ServerOptions options, Router router) : loop_(std::make_shared<Loop>()) {
  CHECK(options.refuse != nullptr);
  Hub& hub = *loop_->hub;
  hub.options = std::move(options);
  hub.router = std::move(router);
  hub.id_prefix = RandomPrefix();
  if (hub.options.ledger == nullptr) hub.options.ledger = std::make_shared<Ledger>();
  hub.places =
      std::make_unique<Places>(hub.options.connection_count_max, hub.options.address_count_max);
}

Server::~Server() { Stop(); }

namespace {

// Why an address cannot be listened on, and what to do about it.
std::string Advise(const error_code& error) {
  if (error == asio::error::address_in_use) {
    return "another program has this port; stop that one, or choose another port with --port "
           "(--port 0 takes any free one)";
  }
  if (error == asio::error::access_denied) {
    return "ports below 1024 are for root; choose another one with --port";
  }
  if (error == boost::system::errc::address_not_available) {
    return "this machine does not have the address; choose another one with --host";
  }
  return error.message();
}

}  // namespace

Status Server::Loop::Listen() {
  const ServerOptions& options = hub->options;
  const bool six = options.host.find(':') != std::string::npos;
  const std::string where =
      (six ? "[" + options.host + "]" : options.host) + ":" + std::to_string(options.port);
  error_code error;
  const asio::ip::address address = asio::ip::make_address(options.host, error);
  if (error) return InvalidArgument("'" + options.host + "' is not an IP address to listen on");
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) return FailedPrecondition("cannot listen on " + where + ": " + Advise(error));
  port = acceptor.local_endpoint(error).port();
  return OkStatus();
}

void Server::Loop::Accept() {
  acceptor.async_accept([this](const error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor.is_open()) return;
    if (error) {  // out of file descriptors: wait for some to come back
      retry.expires_after(std::chrono::milliseconds(50));
      retry.async_wait([this](const error_code& stopped) {
        if (!stopped) Accept();
      });
      return;
    }
    Take(std::move(socket));
    Accept();
  });
}

void Server::Loop::Take(tcp::socket socket) {
  ++hub->counters.connections_accepted;
  error_code error;
  const tcp::endpoint client = socket.remote_endpoint(error);
  if (error) return;  // it has left
  auto transport =
      hub->tls ? hub->tls->MakeTransport(std::move(socket)) : MakePlainTransport(std::move(socket));
  const auto connection = std::make_shared<Connection>(hub, std::move(transport),
                                                       ClientOf(client.address().to_string()));
  Connection* leaves = nullptr;
  if (hub->places->Enter(connection.get(), connection->address(), &leaves)) {
    if (leaves != nullptr) ++hub->counters.connections_evicted;
    if (leaves != nullptr) leaves->Close();
    return connection->Start();
  }
  if (hub->refusing >= kRefusingMax) return;
  if (hub->tls != nullptr) return;  // telling them would take a handshake
  connection->StartRefused();
}

void Server::Loop::Each(const std::function<void(Connection&)>& visit) {
  std::vector<std::shared_ptr<Connection>> all;
  all.reserve(hub->connections.size());
  for (Connection* connection : hub->connections) {
    if (auto live = connection->weak_from_this().lock()) all.push_back(std::move(live));
  }
  for (const auto& connection : all) visit(*connection);
}

std::chrono::milliseconds Server::Loop::SweepInterval() const {
  const ServerOptions& o = hub->options;
  const auto least =
      std::min({o.idle_max, o.head_max, o.body_max, o.stall_max, o.linger_max, o.ping_interval});
  return std::clamp(least / 4, kSweepMin, kSweepMax);
}

void Server::Loop::Sweep() {
  sweeper.expires_after(SweepInterval());
  sweeper.async_wait([this](const error_code& error) {
    if (error) return;
    const auto now = std::chrono::steady_clock::now();
    Each([now](Connection& connection) { connection.Sweep(now); });
    Sweep();
  });
}

Status Server::Start() {
  Hub& hub = *loop_->hub;
  if (hub.options.tls_cert.empty() != hub.options.tls_key.empty()) {
    return InvalidArgument("TLS needs a certificate and its key: one of them is missing");
  }
  if (!hub.options.tls_cert.empty()) {
    REPRISE_ASSIGN(hub.tls, ReadTlsIdentity(hub.options.tls_cert, hub.options.tls_key));
  }
  REPRISE_TRY(loop_->Listen());
  hub.workers = std::make_unique<WorkQueue>(hub.options.worker_count);
  loop_->Accept();
  loop_->Sweep();
  loop_->thread = std::thread([loop = loop_.get()] { loop->hub->io.run(); });
  return OkStatus();
}

void Server::SetRouter(Router router) {
  loop_->Ask([&] {
    loop_->hub->router = std::move(router);
    return 0;
  });
}

Status Server::ReloadTls() {
  const ServerOptions& options = loop_->hub->options;
  if (options.tls_cert.empty()) return FailedPrecondition("there is no certificate");
  REPRISE_ASSIGN(auto tls, ReadTlsIdentity(options.tls_cert, options.tls_key));
  loop_->Ask([&] {
    loop_->hub->tls = std::move(tls);
    return 0;
  });
  return OkStatus();
}

const Ledger& Server::ledger() const { return *loop_->hub->options.ledger; }

uint16_t Server::port() const { return loop_->port; }

bool Server::draining() const { return loop_->hub->draining; }

ServerStats Server::stats() const {
  if (loop_->hub->stopped || !loop_->thread.joinable()) return loop_->hub->counters;
  return loop_->Ask([this] { return loop_->hub->counters; });
}

bool Server::Drain(std::chrono::milliseconds timeout) {
  loop_->hub->draining = true;
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (stats().requests_active == 0) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void Server::Stop() {
  Hub& hub = *loop_->hub;
  if (!loop_->thread.joinable()) return;
  loop_->Ask([&hub] { return hub.draining = true; });  // from here on nothing goes to the workers
  hub.stopping = true;                                 // what runs there ends early
  hub.workers->Stop();
  loop_->Ask([this] {
    error_code ignored;
    loop_->acceptor.close(ignored);
    loop_->sweeper.cancel();
    loop_->retry.cancel();
    loop_->Each([](Connection& connection) { connection.Close(); });
    return 0;
  });
  hub.stopped = true;
  hub.io.stop();
  loop_->thread.join();
  // What is still queued holds references to its connection: let it go.
  hub.io.restart();
  hub.io.poll();
}

void Server::Post(std::function<void()> task) {
  if (!loop_->hub->stopped) asio::post(loop_->hub->io, std::move(task));
}

void Server::Work(std::function<void()> task) {
  Hub& hub = *loop_->hub;
  if (!hub.stopped && hub.workers) hub.workers->Add({"", WorkQueue::Size::kHeavy, std::move(task)});
}

void Server::After(std::chrono::milliseconds delay, std::function<void()> task) {
  Post([hub = loop_->hub, delay, task = std::move(task)]() mutable {
    auto timer = std::make_shared<asio::steady_timer>(hub->io, delay);
    timer->async_wait([timer, task = std::move(task)](const error_code& error) {
      if (!error) task();
    });
  });
}

}  // namespace reprise::http
