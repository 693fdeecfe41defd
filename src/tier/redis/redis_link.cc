// SPDX-License-Identifier: Apache-2.0
#include "tier/redis/redis_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

namespace reprise {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

Status Failed(const std::string& what, const ErrorCode& error) {
  return Internal(what + ": " + error.message());
}

}  // namespace

// Operations of Asio that are waited for, up to a deadline.
struct RedisLink::Socket {
  Socket() : tls_context(asio::ssl::context::tls_client), plain(io) {}

  asio::io_context io{1};
  asio::ssl::context tls_context;
  tcp::socket plain;
  std::optional<asio::ssl::stream<tcp::socket&>> tls;

  // `start` gets what to call in the end. False: not in time; the socket is closed then.
  template <typename Start>
  bool Wait(Deadline deadline, const Start& start) {
    bool done = false;
    start([&done] { done = true; });
    io.restart();
    while (!done && io.run_one_until(deadline) > 0) {
    }
    if (done) return true;
    ErrorCode ignored;
    plain.close(ignored);
    io.restart();
    io.run();  // the operation ends now that the socket is closed
    return false;
  }
  // An operation that ends with an error code and a number of bytes.
  template <typename Start>
  Result<size_t> Transfer(Deadline deadline, const char* what, const Start& start) {
    ErrorCode error;
    size_t bytes = 0;
    const bool in_time = Wait(deadline, [&](auto end) {
      start([&, end](const ErrorCode& code, size_t count) {
        error = code;
        bytes = count;
        end();
      });
    });
    if (!in_time) return Internal("the store does not answer in time");
    if (error) return Failed(what, error);
    return bytes;
  }
};

RedisLink::RedisLink(std::unique_ptr<Socket> socket) : socket_(std::move(socket)), reader_(this) {}
RedisLink::~RedisLink() = default;

Result<std::unique_ptr<RedisLink>> RedisLink::Connect(const RedisAddress& address, const Tls& files,
                                                      Deadline deadline) {
  RedisAddress::Host host{address.host, address.port};
  const bool sentinels = !address.sentinels.empty();
  if (sentinels) {
    REPRISE_ASSIGN(host, FindMaster(address, files, deadline));
  }
  REPRISE_ASSIGN(std::unique_ptr<RedisLink> link, Open(host, address.tls, files, deadline));
  REPRISE_TRY(link->Enter(address));
  if (sentinels) REPRISE_TRY(link->CheckRole());
  return link;
}

// The first that answers knows. Each has an equal part of what time is left, so that one that hangs
// leaves some to the others.
Result<RedisAddress::Host> RedisLink::FindMaster(const RedisAddress& address, const Tls& files,
                                                 Deadline deadline) {
  Status last;
  for (size_t i = 0; i < address.sentinels.size(); ++i) {
    const auto now = std::chrono::steady_clock::now();
    const auto left = std::max(deadline - now, Deadline::duration::zero());
    const auto parts = static_cast<int64_t>(address.sentinels.size() - i) + 1;  // the master's, too
    auto link = Open(address.sentinels[i], address.tls, files, now + left / parts);
    auto master = link.ok() ? (*link)->AskForMaster(address) : link.status();
    if (master.ok()) return master;
    last = master.status();
  }
  return last.Annotate("no Sentinel names the master");
}

Result<RedisAddress::Host> RedisLink::AskForMaster(const RedisAddress& address) {
  if (!address.password.empty()) {
    address.user.empty() ? Add({"AUTH", address.password})
                         : Add({"AUTH", address.user, address.password});
  }
  Add({"SENTINEL", "get-master-addr-by-name", address.master});
  REPRISE_TRY(Send());
  // One that wants no password says so, and answers the question.
  if (!address.password.empty()) REPRISE_TRY(reader_.Read(kRespLineMax).status());
  REPRISE_ASSIGN(const RespReply reply, Answer());
  if (reply.items.size() != 2) return NotFound("the Sentinel has no master of that name");
  RedisAddress::Host host{reply.items[0].text, 0};
  const std::string& port = reply.items[1].text;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), host.port);
  const bool number = error == std::errc() && end == port.data() + port.size() && host.port != 0;
  if (host.name.empty() || !number) return Internal("the Sentinel's answer is not an address");
  return host;
}

// For a moment after a failover Sentinels may still name the old one.
Status RedisLink::CheckRole() {
  Add({"ROLE"});
  REPRISE_TRY(Send());
  REPRISE_ASSIGN(const RespReply reply, reader_.Read(size_t{64} << 10));
  // Who may not ask for it has to take their word.
  if (reply.is_error() || reply.items.empty() || reply.items[0].text == "master") return OkStatus();
  return Internal("the Redis that the Sentinels name is not the master");
}

