// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to http/: shows Asio.

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::http {

using ErrorCode = boost::system::error_code;

// The bytes of one connection, as they are or through TLS. One Read and one Write at a time; what
// `done` holds lives until it was called.
//
// Thread safety: none; the server thread.
class Transport {
 public:
  using Done = std::function<void(const ErrorCode&, size_t bytes)>;

  virtual ~Transport() = default;
  // Once, before anything else: `ready` is called when bytes can go (TLS: after the handshake).
  virtual void Open(std::function<void(const ErrorCode&)> ready) = 0;
  virtual void Read(boost::asio::mutable_buffer into, Done done) = 0;
  virtual void Write(std::vector<boost::asio::const_buffer> pieces, Done done) = 0;
  // Tells the client that nothing more comes. It may still send.
  virtual void EndSending() = 0;
  virtual void Close() = 0;
};

std::unique_ptr<Transport> MakePlainTransport(boost::asio::ip::tcp::socket socket);

// A certificate and its key, from which TLS connections are made.
class TlsIdentity {
 public:
  virtual ~TlsIdentity() = default;
  virtual std::unique_ptr<Transport> MakeTransport(boost::asio::ip::tcp::socket socket) = 0;
};

// From PEM files. Fails, with a sentence, if they cannot be read or do not belong together.
Result<std::shared_ptr<TlsIdentity>> ReadTlsIdentity(const std::string& cert_path,
                                                     const std::string& key_path);

}  // namespace reprise::http
