// SPDX-License-Identifier: Apache-2.0
#include "swarm.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/check.h"

namespace reprise {

Swarm::Swarm(uint16_t port) : port_(port), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  CHECK(epoll_ >= 0);
}

Swarm::~Swarm() {
  for (auto& [client, owner] : clients_) ::close(client->socket);
  ::close(epoll_);
}

Swarm::Client* Swarm::Connect() {
  auto client = std::make_unique<Client>();
  client->socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(client->socket >= 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(client->socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  ::fcntl(client->socket, F_SETFL, O_NONBLOCK);
  const int one = 1;
  ::setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = client.get();
  CHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, client->socket, &event) == 0);
  Client* raw = client.get();
  clients_.emplace(raw, std::move(client));
  return raw;
}

void Swarm::Send(Client* client, std::string_view bytes) {
  client->out += bytes;
  Flush(client);
}

void Swarm::Flush(Client* client) {
  while (!client->out.empty() && !client->closed) {
    const ssize_t sent =
        ::send(client->socket, client->out.data(), client->out.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // full or gone: what arrives will tell
    client->out.erase(0, static_cast<size_t>(sent));
  }
}

void Swarm::Close(Client* client) {
  if (client->closed) return;
  client->closed = true;
  ::close(client->socket);
  const auto at = clients_.find(client);
  gone_.push_back(std::move(at->second));
  clients_.erase(at);
}

void Swarm::HalfClose(Client* client) { ::shutdown(client->socket, SHUT_WR); }

void Swarm::StopReading(Client* client) {
  const int bytes = 2048;
  ::setsockopt(client->socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, client->socket, nullptr);
}

void Swarm::Run(std::chrono::milliseconds time, const std::function<bool()>& done,
                const std::function<void(Client*)>& arrived) {
  const auto end = Clock::now() + time;
  std::vector<epoll_event> events(256);
  std::vector<char> bytes(size_t{64} << 10);
  while (!done()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return;
    const int wait = static_cast<int>(std::min<int64_t>(left.count() + 1, 10));
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), wait);
    for (int i = 0; i < count; ++i) {
      auto* client = static_cast<Client*>(events[static_cast<size_t>(i)].data.ptr);
      if (client->closed) continue;
      Flush(client);
      const ssize_t got = ::recv(client->socket, bytes.data(), bytes.size(), 0);
      if (got < 0 && errno == EAGAIN) continue;
      if (got <= 0) {
        Close(client);
      } else {
        client->in.append(bytes.data(), static_cast<size_t>(got));
      }
      arrived(client);
    }
  }
}

std::string PostRequest(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(share * last + 0.5)];
}

}  // namespace reprise