Result<std::unique_ptr<RedisLink>> RedisLink::Open(const RedisAddress::Host& host, bool use_tls,
                                                   const Tls& files, Deadline deadline) {
  auto socket = std::make_unique<Socket>();
  ErrorCode error;
  // Names are resolved without a deadline: that is the system's, and nobody waits for this thread.
  const auto found = tcp::resolver(socket->io).resolve(host.name, std::to_string(host.port), error);
  if (error) return Failed("the store's host cannot be found", error);
  const bool connected = socket->Wait(deadline, [&](auto end) {
    asio::async_connect(socket->plain, found, [&error, end](const ErrorCode& code, const auto&) {
      error = code;
      end();
    });
  });
  if (!connected) return Internal("the store cannot be reached in time");
  if (error) return Failed("the store cannot be reached", error);
  ErrorCode ignored;
  socket->plain.set_option(tcp::no_delay(true), ignored);
  socket->plain.set_option(asio::socket_base::keep_alive(true), ignored);
  if (use_tls) {
    asio::ssl::context& context = socket->tls_context;
    ::SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
    if (files.ca_file.empty()) {
      context.set_default_verify_paths(error);
    } else {
      context.load_verify_file(files.ca_file, error);
    }
    if (error) return Failed("the file of the store's certificate cannot be used", error);
    if (!files.cert_file.empty()) {
      context.use_certificate_chain_file(files.cert_file, error);
      if (error) return Failed("the certificate for the store cannot be used", error);
      context.use_private_key_file(files.key_file, asio::ssl::context::pem, error);
      if (error) return Failed("the key of the certificate for the store cannot be used", error);
    }
    auto& tls = socket->tls.emplace(socket->plain, context);
    tls.set_verify_mode(asio::ssl::verify_peer, ignored);
    tls.set_verify_callback(asio::ssl::host_name_verification(host.name), ignored);
    ::SSL_set_tlsext_host_name(tls.native_handle(), host.name.c_str());
    const bool shaken = socket->Wait(deadline, [&](auto end) {
      tls.async_handshake(asio::ssl::stream_base::client, [&error, end](const ErrorCode& code) {
        error = code;
        end();
      });
    });
    if (!shaken) return Internal("the store does not answer in time");
    if (error) return Failed("the store's TLS cannot be used", error);
  }
  std::unique_ptr<RedisLink> link(new RedisLink(std::move(socket)));
  link->SetDeadline(deadline);
  return link;
}

bool RedisLink::stale() {
  char byte = 0;
  const ssize_t got =
      ::recv(socket_->plain.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT | MSG_NOSIGNAL);
  return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

Status RedisLink::Enter(const RedisAddress& address) {
  int count = 0;
  if (!address.password.empty() && !address.user.empty()) {
    Add({"AUTH", address.user, address.password});
    ++count;
  } else if (!address.password.empty()) {
    Add({"AUTH", address.password});
    ++count;
  }
  const std::string db = std::to_string(address.db);
  Add({"SELECT", db});
  REPRISE_TRY(Send());
  for (; count >= 0; --count) {
    REPRISE_ASSIGN(const RespReply reply, Answer());
  }
  return OkStatus();
}

void RedisLink::Add(std::initializer_list<std::string_view> words) {
  AppendCommand(&outgoing_, std::span(words.begin(), words.size()));
}

void RedisLink::AddOpen(std::initializer_list<std::string_view> words, size_t bytes) {
  outgoing_ += "*" + std::to_string(words.size() + 1) + "\r\n";
  for (const std::string_view word : words) {
    outgoing_ += "$" + std::to_string(word.size()) + "\r\n";
    outgoing_ += word;
    outgoing_ += "\r\n";
  }
  outgoing_ += "$" + std::to_string(bytes) + "\r\n";
}

Status RedisLink::Send(std::span<const std::span<const std::byte>> pieces) {
  if (outgoing_.empty() && pieces.empty()) return OkStatus();
  const std::string commands = std::exchange(outgoing_, {});
  std::vector<asio::const_buffer> buffers = {asio::buffer(commands)};
  for (const auto piece : pieces) buffers.emplace_back(piece.data(), piece.size());
  const auto sent = socket_->Transfer(deadline_, "sending to the store failed", [&](auto end) {
    if (socket_->tls) {
      asio::async_write(*socket_->tls, buffers, std::move(end));
    } else {
      asio::async_write(socket_->plain, buffers, std::move(end));
    }
  });
  return sent.status();
}

Result<size_t> RedisLink::ReadSome(std::span<std::byte> into) {
  const auto buffer = asio::buffer(into.data(), into.size());
  return socket_->Transfer(deadline_, "the store hung up", [&](auto end) {
    if (socket_->tls) {
      socket_->tls->async_read_some(buffer, std::move(end));
    } else {
      socket_->plain.async_read_some(buffer, std::move(end));
    }
  });
}

Result<RespReply> RedisLink::Answer(size_t bytes_max) {
  REPRISE_ASSIGN(RespReply reply, reader_.Read(bytes_max));
  if (reply.is_error()) return StatusOfError(reply.text);
  return reply;
}

}  // namespace reprise
