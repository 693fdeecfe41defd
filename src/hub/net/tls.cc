// SPDX-License-Identifier: Apache-2.0
#include "hub/net/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>
#include <vector>

namespace reprise::hub {
namespace {

// Where distributions keep the authorities that they trust. OpenSSL knows the one of the system
// that it was built for; a program that was linked statically runs on others, too.
constexpr const char* kAuthorities[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};

std::string LastError() {
  const unsigned long code = ::ERR_peek_last_error();
  ::ERR_clear_error();
  char text[160] = "unknown";
  if (code != 0) ::ERR_error_string_n(code, text, sizeof text);
  return text;
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// The library reads and writes memory; this class moves those bytes over the stream below.
class TlsStream final : public Stream {
 public:
  explicit TlsStream(std::unique_ptr<Stream> below) : below_(std::move(below)) {}
  ~TlsStream() override {
    ::SSL_free(ssl_);
    ::SSL_CTX_free(context_);
  }
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  Status Open(const std::string& host, const Patience& patience) {
    context_ = ::SSL_CTX_new(::TLS_client_method());
    if (context_ == nullptr) return Internal("TLS cannot be started: " + LastError());
    ::SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
    REPRISE_TRY(LoadAuthorities());
    ::SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    ssl_ = ::SSL_new(context_);
    BIO* incoming = ::BIO_new(::BIO_s_mem());
    BIO* outgoing = ::BIO_new(::BIO_s_mem());
    if (ssl_ == nullptr || incoming == nullptr || outgoing == nullptr) {
      return Internal("TLS cannot be started: " + LastError());
    }
    ::SSL_set_bio(ssl_, incoming, outgoing);  // owned by ssl_ from here
    if (IsAddress(host)) {
      ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl_), host.c_str());
    } else {
      ::SSL_set_tlsext_host_name(ssl_, host.c_str());
      ::SSL_set1_host(ssl_, host.c_str());
    }
    const Result<int> shaken = Drive(patience, [&] { return ::SSL_connect(ssl_); });
    if (shaken.ok()) return *shaken == 1 ? OkStatus() : Internal(host + " ended the connection");
    const long verdict = ::SSL_get_verify_result(ssl_);
    if (verdict != X509_V_OK) {
      return FailedPrecondition("the certificate of " + host + " cannot be trusted (" +
                                ::X509_verify_cert_error_string(verdict) +
                                "); where a proxy has its own authority, name its file with "
                                "SSL_CERT_FILE");
    }
    return shaken.status();
  }

  Status Write(std::string_view bytes, const Patience& patience) override {
    while (!bytes.empty()) {
      REPRISE_ASSIGN(const int count, Drive(patience, [&] {
                       return ::SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
                     }));
      if (count == 0) return Internal("the connection was cut");
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return OkStatus();
  }

  Result<size_t> Read(std::span<char> into, const Patience& patience) override {
    REPRISE_ASSIGN(const int count, Drive(patience, [&] {
                     return ::SSL_read(ssl_, into.data(), static_cast<int>(into.size()));
                   }));
    return static_cast<size_t>(count);
  }

 private:
  Status LoadAuthorities() {
    ::SSL_CTX_set_default_verify_paths(context_);
    if (std::getenv("SSL_CERT_FILE") != nullptr) return OkStatus();
    for (const char* path : kAuthorities) {
      if (::access(path, R_OK) == 0 &&
          ::SSL_CTX_load_verify_locations(context_, path, nullptr) == 1) {
        break;
      }
    }
    ::ERR_clear_error();
    return OkStatus();
  }

  // Repeats `step` while it wants bytes of the other side. Its result if that is positive; 0: the
  // other side has said that it ends the connection.
  template <typename Step>
  Result<int> Drive(const Patience& patience, const Step& step) {
    for (;;) {
      ::ERR_clear_error();
      const int result = step();
      const int error = ::SSL_get_error(ssl_, result);
      REPRISE_TRY(Flush(patience));
      if (result > 0) return result;
      if (error == SSL_ERROR_ZERO_RETURN) return 0;
      if (error != SSL_ERROR_WANT_READ) return Internal("TLS failed: " + LastError());
      char bytes[16384];
      REPRISE_ASSIGN(const size_t count, below_->Read(bytes, patience));
      // Not a sound end: somebody between may have cut it.
      if (count == 0) return Internal("the connection was cut");
      ::BIO_write(::SSL_get_rbio(ssl_), bytes, static_cast<int>(count));
    }
  }

  Status Flush(const Patience& patience) {
    char* bytes = nullptr;
    BIO* outgoing = ::SSL_get_wbio(ssl_);
    const long count = ::BIO_get_mem_data(outgoing, &bytes);
    if (count <= 0) return OkStatus();
    REPRISE_TRY(below_->Write({bytes, static_cast<size_t>(count)}, patience));
    (void)BIO_reset(outgoing);
    return OkStatus();
  }

  const std::unique_ptr<Stream> below_;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Stream>> OpenTls(std::unique_ptr<Stream> below, const std::string& host,
                                        const Patience& patience) {
  auto stream = std::make_unique<TlsStream>(std::move(below));
  REPRISE_TRY(stream->Open(host, patience));
  return std::unique_ptr<Stream>(std::move(stream));
}

}  // namespace reprise::hub
