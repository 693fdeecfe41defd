// SPDX-License-Identifier: Apache-2.0
// Any bytes as a reply: the events add up to the same, whole and cut in pieces.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/output/output_parser.h"

namespace {

// The events of a reply fed in pieces of `size` bytes, as one text.
std::string Summary(const reprise::OutputFormat& format, std::string_view text, size_t size) {
  reprise::OutputParser parser(format, nullptr);
  reprise::OutputEvents merged;
  const auto add = [&](const reprise::OutputEvents& events) {
    for (const auto& event : events) {
      if (event.kind == reprise::OutputEvent::Kind::kCall) {
        const auto arguments = reprise::JsonDocument::Parse(event.text);
        CHECK(arguments.ok() && arguments->root().is_object());
        AppendCall(event.name, event.text, &merged);
      } else {
        AppendText(event.kind, event.text, &merged);
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += size) add(parser.Feed(text.substr(at, size)));
  add(parser.Finish());
  std::string out;
  for (const auto& event : merged) {
    out += static_cast<char>('0' + static_cast<int>(event.kind));
    out += event.name + ":" + event.text + "\n";
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  reprise::OutputFormat format;
  format.calls = static_cast<reprise::OutputFormat::Calls>(data[0] % 3);
  format.functions = (data[0] & 16) != 0;
  format.thinks = (data[0] & 4) != 0;
  format.thinking_begun = (data[0] & 8) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = Summary(format, text, size);
  CHECK(Summary(format, text, 1) == whole);
  CHECK(Summary(format, text, 7) == whole);
  return 0;
}
