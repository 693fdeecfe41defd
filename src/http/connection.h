// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to http/: shows Asio.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "http/request_parser.h"
#include "http/server.h"
#include "http/shares/past_sizes.h"
#include "http/shares/places.h"
#include "http/shares/work_queue.h"
#include "http/transport.h"

namespace reprise::http {

class Connection;
using TimePoint = std::chrono::steady_clock::time_point;

// What all connections share. Owned by the server thread, but for the atomics.
struct Hub {
  ServerOptions options;
  Router router;
  std::shared_ptr<TlsIdentity> tls;  // of new connections; null: none
  boost::asio::io_context io{1};
  std::unique_ptr<WorkQueue> workers;
  std::unordered_set<Connection*> connections;
  std::unique_ptr<Places> places;
  PastSizes past_sizes;
  size_t refusing = 0;                            // of them, those that are only told to go away
  std::deque<std::shared_ptr<Connection>> turns;  // those that go on reading a large body
  bool turning = false;                           // the first of them will be asked
  ServerStats counters;
  uint64_t next_id = 0;
  std::string id_prefix;  // of request ids; differs from process to process
  std::atomic<bool> draining{false};
  std::atomic<bool> stopping{false};  // nobody waits for any answer
  std::atomic<bool> stopped{false};
};

// One socket: reads a request, hands it to a handler as an Exchange, writes the answer, and again.
// Reading goes on while a request is answered, so that a client that leaves is noticed.
//
//   reading -> answering -> reading ... -> lingering -> closed
//
// Lingering: after a refusal the client may still be sending; closing at once would destroy the
// answer on its way (RST), so what comes is read and dropped for a moment.
//
// Thread safety: none; everything runs on the server thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Hub> hub, std::unique_ptr<Transport> transport, std::string address);
  ~Connection();

  void Start();
  // Too many connections: says so and closes.
  void StartRefused();
  // Deadlines and pings; called every now and then.
  void Sweep(TimePoint now);
  void Close();

  // The Exchange's side; calls with an old `answer` are ignored.
  void Respond(uint64_t answer, Response response);
  void StartStream(uint64_t answer, Headers headers);
  void Send(uint64_t answer, std::string bytes);
  void End(uint64_t answer);
  void Abandon(uint64_t answer);  // the handler dropped it
  void OnClose(uint64_t answer, std::function<void()> closed);
  void OnDrained(uint64_t answer, std::function<void()> drained);
  void BodyDone(uint64_t answer);  // the handler has read the body
  // Has it handled by a worker. `notes`: what it turns out to be is of interest.
  static void Enqueue(Hub* hub, const ExchangePtr& exchange, const Handler* handler,
                      WorkQueue::Size size, bool notes);
  const std::string& address() const { return address_; }
  size_t pending_bytes() const { return pending_bytes_; }
  Hub& hub() { return *hub_; }

 private:
  enum class State { kReading, kAnswering, kLingering, kClosed };

  // What becomes of a request: a handler, or an answer at once.
  struct Decision {
    const Router::Route* route = nullptr;
    std::optional<Response> refusal;
  };

  void Read();
  void ReadNow(size_t bytes_max);
  void AwaitTurn();
  static void TakeTurn(const std::shared_ptr<Hub>& hub);
  void OnRead(std::string_view bytes);
  void Process(std::string_view bytes);
  bool BeginBody();
  bool CountBody();
  void BeginAnswer();
  void Refuse(int status, const std::string& message);
  void RefuseUnread(Response response);
  Decision Decide(const Request& request);
  void AssignId(Request* request);
  void OpenAccount(const Request& head);
  void Dispatch(const ExchangePtr& exchange);
  void Queue(std::string bytes);
  void Write();
  void OnWritten();
  void FinishAnswer();
  void TellAnswered(int status);
  void ReleaseBody();
  std::string FormatHead(const Response& response, const char* length);
  bool Current(uint64_t answer) const { return answer == answer_ && state_ == State::kAnswering; }

  const std::shared_ptr<Hub> hub_;
  const std::unique_ptr<Transport> transport_;
  const std::string address_;  // of the client, without its port
  State state_ = State::kReading;
  bool reading_ = false;
  bool refused_ = false;        // over the connection limit
  std::vector<char> incoming_;  // where the socket writes
  std::string buffer_;          // read, not yet parsed
  std::unique_ptr<RequestParser> parser_;
  TimePoint deadline_;       // of what the client must do: a head, a body, taking bytes
  size_t body_bytes_ = 0;    // of the request being read or answered
  size_t window_bytes_ = 0;  // of them, those before the time that ends at deadline_
  size_t lingered_bytes_ = 0;

  uint64_t answer_ = 0;  // counts answers
  std::shared_ptr<const Request> request_;
  AccountPtr account_;  // of the request being read or answered
  TimePoint begun_;
  int status_ = 0;
  std::string reason_;      // of a refusal, for the log
  bool started_ = false;    // the head was queued
  bool streaming_ = false;  // ... of a stream
  bool pings_ = false;      // ... of events
  bool chunked_ = false;
  bool complete_ = false;  // everything was queued
  bool close_after_ = false;
  bool head_only_ = false;
  std::shared_ptr<std::atomic<bool>> gone_;  // of the request being answered: its client
  std::function<void()> closed_;
  std::function<void()> drained_;

  std::vector<std::string> queue_;
  std::vector<std::string> in_flight_;
  size_t pending_bytes_ = 0;
  TimePoint last_queued_;
};

}  // namespace reprise::http
