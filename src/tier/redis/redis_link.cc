// SPDX-License-Identifier: Apache-2.0
#include "tier/redis/redis_link.h"

#include <sys/socket.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
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
  auto socket = std::make_unique<Socket>();
  ErrorCode error;
  // Names are resolved without a deadline: that is the system's, and nobody waits for this thread.
  const auto found =
      tcp::resolver(socket->io).resolve(address.host, std::to_string(address.port), error);
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
  if (address.tls) {
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
    tls.set_verify_callback(asio::ssl::host_name_verification(address.host), ignored);
    ::SSL_set_tlsext_host_name(tls.native_handle(), address.host.c_str());
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
  REPRISE_TRY(link->Enter(address));
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
