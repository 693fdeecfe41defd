// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tier/redis/redis_address.h"
#include "tier/redis/resp.h"

namespace reprise {

// One connection to Redis. Calls wait, but never beyond the deadline; after one has failed the link
// is of no more use.
//
// Thread safety: none.
class RedisLink : private ByteSource {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // For servers with TLS; files (PEM).
  struct Tls {
    std::string ca_file;    // who signs the server's certificate; empty: the system's
    std::string cert_file;  // what this side shows; empty: nothing
    std::string key_file;
  };
  // Connects, enters and chooses the database. Where Sentinels know the master, they are asked for
  // it each time: after a failover the next connection leads to the new one.
  static Result<std::unique_ptr<RedisLink>> Connect(const RedisAddress& address, const Tls& tls,
                                                    Deadline deadline);
  ~RedisLink() override;

  void SetDeadline(Deadline deadline) { deadline_ = deadline; }
  // Whether the other side has hung up, or said something that nobody asked for. Does not wait.
  bool stale();

  // A command is put together, and sent with those before it. Bytes that are given with Send go
  // out as they are, behind the commands.
  void Add(std::initializer_list<std::string_view> words);
  Status Send(std::span<const std::span<const std::byte>> pieces = {});
  // The begin of a command whose last argument is `bytes` long and comes with Send, before "\r\n".
  void AddOpen(std::initializer_list<std::string_view> words, size_t bytes);

  // The answers, in order.
  RespReader& answers() { return reader_; }
  // One that is small, and no error.
  Result<RespReply> Answer(size_t bytes_max = size_t{64} << 10);

 private:
  struct Socket;  // Asio's

  explicit RedisLink(std::unique_ptr<Socket> socket);
  static Result<std::unique_ptr<RedisLink>> Open(const RedisAddress::Host& host, bool tls,
                                                 const Tls& files, Deadline deadline);
  static Result<RedisAddress::Host> FindMaster(const RedisAddress& address, const Tls& files,
                                               Deadline deadline);
  Result<RedisAddress::Host> AskForMaster(const RedisAddress& address);
  // Whether it takes itself for the master.
  Status CheckRole();
  Result<size_t> ReadSome(std::span<std::byte> into) override;
  Status Enter(const RedisAddress& address);

  std::unique_ptr<Socket> socket_;
  Deadline deadline_;
  std::string outgoing_;
  RespReader reader_;
};

}  // namespace reprise
