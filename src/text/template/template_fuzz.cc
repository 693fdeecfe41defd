// SPDX-License-Identifier: Apache-2.0
// Any bytes as a template, rendered with a fixed conversation: no crash, no leak, no runaway.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/template/chat_template.h"

namespace {

constexpr char kMessages[] = R"([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "Weather in Köln? <b>\"now\"</b>"},
  {"role": "assistant", "content": "<think>\nhm\n</think>\n\n", "reasoning_content": "look",
    "tool_calls": [{"id": "call00001", "type": "function", "function":
      {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "exact": true,
        "x": null, "y": [1.5]}}}]},
  {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"temp\": 18}"},
  {"role": "user", "content": [{"type": "text", "text": "Thanks"}]}])";
constexpr char kTools[] =
    R"([{"type": "function", "function": {"name": "get_weather", "description": "d",
  "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["a", "b"]}},
  "required": ["city"]}}}])";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  reprise::ChatTemplateLimits limits;
  limits.steps_max = 60'000;
  limits.memory_bytes_max = size_t{32} << 20;
  limits.output_bytes_max = size_t{1} << 20;
  limits.boundary_steps_max = 20'000;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  auto chat = reprise::ChatTemplate::Parse(source, limits);
  if (!chat.ok()) return 0;
  static const auto& messages = *new auto(reprise::JsonDocument::Parse(kMessages));
  static const auto& tools = *new auto(reprise::JsonDocument::Parse(kTools));
  reprise::ChatInput input;
  input.messages = &messages->root();
  input.tools = &tools->root();
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.boundary_messages_max = 1;
  const auto rendered = chat->Render(input);
  if (!rendered.ok()) return 0;
  CHECK(rendered->text.size() <= limits.output_bytes_max);
  size_t last = 0;
  for (const auto& piece : rendered->data) {
    CHECK(piece.begin < piece.end && (piece.begin > last || last == 0));
    last = piece.end;
  }
  CHECK(last <= rendered->text.size());
  for (const auto& boundary : rendered->boundaries) {
    CHECK(boundary.byte_offset <= rendered->text.size());
  }
  return 0;
}
