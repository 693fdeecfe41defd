// SPDX-License-Identifier: Apache-2.0
// Any bytes as a reply, read in any of the formats: the events add up to the same, whole and cut in
// pieces; calls begin and end in turn, and those that are complete have a JSON object.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/output/body/json_syntax.h"
#include "text/output/output_parser.h"

namespace {

using Kind = reprise::OutputEvent::Kind;

constexpr char kTools[] = R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"},
  "i": {"type": "integer"}, "o": {"type": "object", "properties": {"a": {"type": "array"}}},
  "a": {"type": "array", "items": {"type": "number"}}, "u": {"type": ["string", "null"]}}}}])";

const reprise::JsonValue* Tools() {
  static const auto& document = *new auto(reprise::JsonDocument::Parse(kTools));
  return &document->root();
}

// The events of a reply fed in pieces of `size` bytes, as one text.
std::string Summary(const reprise::OutputFormat& format, std::string_view text, size_t size) {
  reprise::OutputParser parser(format, Tools());
  reprise::OutputEvents merged;
  const auto add = [&](const reprise::OutputEvents& events) {
    for (const auto& event : events) AppendEvent(event, &merged);
  };
  for (size_t at = 0; at < text.size(); at += size) add(parser.Feed(text.substr(at, size)));
  add(parser.Finish());
  std::string out;
  std::string arguments;
  bool open = false;
  for (const auto& event : merged) {
    CHECK(open == (event.kind == Kind::kArguments || event.kind == Kind::kCallEnd));
    if (event.kind == Kind::kCallBegin) {
      CHECK(!event.name.empty());
      open = true;
      arguments.clear();
    } else if (event.kind == Kind::kArguments) {
      arguments += event.text;
    } else if (event.kind == Kind::kCallEnd) {
      const auto parsed = reprise::JsonDocument::Parse(arguments);
      const bool object = parsed.ok() && parsed->root().is_object();
      CHECK(event.complete || !object);
      CHECK(!event.complete || reprise::JsonKindOf(arguments) == reprise::JsonValue::Kind::kObject);
      open = false;
    }
    out += static_cast<char>('0' + static_cast<int>(event.kind));
    out += event.name + ":" + event.id + ":" + event.text + "\n";
  }
  CHECK(!open);
  return out;
}

}  // namespace

// The first three bytes choose the formats.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const auto calls = reprise::CallFormats();
  const auto reasonings = reprise::ReasoningFormats();
  reprise::OutputFormat format;
  format.calls = {&calls[data[0] % calls.size()], &calls[data[1] % calls.size()]};
  const size_t reasoning = data[2] % (2 * reasonings.size() + 1);
  if (reasoning > 0) format.reasoning = &reasonings[(reasoning - 1) / 2];
  format.thinking_begun = reasoning > 0 && reasoning % 2 == 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::string whole = Summary(format, text, size);
  CHECK(Summary(format, text, 1) == whole);
  CHECK(Summary(format, text, 7) == whole);
  return 0;
}
