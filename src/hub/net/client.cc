// SPDX-License-Identifier: Apache-2.0
#include "hub/net/client.h"

#include <memory>
#include <utility>

#include "hub/net/stream.h"
#include "hub/net/tls.h"
#include "version.gen.h"

namespace reprise::hub {
namespace {

constexpr int kRedirectsMax = 8;
constexpr size_t kPieceBytes = 128 << 10;

std::string Host(const std::string& host, uint16_t port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" +
         std::to_string(port);
}

// Reads until the head of the answer is there. What follows the head in the last piece goes to
// `body`.
Status ReadHead(Stream* stream, const Patience& patience, ResponseParser* parser,
                std::string* body) {
  char bytes[16384];
  while (parser->state() == ResponseParser::State::kHead) {
    REPRISE_ASSIGN(const size_t count, stream->Read(bytes, patience));
    if (count == 0) {
      parser->End();
    } else {
      parser->Feed({bytes, count}, body);
    }
  }
  if (parser->state() == ResponseParser::State::kFailed) return Internal(parser->error());
  return OkStatus();
}

// A way through the proxy to the other side of `url`.
Status OpenTunnel(Stream* stream, const Url& url, const Proxy& proxy, const Patience& patience) {
  const std::string place = Host(url.host, url.port);
  std::string text = "CONNECT " + place + " HTTP/1.1\r\nHost: " + place + "\r\n";
  if (!proxy.credentials.empty()) {
    text += "Proxy-Authorization: Basic " + proxy.credentials + "\r\n";
  }
  REPRISE_TRY(stream->Write(text + "\r\n", patience));
  // Byte by byte: what follows the head belongs to the tunnel.
  ResponseParser parser(false);
  std::string none;
  char byte = 0;
  while (parser.state() == ResponseParser::State::kHead) {
    REPRISE_ASSIGN(const size_t count, stream->Read({&byte, 1}, patience));
    if (count == 0) {
      parser.End();
    } else {
      parser.Feed({&byte, 1}, &none);
    }
  }
  if (parser.state() == ResponseParser::State::kFailed) {
    return Internal("the proxy " + proxy.host + ": " + parser.error());
  }
  const int status = parser.head().status;
  if (status >= 200 && status < 300) return OkStatus();
  const std::string what = "the proxy " + proxy.host + " answers " + std::to_string(status);
  if (status == 407) {
    return FailedPrecondition(what +
                              ": give its user and password, as in "
                              "HTTPS_PROXY=http://user:password@" +
                              proxy.host);
  }
  return status >= 500 ? Internal(what) : FailedPrecondition(what);
}

Result<std::unique_ptr<Stream>> OpenStream(const Url& url, const std::optional<Proxy>& proxy,
                                           const HttpOptions& options) {
  const auto patience = [&] { return Patience(options.connect_limit, options.cancelled); };
  REPRISE_ASSIGN(
      std::unique_ptr<Stream> stream,
      Connect(proxy ? proxy->host : url.host, proxy ? proxy->port : url.port, patience()));
  if (!url.tls) return stream;
  if (proxy) REPRISE_TRY(OpenTunnel(stream.get(), url, *proxy, patience()));
  return OpenTls(std::move(stream), url.host, patience());
}

std::string RequestText(const HttpRequest& request, const Url& url, bool with_token,
                        const std::optional<Proxy>& proxy) {
  const bool whole_address = proxy && !url.tls;
  std::string text = std::string(request.method) + " " +
                     (whole_address ? url.ToString() : url.target) + " HTTP/1.1\r\n";
  text += "Host: " + url.authority() + "\r\n";
  text += std::string("User-Agent: reprise/") + kVersion + "\r\n";
  text += "Accept: */*\r\nAccept-Encoding: identity\r\nConnection: close\r\n";
  if (whole_address && !proxy->credentials.empty()) {
    text += "Proxy-Authorization: Basic " + proxy->credentials + "\r\n";
  }
  if (with_token) text += "Authorization: Bearer " + request.token + "\r\n";
  if (request.begin) {
    text += "Range: bytes=" + std::to_string(*request.begin) + "-" +
            (request.end ? std::to_string(*request.end - 1) : "") + "\r\n";
  }
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  const bool has_body = std::string_view(request.method) == "POST";
  if (has_body) text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return text + "\r\n" + (has_body ? request.body : "");
}

// One request to one place.
class Exchange {
 public:
  Exchange(const HttpRequest& request, const HttpOptions& options)
      : options_(options), parser_(std::string_view(request.method) != "HEAD") {}

  Status Send(const HttpRequest& request, const Url& url, bool with_token) {
    REPRISE_ASSIGN(const std::optional<Proxy> proxy, FindProxy(url, options_.environment));
    REPRISE_ASSIGN(stream_, OpenStream(url, proxy, options_));
    const Patience patience(options_.answer_limit, options_.cancelled);
    REPRISE_TRY(stream_->Write(RequestText(request, url, with_token, proxy), patience));
    return ReadHead(stream_.get(), patience, &parser_, &body_);
  }

  const ResponseHead& head() const { return parser_.head(); }

  Status ReadBody(const BodySink& sink) {
    const std::string* coding = head().Find("content-encoding");
    if (coding != nullptr && *coding != "identity" && !coding->empty()) {
      return FailedPrecondition("the answer is compressed, which was not asked for");
    }
    std::string piece(kPieceBytes, '\0');
    for (;;) {
      if (!body_.empty() && sink.on_body) REPRISE_TRY(sink.on_body(body_));
      body_.clear();
      if (parser_.state() == ResponseParser::State::kDone) return OkStatus();
      if (parser_.state() == ResponseParser::State::kFailed) return Internal(parser_.error());
      const Patience patience(options_.pause_limit, options_.cancelled);
      REPRISE_ASSIGN(const size_t count, stream_->Read(piece, patience));
      if (count == 0) {
        parser_.End();
      } else {
        parser_.Feed({piece.data(), count}, &body_);
      }
    }
  }

 private:
  const HttpOptions& options_;
  std::unique_ptr<Stream> stream_;
  ResponseParser parser_;
  std::string body_;
};

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

Result<HttpAnswer> Fetch(const HttpRequest& request, const HttpOptions& options,
                         const BodySink& sink) {
  HttpAnswer answer;
  answer.url = request.url;
  bool at_home = true;
  for (int redirects = 0;; ++redirects) {
    const bool own = answer.url.SameOrigin(request.url);
    Exchange exchange(request, options);
    REPRISE_TRY(exchange.Send(request, answer.url, own && !request.token.empty()));
    answer.head = exchange.head();
    if (at_home) answer.first = answer.head;
    const std::string* location = answer.head.Find("location");
    if (!IsRedirect(answer.head.status) || location == nullptr) {
      if (sink.on_head) REPRISE_TRY(sink.on_head(answer));
      REPRISE_TRY(exchange.ReadBody(sink));
      return answer;
    }
    if (redirects == kRedirectsMax) {
      return FailedPrecondition(request.url.host + " redirects without end");
    }
    Result<Url> next = answer.url.Resolve(*location);
    if (!next.ok()) return FailedPrecondition(next.status().message()).Annotate("a redirect");
    if (answer.url.tls && !next->tls) {
      return FailedPrecondition(answer.url.host + " redirects from https to http");
    }
    at_home = at_home && next->SameOrigin(request.url);
    if (!next->SameOrigin(request.url) && !request.other_hosts) {
      if (sink.on_head) REPRISE_TRY(sink.on_head(answer));
      return answer;
    }
    answer.url = std::move(*next);
  }
}

}  // namespace reprise::hub
