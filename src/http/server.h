// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/account/account.h"
#include "base/status.h"
#include "http/exchange.h"
#include "http/message.h"
#include "http/router.h"

namespace reprise::http {

// An answer that was sent, for the log.
struct Answered {
  const Request& request;
  int status;
  std::string_view reason;  // of a refusal: Response::reason; empty otherwise
  std::chrono::microseconds taken;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  int worker_count = 6;
  size_t connection_count_max = 4000;  // one more: an idle one is closed for it (places.h), or 503
  size_t address_count_max = 3500;     // of them: of one address
  std::shared_ptr<Ledger> ledger;      // of what requests hold; null: one of the server's own
  Account::Limits account;             // of each
  std::chrono::milliseconds idle_max{75'000};       // between requests of a connection
  std::chrono::milliseconds head_max{10'000};       // first to last byte of a head
  std::chrono::milliseconds body_max{30'000};       // a body must be whole in this time, or go on
  size_t body_bytes_per_second_min = 64 << 10;      //   at this rate for as long again
  std::chrono::milliseconds stall_max{30'000};      // a client that takes nothing that long is cut
  std::chrono::milliseconds linger_max{2'000};      // for what a refused client still sends
  std::chrono::milliseconds ping_interval{15'000};  // comment lines in silent streams
  Limits limits;
  std::vector<std::string> cors_origins;  // of web pages that may ask (cors.h)
  std::string tls_cert;                   // PEM files; both or none
  std::string tls_key;

  // The body for what the server itself refuses (400, 404, 405, 408, 413, 431, 503). Required.
  std::function<Response(int status, const std::string& message, const Request* request)> refuse;
  // Asked about every request that has a route, on the server thread: the answer to one that is not
  // let in (authentication). A body of some size is not read before. Optional; must be quick.
  std::function<std::optional<Response>(const Request&, const Router::Route&)> admit;
  // Whose request it is: workers (work_queue.h) and memory (account.h) are shared out among these
  // names. Empty: its address's. Optional; must be quick.
  std::function<std::string(const Request&)> share_of;
  // Called after every answer. Optional; must be quick.
  std::function<void(const Answered&)> answered;
};

struct ServerStats {
  uint64_t connections_accepted = 0;
  uint64_t connections_refused = 0;
  uint64_t connections_evicted = 0;  // idle ones that gave way
  uint64_t restarts = 0;             // requests that were too large for a small one's thread
  uint64_t requests = 0;
  uint64_t disconnects = 0;  // clients gone before their answer was complete
  size_t connections = 0;    // now
  size_t requests_active = 0;
  size_t bodies_bytes = 0;
};

// An HTTP/1.1 server: one thread for all sockets, some workers for handlers that compute.
// Keep-alive, pipelining (one request at a time), chunked requests and streams; with a certificate,
// TLS 1.2 and 1.3.
//
// Thread safety: all methods from any thread.
class Server {
 public:
  Server(ServerOptions options, Router router);
  ~Server();  // stops

  // Listens and serves on threads of its own. Fails if the address cannot be had.
  Status Start();
  // Other routes from now on (a server that was loading is ready). REQUIRES: no handler of the
  // routes before runs on a worker.
  void SetRouter(Router router);
  uint16_t port() const;
  // Reads the certificate and its key again: connections from now on have them. If they are not
  // good the ones before stay.
  Status ReloadTls();

  // Answers new requests with 503 from now on, but for routes that run on the server thread, and
  // waits until those being answered are done or `timeout` has passed. Returns true if all were
  // done.
  bool Drain(std::chrono::milliseconds timeout);
  bool draining() const;
  // Ends now: answers that are not complete are cut off. Work that polls Exchange::abandoned ends
  // early; what waits for a worker is dropped.
  void Stop();

  ServerStats stats() const;
  const Ledger& ledger() const;

  // Runs `task` on the server thread, soon or after a delay. It must be quick.
  void Post(std::function<void()> task);
  void After(std::chrono::milliseconds delay, std::function<void()> task);
  // Runs `task` on a worker, as one of those that may not take the last one.
  void Work(std::function<void()> task);

 private:
  struct Loop;
  std::shared_ptr<Loop> loop_;
};

}  // namespace reprise::http
