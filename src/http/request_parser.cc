// SPDX-License-Identifier: Apache-2.0
#include "http/request_parser.h"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

#include "base/check.h"

namespace reprise::http {

namespace beast = boost::beast;

struct RequestParser::Beast {
  beast::http::request_parser<beast::http::string_body> parser;
  State state = State::kHead;
  int status = 0;
  std::string problem;

  void Fail(int code, std::string why) {
    state = State::kFailed;
    status = code;
    problem = std::move(why);
  }
};

RequestParser::RequestParser(const Limits& limits)
    : limits_(limits), beast_(std::make_unique<Beast>()) {
  beast_->parser.header_limit(static_cast<uint32_t>(limits.head_bytes_max));
  beast_->parser.body_limit(limits.body_bytes_max);
}

RequestParser::~RequestParser() = default;

size_t RequestParser::Feed(std::string_view bytes) {
  CHECK(state() == State::kHead || state() == State::kBody);
  auto& parser = beast_->parser;
  beast::error_code error;
  const size_t used = parser.put({bytes.data(), bytes.size()}, error);
  if (error == beast::http::error::need_more) error = {};
  if (error == beast::http::error::header_limit) {
    beast_->Fail(431, "the head of the request is larger than " +
                          std::to_string(limits_.head_bytes_max) + " bytes");
  } else if (error == beast::http::error::body_limit) {
    beast_->Fail(413, "the body of the request is larger than " +
                          std::to_string(limits_.body_bytes_max) + " bytes");
  } else if (error) {
    beast_->Fail(400, "this is not a valid HTTP/1.1 request: " + error.message());
  }
  if (beast_->state == State::kFailed) return used;

  if (beast_->state == State::kHead && parser.is_header_done()) {
    beast_->state = State::kBody;
    parser.eager(true);
    const auto& fields = parser.get().base();
    const auto count = static_cast<size_t>(std::distance(fields.begin(), fields.end()));
    if (count > limits_.header_count_max) {
      beast_->Fail(431, "the request has more than " + std::to_string(limits_.header_count_max) +
                            " headers");
    } else if (fields.count(beast::http::field::host) > 1) {
      beast_->Fail(400, "the request has more than one Host header");
    } else if (fields.count(beast::http::field::transfer_encoding) > 0 && !parser.chunked()) {
      beast_->Fail(501, "of the transfer encodings only 'chunked' is understood");
    }
  }
  if (beast_->state == State::kBody && parser.is_done()) beast_->state = State::kDone;
  return used;
}

RequestParser::State RequestParser::state() const { return beast_->state; }
int RequestParser::status() const { return beast_->status; }
const std::string& RequestParser::problem() const { return beast_->problem; }

std::optional<uint64_t> RequestParser::content_length() const {
  const auto length = beast_->parser.content_length();
  return length ? std::optional<uint64_t>(*length) : std::nullopt;
}

bool RequestParser::chunked() const { return beast_->parser.chunked(); }
bool RequestParser::keep_alive() const { return beast_->parser.keep_alive(); }
bool RequestParser::is_http_1_0() const { return beast_->parser.get().version() < 11; }

bool RequestParser::expects_continue() const {
  const auto expect = beast_->parser.get()[beast::http::field::expect];
  return EqualIgnoringCase({expect.data(), expect.size()}, "100-continue");
}

Request RequestParser::Take() {
  CHECK(state() == State::kDone);
  auto message = beast_->parser.release();
  Request request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const size_t question = target.find('?');
  if (!PercentDecode(std::string_view(target).substr(0, question), &request.path)) {
    request.path.clear();  // names nothing
  }
  if (question != std::string::npos) request.query = target.substr(question + 1);
  for (const auto& field : message.base()) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(message.body());
  return request;
}

}  // namespace reprise::http
