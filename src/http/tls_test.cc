// SPDX-License-Identifier: Apache-2.0
// The server behind TLS: requests, streams and their ends, a certificate that is replaced while it
// runs, and clients that do not speak TLS or never finish the handshake.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "http/server.h"

namespace reprise::http {
namespace {

using namespace std::chrono_literals;

std::string Folder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return folder != nullptr ? folder : testing::TempDir();
}

// Writes a self-signed certificate for `name`, and its key.
void WriteIdentity(const std::string& name, const std::string& cert, const std::string& key) {
  EVP_PKEY* pair = EVP_EC_gen("P-256");
  X509* x509 = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), 0);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, pair);
  X509_NAME* subject = X509_get_subject_name(x509);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(x509, subject);
  X509_sign(x509, pair, EVP_sha256());
  FILE* file = std::fopen(cert.c_str(), "w");
  PEM_write_X509(file, x509);
  std::fclose(file);
  file = std::fopen(key.c_str(), "w");
  PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  X509_free(x509);
  EVP_PKEY_free(pair);
}

int Connect(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const timeval patience = {5, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return socket;
}

class TlsClient {
 public:
  explicit TlsClient(uint16_t port)
      : context_(SSL_CTX_new(TLS_client_method())),
        ssl_(SSL_new(context_)),
        socket_(Connect(port)) {
    SSL_set_fd(ssl_, socket_);
    EXPECT_EQ(SSL_connect(ssl_), 1);
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ::close(socket_);
  }
  void Send(std::string_view bytes) {
    EXPECT_EQ(SSL_write(ssl_, bytes.data(), int(bytes.size())), int(bytes.size()));
  }
  // Everything up to `end`, or to where the server ends the connection.
  std::string ReadUntil(std::string_view end) {
    std::string text;
    char bytes[4096];
    while (text.find(end) == std::string::npos) {
      const int count = SSL_read(ssl_, bytes, sizeof(bytes));
      if (count <= 0) {
        ended_well_ = SSL_get_error(ssl_, count) == SSL_ERROR_ZERO_RETURN;
        break;
      }
      text.append(bytes, static_cast<size_t>(count));
    }
    return text;
  }
  bool ended_well() const { return ended_well_; }  // the server said that nothing more comes
  std::string CertificateName() {
    X509* x509 = SSL_get1_peer_certificate(ssl_);
    char name[256] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(x509), NID_commonName, name, sizeof(name));
    X509_free(x509);
    return name;
  }

 private:
  SSL_CTX* const context_;
  SSL* const ssl_;
  const int socket_;
  bool ended_well_ = false;
};

class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // OpenSSL's client writes to connections that are gone
    options_.port = 0;
    options_.tls_cert = Folder() + "tls_test_cert.pem";
    options_.tls_key = Folder() + "tls_test_key.pem";
    options_.refuse = [](int status, const std::string& message, const Request*) {
      Response response;
      response.status = status;
      response.body = message;
      return response;
    };
    WriteIdentity("first", options_.tls_cert, options_.tls_key);
  }
  Router MakeRouter() {
    Router router;
    router.Add("POST", "/echo", RunOn::kWorker, [](const ExchangePtr& exchange) {
      Response response;
      response.body = exchange->request().body;
      exchange->Respond(std::move(response));
    });
    router.Add("GET", "/stream", RunOn::kWorker, [](const ExchangePtr& exchange) {
      exchange->StartStream({});
      for (int i = 0; i < 1000; ++i) exchange->Send("data: " + std::to_string(i) + "\n\n");
      exchange->End();
    });
    return router;
  }

  ServerOptions options_;
};

TEST_F(TlsTest, AnswersStreamsAndEndsWell) {
  Server server(options_, MakeRouter());
  ASSERT_TRUE(server.Start().ok());
  TlsClient client(server.port());
  const std::string body(200'000, 'x');
  client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  EXPECT_EQ(client.ReadUntil(body).find("HTTP/1.1 200"), 0u);
  client.Send("GET /stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string stream = client.ReadUntil("never");
  EXPECT_NE(stream.find("data: 999\n\n\r\n0\r\n\r\n"), std::string::npos);
  EXPECT_TRUE(client.ended_well());
  server.Stop();
}

TEST_F(TlsTest, ACertificateIsReplacedWhileTheServerRuns) {
  Server server(options_, MakeRouter());
  ASSERT_TRUE(server.Start().ok());
  TlsClient before(server.port());
  EXPECT_EQ(before.CertificateName(), "first");
  WriteIdentity("second", options_.tls_cert, options_.tls_key);
  ASSERT_TRUE(server.ReloadTls().ok());
  EXPECT_EQ(TlsClient(server.port()).CertificateName(), "second");
  // The certificate of another key: the one before stays.
  WriteIdentity("third", options_.tls_cert, options_.tls_key + ".other");
  EXPECT_NE(server.ReloadTls().message().find("cannot use the key"), std::string::npos);
  EXPECT_EQ(TlsClient(server.port()).CertificateName(), "second");
  before.Send("GET /nope HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(before.ReadUntil("nothing").find("HTTP/1.1 404"), 0u) << "it was open before";
  server.Stop();
}

TEST_F(TlsTest, OthersAreCutOff) {
  options_.head_max = 200ms;
  Server server(options_, MakeRouter());
  ASSERT_TRUE(server.Start().ok());
  for (const std::string_view said : {"GET /stream HTTP/1.1\r\n\r\n", ""}) {
    const int socket = Connect(server.port());
    EXPECT_EQ(::send(socket, said.data(), said.size(), MSG_NOSIGNAL), ssize_t(said.size()));
    char bytes[256];
    ssize_t count = 0;
    while ((count = ::recv(socket, bytes, sizeof(bytes), 0)) > 0) {
      EXPECT_EQ(std::string_view(bytes, size_t(count)).find("data"), std::string_view::npos);
    }
    EXPECT_EQ(count, 0) << "closed, not waited for";
    ::close(socket);
  }
  server.Stop();
}

TEST_F(TlsTest, WrongFilesAreASentence) {
  options_.tls_key = "";
  EXPECT_NE(Server(options_, MakeRouter()).Start().message().find("one of them is missing"),
            std::string::npos);
  options_.tls_key = options_.tls_cert;
  EXPECT_NE(Server(options_, MakeRouter()).Start().message().find("cannot use the key"),
            std::string::npos);
  options_.tls_cert = "/nowhere.pem";
  EXPECT_NE(Server(options_, MakeRouter()).Start().message().find("'/nowhere.pem'"),
            std::string::npos);
}

}  // namespace
}  // namespace reprise::http
