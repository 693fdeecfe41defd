// SPDX-License-Identifier: Apache-2.0
// The request parser against any bytes, cut anywhere: no crash, and the cuts change nothing.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "http/request_parser.h"

namespace {

using reprise::http::Limits;
using reprise::http::Request;
using reprise::http::RequestParser;

struct Outcome {
  RequestParser::State state;
  int status = 0;
  std::string path;
  std::string body;
};

Outcome Run(std::string_view text, size_t piece) {
  Limits limits;
  limits.head_bytes_max = 4096;
  limits.body_bytes_max = 4096;
  RequestParser parser(limits);
  std::string buffer;
  size_t at = 0;
  for (;;) {
    const auto before = parser.state();
    if (before != RequestParser::State::kHead && before != RequestParser::State::kBody) break;
    const size_t used = buffer.empty() ? 0 : parser.Feed(buffer);
    CHECK(used <= buffer.size());
    buffer.erase(0, used);
    if (parser.state() != before || used > 0) continue;
    if (at == text.size()) break;
    buffer += text.substr(at, piece);
    at += std::min(piece, text.size() - at);
  }
  Outcome outcome;
  outcome.state = parser.state();
  if (outcome.state == RequestParser::State::kFailed) outcome.status = parser.status();
  if (outcome.state == RequestParser::State::kDone) {
    Request request = parser.Take();
    for (const char* name : {"a", "", "nodes"}) (void)request.QueryValue(name);
    outcome.path = std::move(request.path);
    outcome.body = std::move(request.body);
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 16384) return 0;
  const size_t piece = 1 + data[0] % 64;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Run(text, text.size() + 1);
  const Outcome cut = Run(text, piece);
  if (whole.state == RequestParser::State::kDone) {
    CHECK(cut.state == whole.state);
    CHECK(cut.path == whole.path && cut.body == whole.body);
  }
  return 0;
}
