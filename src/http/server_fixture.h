// SPDX-License-Identifier: Apache-2.0
// For tests: a server on real sockets, and clients that are plain sockets, so that every byte and
// every pause is the test's.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "http/server.h"

namespace reprise::http {

using namespace std::chrono_literals;

class Client {
 public:
  // Of this machine's addresses 127.0.0.1, 127.0.0.2, ... it is the one with that number.
  explicit Client(uint16_t port, uint32_t number = 1) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xFFu) | number);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { Close(); }

  void Close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void Send(std::string_view bytes) {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }
  // Sends until the server takes no more. Returns whether it came to that within `bytes_max`.
  bool SendUntilFull(size_t bytes_max) {
    const std::string piece(size_t{64} << 10, 'x');
    for (size_t sent = 0; sent < bytes_max;) {
      pollfd poll = {socket_, POLLOUT, 0};
      if (::poll(&poll, 1, 500) <= 0) return true;
      const ssize_t count =
          ::send(socket_, piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count <= 0) return errno == EAGAIN;
      sent += static_cast<size_t>(count);
    }
    return false;
  }
  void HalfClose() { ::shutdown(socket_, SHUT_WR); }
  void ShrinkWindow() {
    const int bytes = 4096;
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  }

  // Reads until the text contains `end`, the peer closes, or 5 seconds have passed.
  std::string ReadUntil(std::string_view end) {
    while (text_.find(end) == std::string::npos) {
      if (!ReadSome()) break;
    }
    return text_;
  }
  // One answer with a Content-Length.
  std::string ReadAnswer() {
    ReadUntil("\r\n\r\n");
    const size_t head = text_.find("\r\n\r\n");
    if (head == std::string::npos) return text_;
    const size_t at = text_.find("Content-Length: ");
    const size_t length = at < head ? std::stoul(text_.substr(at + 16)) : 0;
    while (text_.size() < head + 4 + length && ReadSome()) {
    }
    const std::string answer = text_.substr(0, head + 4 + length);
    text_.erase(0, head + 4 + length);
    return answer;
  }
  std::string ReadAll() {
    while (ReadSome()) {
    }
    return text_;
  }
  // Whether the peer has closed, within 5 seconds.
  bool Closed() {
    while (ReadSome()) {
    }
    return closed_;
  }

 private:
  bool ReadSome() {
    pollfd poll = {socket_, POLLIN, 0};
    if (::poll(&poll, 1, 5000) <= 0) return false;
    char bytes[4096];
    const ssize_t count = ::recv(socket_, bytes, sizeof(bytes), 0);
    if (count <= 0) {
      closed_ = true;
      return false;
    }
    text_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  int socket_;
  std::string text_;
  bool closed_ = false;
};

inline int StatusOf(const std::string& answer) {
  return answer.size() > 12 ? std::stoi(answer.substr(9, 3)) : 0;
}

// Something that another thread will say.
class Signal {
 public:
  void Raise() {
    std::lock_guard lock(mutex_);
    raised_ = true;
    changed_.notify_all();
  }
  bool Wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 5s, [&] { return raised_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool raised_ = false;
};

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.port = 0;
    options_.refuse = [](int status, const std::string& message, const Request*) {
      Response response;
      response.status = status;
      response.body = "{\"refused\":\"" + message + "\"}";
      return response;
    };
    router_.Add("GET", "/hello", RunOn::kServer, [](const ExchangePtr& exchange) {
      Response response;
      response.body = "hello";
      exchange->Respond(std::move(response));
    });
    router_.Add("POST", "/echo", RunOn::kWorker, [](const ExchangePtr& exchange) {
      Response response;
      response.body = exchange->request().body;
      exchange->Respond(std::move(response));
    });
    router_.Add("GET", "/drop", RunOn::kWorker, [](const ExchangePtr&) {});
    router_.Add("GET", "/stream", RunOn::kWorker, [this](const ExchangePtr& exchange) {
      exchange->StartStream({});
      exchange->Send("data: one\n\n");
      exchange->OnClose([this] { gone_.Raise(); });
      std::lock_guard lock(mutex_);
      held_.push_back(exchange);
      opened_.Raise();
    });
  }

  void Start() {
    server_ = std::make_unique<Server>(options_, std::move(router_));
    ASSERT_TRUE(server_->Start().ok());
  }
  void TearDown() override {
    Drop();
    if (server_) server_->Stop();
  }
  void Drop() {
    std::lock_guard lock(mutex_);
    held_.clear();
  }
  ExchangePtr Held() {
    EXPECT_TRUE(opened_.Wait());
    std::lock_guard lock(mutex_);
    return held_.empty() ? nullptr : held_.back();
  }
  Client Connect() { return Client(server_->port()); }
  void ExpectIdle() {
    for (int i = 0; i < 500 && server_->stats().requests_active > 0; ++i) {
      std::this_thread::sleep_for(2ms);
    }
    EXPECT_EQ(server_->stats().requests_active, 0u);
    EXPECT_EQ(server_->stats().bodies_bytes, 0u);
    for (int i = 0; i < 500 && server_->ledger().bytes() > 0; ++i) std::this_thread::sleep_for(2ms);
    EXPECT_EQ(server_->ledger().bytes(), 0u);
  }

  ServerOptions options_;
  Router router_;
  std::unique_ptr<Server> server_;
  std::mutex mutex_;
  std::vector<ExchangePtr> held_;
  Signal opened_;
  Signal gone_;
};

}  // namespace reprise::http
