// SPDX-License-Identifier: Apache-2.0
#include "http/request_parser.h"

#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <utility>

#include "base/check.h"

namespace reprise::http {
namespace {

namespace beast = boost::beast;

// A body in a string that grows with what arrives. (Beast's own reserves what the client
// announces.)
struct ArrivedBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool kIsRequest, class Fields>
    reader(beast::http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, beast::error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, beast::error_code& error) {
      error = {};
      size_t bytes = 0;
      for (const auto buffer : beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
        bytes += buffer.size();
      }
      return bytes;
    }
    void finish(beast::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

// "http://host/path" -> "/path": what clients send to a proxy, and servers must take, too.
std::string_view OriginForm(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualIgnoringCase(target.substr(0, scheme.size()), scheme)) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    return path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target;
}

}  // namespace

struct RequestParser::Beast {
  beast::http::request_parser<ArrivedBody> parser;
  State state = State::kHead;
  Request head;
  int status = 0;
  std::string problem;
  bool line_ended = false;  // the last byte of the head so far was the end of a line
  bool folded = false;      // a line of the head began with white space

  void LookForFolds(std::string_view bytes);
  void Fail(int code, std::string why) {
    state = State::kFailed;
    status = code;
    problem = std::move(why);
  }
  void TakeHead();
  void CheckHead(const Limits& limits);
};

void RequestParser::Beast::TakeHead() {
  const auto& message = parser.get();
  head.method = std::string(message.method_string());
  const std::string_view target =
      OriginForm(std::string_view(message.target().data(), message.target().size()));
  const size_t question = target.find('?');
  if (!PercentDecode(target.substr(0, question), &head.path)) head.path.clear();  // names nothing
  if (question != std::string_view::npos) head.query = std::string(target.substr(question + 1));
  for (const auto& field : message.base()) {
    head.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
}

// A header that goes on in the next line (obs-fold): Beast joins the lines, others end the header
// there; where two readers differ, requests are smuggled. The head may come in pieces.
void RequestParser::Beast::LookForFolds(std::string_view bytes) {
  for (const char c : bytes) {
    if (line_ended && (c == ' ' || c == '\t')) folded = true;
    line_ended = c == '\n';
  }
}

void RequestParser::Beast::CheckHead(const Limits& limits) {
  const auto& fields = parser.get().base();
  const auto hosts = fields.count(beast::http::field::host);
  const std::string_view encoding = head.Header("transfer-encoding");
  if (folded) {
    Fail(400, "a header goes on in the next line, which HTTP/1.1 has given up");
  } else if (head.headers.size() > limits.header_count_max) {
    Fail(431, "the request has more than " + std::to_string(limits.header_count_max) + " headers");
  } else if (hosts > 1) {
    Fail(400, "the request has more than one Host header");
  } else if (hosts == 0 && parser.get().version() >= 11) {
    Fail(400, "the request has no Host header");
  } else if (fields.count(beast::http::field::transfer_encoding) > 0 &&
             parser.get().version() < 11) {
    Fail(400, "HTTP/1.0 does not have Transfer-Encoding; send Content-Length");
  } else if (fields.count(beast::http::field::transfer_encoding) > 0 &&
             !EqualIgnoringCase(encoding, "chunked")) {
    Fail(501, "of the transfer encodings only 'chunked' is understood");
  }
}

RequestParser::RequestParser(const Limits& limits)
    : limits_(limits), beast_(std::make_unique<Beast>()) {
  beast_->parser.header_limit(static_cast<uint32_t>(limits.head_bytes_max));
  beast_->parser.body_limit(limits.body_bytes_max);
}

RequestParser::~RequestParser() = default;

size_t RequestParser::Feed(std::string_view bytes) {
  CHECK(state() == State::kHead || state() == State::kBody);
  if (state() == State::kHead) return FeedOnce(bytes);
  // The head of a chunk, and the trailer, must be whole within a slice: Beast sets them no limit.
  size_t used = 0;
  while (used < bytes.size() && state() == State::kBody) {
    const std::string_view slice = bytes.substr(used, limits_.head_bytes_max);
    const size_t taken = FeedOnce(slice);
    used += taken;
    if (taken > 0) continue;
    if (slice.size() == limits_.head_bytes_max && state() == State::kBody) {
      beast_->Fail(431, "the head of a chunk, or the trailer, is larger than " +
                            std::to_string(limits_.head_bytes_max) + " bytes");
    }
    break;
  }
  return used;
}

size_t RequestParser::FeedOnce(std::string_view bytes) {
  auto& parser = beast_->parser;
  beast::error_code error;
  const bool in_head = beast_->state == State::kHead;
  const size_t used = parser.put({bytes.data(), bytes.size()}, error);
  if (in_head) beast_->LookForFolds(bytes.substr(0, used));
  if (error == beast::http::error::need_more) error = {};
  if (error == beast::http::error::header_limit) {
    beast_->Fail(431, "the head of the request is larger than " +
                          std::to_string(limits_.head_bytes_max) + " bytes");
  } else if (error == beast::http::error::body_limit) {
    if (beast_->state == State::kHead) beast_->TakeHead();
    beast_->Fail(413, "the body of the request is larger than " +
                          std::to_string(limits_.body_bytes_max) + " bytes");
  } else if (error) {
    beast_->Fail(400, "this is not a valid HTTP/1.1 request: " + error.message());
  }
  if (beast_->state == State::kFailed) return used;

  if (beast_->state == State::kHead && parser.is_header_done()) {
    beast_->state = State::kBody;
    parser.eager(true);
    beast_->TakeHead();
    beast_->CheckHead(limits_);
  }
  if (beast_->state == State::kBody && parser.is_done()) beast_->state = State::kDone;
  return used;
}

RequestParser::State RequestParser::state() const { return beast_->state; }
int RequestParser::status() const { return beast_->status; }
const std::string& RequestParser::problem() const { return beast_->problem; }
const Request& RequestParser::head() const { return beast_->head; }
size_t RequestParser::body_bytes() const { return beast_->parser.get().body().size(); }

std::optional<uint64_t> RequestParser::content_length() const {
  const auto length = beast_->parser.content_length();
  return length ? std::optional<uint64_t>(*length) : std::nullopt;
}

bool RequestParser::keep_alive() const { return beast_->parser.keep_alive(); }
bool RequestParser::is_http_1_0() const { return beast_->parser.get().version() < 11; }

bool RequestParser::expects_continue() const {
  return !is_http_1_0() && EqualIgnoringCase(head().Header("expect"), "100-continue");
}

Request RequestParser::Take() {
  CHECK(state() == State::kDone);
  Request request = std::move(beast_->head);
  request.body = std::move(beast_->parser.get().body());
  return request;
}

}  // namespace reprise::http
