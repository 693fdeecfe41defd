// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace reprise {

// Many clients on one thread: plain sockets behind epoll, so that the load generator costs less
// than what it measures.
//
// Thread safety: none.
class Swarm {
 public:
  using Clock = std::chrono::steady_clock;

  struct Client {
    int socket = -1;
    std::string out;  // not sent yet
    std::string in;   // received; event handlers may clear it
    Clock::time_point asked;
    Clock::time_point last_event;
    size_t events = 0;
    bool closed = false;
  };

  explicit Swarm(uint16_t port);
  ~Swarm();

  // Connects; aborts the program if the machine has no sockets left.
  Client* Connect();
  void Send(Client* client, std::string_view bytes);
  void Close(Client* client);      // as a client that was killed (RST if data is unread)
  void HalfClose(Client* client);  // sends FIN, still reads
  // A client that takes nothing.
  void StopReading(Client* client);

  // Handles what arrives for up to `time`, or until `done`. `arrived` is called for every read, and
  // when the server closes.
  void Run(std::chrono::milliseconds time, const std::function<bool()>& done,
           const std::function<void(Client*)>& arrived);

  size_t open_count() const { return clients_.size(); }

 private:
  void Flush(Client* client);

  const uint16_t port_;
  int epoll_;
  std::unordered_map<Client*, std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Client>> gone_;  // closed, but callers may still point at them
};

std::string PostRequest(const std::string& path, const std::string& body);

// The value at `share` (0..1) of the sorted values; NaN if there are none.
double Percentile(std::vector<double> values, double share);

}  // namespace reprise
