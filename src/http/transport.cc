// SPDX-License-Identifier: Apache-2.0
#include "http/transport.h"

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace reprise::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

void SetNoDelay(tcp::socket& socket) {
  ErrorCode ignored;
  socket.set_option(tcp::no_delay(true), ignored);
}

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) {}

  void Open(std::function<void(const ErrorCode&)> ready) override {
    SetNoDelay(socket_);
    ready(ErrorCode());
  }
  void Read(asio::mutable_buffer into, Done done) override {
    socket_.async_read_some(into, std::move(done));
  }
  void Write(std::vector<asio::const_buffer> pieces, Done done) override {
    asio::async_write(socket_, std::move(pieces), std::move(done));
  }
  void EndSending() override {
    ErrorCode ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void Close() override {
    ErrorCode ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(tcp::socket socket, asio::ssl::context& context)
      : stream_(std::make_shared<Stream>(std::move(socket), context)) {}

  void Open(std::function<void(const ErrorCode&)> ready) override {
    SetNoDelay(stream_->next_layer());
    stream_->async_handshake(asio::ssl::stream_base::server, std::move(ready));
  }
  void Read(asio::mutable_buffer into, Done done) override {
    stream_->async_read_some(into, std::move(done));
  }
  // In one piece: every buffer would become a record of its own.
  void Write(std::vector<asio::const_buffer> pieces, Done done) override {
    outgoing_.resize(asio::buffer_size(pieces));
    asio::buffer_copy(asio::buffer(outgoing_), pieces);
    asio::async_write(*stream_, asio::buffer(outgoing_), std::move(done));
  }
  // The stream lives until the client has answered, or Close has ended the wait.
  void EndSending() override {
    stream_->async_shutdown([stream = stream_](const ErrorCode&) {});
  }
  void Close() override {
    ErrorCode ignored;
    stream_->next_layer().close(ignored);
  }

 private:
  using Stream = asio::ssl::stream<tcp::socket>;
  const std::shared_ptr<Stream> stream_;
  std::string outgoing_;
};

class PemIdentity final : public TlsIdentity {
 public:
  std::unique_ptr<Transport> MakeTransport(tcp::socket socket) override {
    return std::make_unique<TlsTransport>(std::move(socket), context_);
  }

  Status Read(const std::string& cert_path, const std::string& key_path) {
    ErrorCode error;
    ::SSL_CTX_set_min_proto_version(context_.native_handle(), TLS1_2_VERSION);
    context_.set_options(asio::ssl::context::no_compression | SSL_OP_NO_RENEGOTIATION, error);
    // A key with a password would ask for it on a terminal that nobody looks at.
    context_.set_password_callback(
        [](size_t, asio::ssl::context::password_purpose) { return std::string(); }, error);
    context_.use_certificate_chain_file(cert_path, error);
    if (error) {
      return InvalidArgument("cannot use the certificate '" + cert_path + "': " + error.message());
    }
    context_.use_private_key_file(key_path, asio::ssl::context::pem, error);
    if (error) {
      return InvalidArgument("cannot use the key '" + key_path + "' with the certificate '" +
                             cert_path + "': " + error.message());
    }
    return OkStatus();
  }

 private:
  asio::ssl::context context_{asio::ssl::context::tls_server};
};

}  // namespace

std::unique_ptr<Transport> MakePlainTransport(tcp::socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

Result<std::shared_ptr<TlsIdentity>> ReadTlsIdentity(const std::string& cert_path,
                                                     const std::string& key_path) {
  const auto identity = std::make_shared<PemIdentity>();
  REPRISE_TRY(identity->Read(cert_path, key_path));
  return std::shared_ptr<TlsIdentity>(identity);
}

}  // namespace reprise::http
