// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reprise {

// For tests: as much of a Redis as a home needs, with its values in hand. It can refuse commands,
// say nothing, and hang up.
class FakeRedis {
 public:
  FakeRedis() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~FakeRedis() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    HangUp();
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }

  uint16_t port() const { return port_; }
  std::map<std::string, std::string> values() {
    std::lock_guard lock(mutex_);
    return values_;
  }
  void Set(std::map<std::string, std::string> values) {
    std::lock_guard lock(mutex_);
    values_ = std::move(values);
  }
  // What a command is answered instead; empty: as it is.
  using Refusal = std::function<std::string(const std::string& verb)>;
  void Refuse(Refusal refusal) {
    std::lock_guard lock(mutex_);
    refusal_ = std::move(refusal);
  }
  // It reads what is said, and answers nothing; nor what it has heard meanwhile.
  void Silence(bool silent) { silent_ = silent; }
  void SetTimeLeft(int64_t ms) { time_left_ms_ = ms; }
  // As a Sentinel it names this one as "mymaster"; as a Redis it says that it follows another.
  void SetMaster(uint16_t port) { master_ = port; }
  void SetReplica(bool replica) { replica_ = replica; }
  // Ends all connections.
  void HangUp() {
    std::lock_guard lock(mutex_);
    for (const int peer : peers_) ::shutdown(peer, SHUT_RDWR);
  }
  std::set<std::string> TakeRenewed() {
    std::lock_guard lock(mutex_);
    return std::exchange(renewed_, {});
  }
  // How often all that had come was answered and more had to be waited for: exchanges.
  int turns() const { return turns_; }
  // Times that something was heard.
  int heard() const { return heard_; }

 private:
  void Accept() {
    for (;;) {
      const int peer = ::accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      const int on = 1;
      ::setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      std::lock_guard lock(mutex_);
      peers_.push_back(peer);
      threads_.emplace_back([this, peer] {
        Serve(peer);
        std::lock_guard ended(mutex_);
        std::erase(peers_, peer);
        ::close(peer);
      });
    }
  }

  void Serve(int peer) {
    std::string in, out;
    const auto line = [&]() -> std::optional<std::string> {
      size_t end;
      while ((end = in.find("\r\n")) == in.npos) {
        if (!More(peer, &in, &out)) return std::nullopt;
      }
      std::string text = in.substr(0, end);
      in.erase(0, end + 2);
      return text;
    };
    for (;;) {
      const auto head = line();
      if (!head) return;
      std::vector<std::string> words(std::stoul(head->substr(1)));
      for (std::string& word : words) {
        const auto size = line();
        if (!size) return;
        const size_t bytes = std::stoul(size->substr(1)) + 2;
        while (in.size() < bytes) {
          if (!More(peer, &in, &out)) return;
        }
        word = in.substr(0, bytes - 2);
        in.erase(0, bytes);
      }
      if (!silent_) out += Answer(words);
    }
  }
  // Says what it has to say, and waits for more.
  bool More(int peer, std::string* in, std::string* out) {
    if (!out->empty()) ++turns_;
    for (size_t sent = 0; sent < out->size();) {
      const ssize_t some = ::send(peer, out->data() + sent, out->size() - sent, MSG_NOSIGNAL);
      if (some < 0) return false;
      sent += static_cast<size_t>(some);
    }
    out->clear();
    std::string bytes(size_t{1} << 20, '\0');
    const ssize_t got = ::recv(peer, bytes.data(), bytes.size(), 0);
    if (got > 0) ++heard_;
    if (got > 0) in->append(bytes, 0, static_cast<size_t>(got));
    return got > 0;
  }

  static std::string Bulk(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  }
  std::string Answer(const std::vector<std::string>& words) {
    std::lock_guard lock(mutex_);
    const std::string& verb = words[0];
    if (refusal_) {
      if (const std::string error = refusal_(verb); !error.empty()) return "-" + error + "\r\n";
    }
    if (verb == "PSETEX") values_[words[1]] = words[3];
    if (verb == "PSETEX" || verb == "SELECT" || verb == "PING") return "+OK\r\n";
    if (verb == "SCAN") return Scan(words);
    if (verb == "AUTH") return "-ERR AUTH <password> called without any password configured\r\n";
    if (verb == "ROLE") return "*1\r\n" + Bulk(replica_ ? "slave" : "master");
    if (verb == "SENTINEL") {
      if (master_ == 0 || words[2] != "mymaster") return "*-1\r\n";
      return "*2\r\n" + Bulk("127.0.0.1") + Bulk(std::to_string(master_));
    }
    const auto at = values_.find(words[1]);
    if (verb == "GETRANGE") {
      if (at == values_.end()) return Bulk("");
      const size_t end = std::stoul(words[3]) + 1;
      return Bulk(at->second.substr(0, end));
    }
    if (verb == "GET") return at == values_.end() ? "$-1\r\n" : Bulk(at->second);
    if (verb == "PTTL") return ":" + std::to_string(time_left_ms_) + "\r\n";
    if (verb == "PEXPIRE") renewed_.insert(words[1]);
    if (verb == "UNLINK" && at != values_.end()) values_.erase(at);
    if (verb == "SETBIT") {
      std::string& bits = values_[words[1]];
      const size_t bit = std::stoul(words[2]);
      if (bits.size() <= bit / 8) bits.resize(bit / 8 + 1);
      bits[bit / 8] = static_cast<char>(bits[bit / 8] | 0x80 >> bit % 8);
    }
    return ":1\r\n";
  }
  // SCAN cursor MATCH prefix* COUNT n: the cursor is the number of the first key that is left, of
  // those that were there when it began.
  std::string Scan(const std::vector<std::string>& words) {
    const size_t cursor = std::stoul(words[1]), count = std::stoul(words[5]);
    if (cursor == 0) {
      scanned_.clear();
      for (const auto& [key, value] : values_) scanned_.push_back(key);
    }
    const size_t end = std::min(scanned_.size(), cursor + count);
    const std::string prefix = words[3].substr(0, words[3].size() - 1);
    std::vector<std::string> found;
    for (size_t i = cursor; i < end; ++i) {
      if (scanned_[i].starts_with(prefix)) found.push_back(scanned_[i]);
    }
    std::string answer = "*2\r\n" + Bulk(std::to_string(end == scanned_.size() ? 0 : end)) + "*" +
                         std::to_string(found.size()) + "\r\n";
    for (const std::string& key : found) answer += Bulk(key);
    return answer;
  }

  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> silent_ = false, replica_ = false;
  std::atomic<uint16_t> master_ = 0;
  std::atomic<int> turns_ = 0, heard_ = 0;
  std::atomic<int64_t> time_left_ms_ = 24 * 3'600'000;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, std::string> values_;
  std::set<std::string> renewed_;
  std::vector<std::string> scanned_;
  Refusal refusal_;
  std::vector<int> peers_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace reprise
