// SPDX-License-Identifier: Apache-2.0
#include "hub/net/stream.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace reprise::hub {
namespace {

// How late a call notices that it was cancelled.
constexpr std::chrono::milliseconds kSlice{100};

// Waits until the socket is ready for `events`.
Status WaitFor(int fd, short events, const Patience& patience, const char* what) {
  for (;;) {
    if (patience.Cancelled()) return Cancelled("interrupted");
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(patience.deadline -
                                                                            Patience::Clock::now());
    if (left.count() <= 0) {
      return Internal(std::string(what) + " in " +
                      std::to_string((patience.limit.count() + 999) / 1000) + " s");
    }
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min(left, kSlice).count()));
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) return Internal(std::strerror(errno));
  }
}

class Socket final : public Stream {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() override { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  Status Write(std::string_view bytes, const Patience& patience) override {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) {
        bytes.remove_prefix(static_cast<size_t>(count));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
        REPRISE_TRY(WaitFor(fd_, POLLOUT, patience, "nothing could be sent"));
      } else {
        return Internal(std::string("the connection was cut: ") + std::strerror(errno));
      }
    }
    return OkStatus();
  }

  Result<size_t> Read(std::span<char> into, const Patience& patience) override {
    for (;;) {
      // First: a download that always has bytes must notice it, too.
      if (patience.Cancelled()) return Cancelled("interrupted");
      const ssize_t count = ::recv(fd_, into.data(), into.size(), 0);
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        return Internal(std::string("the connection was cut: ") + std::strerror(errno));
      }
      REPRISE_TRY(WaitFor(fd_, POLLIN, patience, "nothing came"));
    }
  }

  Status Open(const sockaddr* address, socklen_t size, const Patience& patience) {
    const int yes = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (::connect(fd_, address, size) == 0) return OkStatus();
    if (errno != EINPROGRESS && errno != EINTR) return Internal(std::strerror(errno));
    REPRISE_TRY(WaitFor(fd_, POLLOUT, patience, "no answer"));
    int error = 0;
    socklen_t error_size = sizeof error;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &error_size);
    return error == 0 ? OkStatus() : Internal(std::strerror(error));
  }

 private:
  const int fd_;
};

}  // namespace

Result<std::unique_ptr<Stream>> Connect(const std::string& host, uint16_t port,
                                        const Patience& patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  // Without a limit: that is the system's.
  int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    // A machine without a network still has its own addresses.
    hints.ai_flags = 0;
    error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  }
  if (error != 0) {
    return Internal("the address of " + host + " cannot be found: " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  Status last = Internal("there is no address");
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = ::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    auto socket = std::make_unique<Socket>(fd);
    last = socket->Open(at->ai_addr, at->ai_addrlen, patience);
    if (last.ok()) return std::unique_ptr<Stream>(std::move(socket));
    if (last.code() == StatusCode::kCancelled) return last;
  }
  return last.Annotate(host + " cannot be reached");
}

}  // namespace reprise::hub
