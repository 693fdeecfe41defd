// SPDX-License-Identifier: Apache-2.0
// The parser of answers against any bytes, cut anywhere: no crash, bounded memory, and the cuts
// change nothing. Addresses of redirects, too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "hub/net/response_parser.h"
#include "hub/net/url.h"

namespace {

using reprise::hub::ResponseParser;
using reprise::hub::Url;

struct Outcome {
  ResponseParser::State state;
  std::string body;
  int status = 0;
};

Outcome Run(std::string_view text, size_t piece, bool has_body) {
  ResponseParser parser(has_body);
  Outcome outcome;
  for (size_t at = 0; at < text.size(); at += piece) {
    parser.Feed(text.substr(at, piece), &outcome.body);
  }
  parser.End();
  outcome.state = parser.state();
  CHECK(outcome.body.size() <= text.size());
  CHECK(outcome.state == ResponseParser::State::kDone ||
        outcome.state == ResponseParser::State::kFailed);
  if (outcome.state != ResponseParser::State::kDone) return outcome;
  outcome.status = parser.head().status;
  CHECK(outcome.status >= 200 && outcome.status <= 999);
  const std::string* location = parser.head().Find("location");
  if (location == nullptr) return outcome;
  const auto base = Url::Parse("https://hub.example/a");
  const auto next = base->Resolve(*location);
  if (!next.ok()) return outcome;
  // What was understood is what is asked for: spelled out, it means the same, on one line.
  const std::string spelled = next->ToString();
  CHECK(spelled.find_first_of("\r\n ") == std::string::npos);
  const auto again = Url::Parse(spelled);
  CHECK(again.ok() && again->SameOrigin(*next) && again->target == next->target);
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > (1 << 17)) return 0;
  const size_t piece = 1 + data[0] % 32;
  const bool has_body = data[0] < 224;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Run(text, text.size() + 1, has_body);
  const Outcome cut = Run(text, piece, has_body);
  CHECK(whole.state == cut.state && whole.body == cut.body && whole.status == cut.status);
  return 0;
}
