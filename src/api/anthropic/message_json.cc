// SPDX-License-Identifier: Apache-2.0
#include "api/anthropic/message_json.h"

#include <algorithm>

#include "base/sha256.h"

namespace reprise::api::anthropic {

MessageHead MakeHead(const ServedModel& model, const Prompt& prompt, int hour_breakpoints,
                     bool show_thinking) {
  MessageHead head;
  head.id = MakeRandomId("msg_");
  head.model = model.id;
  head.prompt_tokens = static_cast<int64_t>(prompt.ids.size());
  head.context_tokens = model.context_tokens;
  head.show_thinking = show_thinking;
  int count = 0;
  for (const Boundary& boundary : prompt.boundaries) {
    if (boundary.kind != BoundaryKind::kBreakpoint) continue;
    head.kept_tokens = boundary.position;
    if (++count <= hour_breakpoints) head.hour_tokens = boundary.position;
  }
  return head;
}

std::string SignatureOf(const Block& block) { return Sha256Hex(block.text).substr(0, 16); }

void WriteBlock(const Block& block, const MessageHead& head, bool empty, JsonWriter* json) {
  json->BeginObject();
  switch (block.kind) {
    case OutputEvent::Kind::kContent:
      json->Member("type", "text").Member("text", empty ? "" : block.text);
      break;
    case OutputEvent::Kind::kReasoning: {
      const bool hidden = empty || !head.show_thinking;
      json->Member("type", "thinking").Member("thinking", hidden ? "" : block.text);
      json->Member("signature", empty ? "" : SignatureOf(block));
      break;
    }
    case OutputEvent::Kind::kCallBegin:
    case OutputEvent::Kind::kArguments:
    case OutputEvent::Kind::kCallEnd:
      if (!empty && !block.complete) {
        // An input must be an object; nobody is to run a tool with half of one.
        json->Member("type", "text").Member("text", block.name + " " + block.text);
        break;
      }
      json->Member("type", "tool_use").Member("id", block.id).Member("name", block.name);
      json->Key("input").Raw(empty ? "{}" : block.text);
      break;
  }
  json->EndObject();
}

void WriteStop(const Choice* choice, const MessageHead& head, JsonWriter* json) {
  const char* reason = nullptr;
  const std::string* sequence = nullptr;
  if (choice != nullptr) {
    const Completion& completion = choice->completion;
    switch (choice->stop) {
      case StopKind::kEnd:
        reason = "end_turn";
        break;
      case StopKind::kToolCalls:
        reason = "tool_use";
        break;
      case StopKind::kLength:
        reason = completion.prompt_tokens + completion.generated_tokens >= head.context_tokens
                     ? "model_context_window_exceeded"
                     : "max_tokens";
        break;
      case StopKind::kStopString:
        reason = "stop_sequence";
        sequence = &choice->matched_stop;
        break;
    }
  }
  json->Key("stop_reason");
  reason == nullptr ? json->Null() : json->String(reason);
  json->Key("stop_sequence");
  sequence == nullptr ? json->Null() : json->String(*sequence);
}

void WriteDiagnostics(const Usage& usage, const MessageHead& head, JsonWriter* json) {
  if (head.miss.type.empty()) {
    json->Null();
    return;
  }
  json->BeginObject().Key("cache_miss_reason").BeginObject().Member("type", head.miss.type);
  if (head.miss.tokens_before >= 0) {
    json->Member("cache_missed_input_tokens",
                 std::max<int64_t>(0, head.miss.tokens_before - usage.cached_tokens));
  }
  json->EndObject().EndObject();
}

void WriteUsage(const Usage& usage, const MessageHead& head, JsonWriter* json) {
  const int64_t read = usage.cached_tokens;
  const int64_t kept = std::clamp<int64_t>(head.kept_tokens - read, 0, usage.written_tokens);
  const int64_t hour = std::clamp<int64_t>(head.hour_tokens - read, 0, kept);
  json->BeginObject();
  json->Member("input_tokens", usage.prompt_tokens - read - kept);
  json->Member("cache_creation_input_tokens", kept);
  json->Member("cache_read_input_tokens", read);
  json->Key("cache_creation").BeginObject();
  json->Member("ephemeral_5m_input_tokens", kept - hour);
  json->Member("ephemeral_1h_input_tokens", hour).EndObject();
  json->Member("output_tokens", usage.completion_tokens);
  json->Member("service_tier", "standard");
  json->EndObject();
}

}  // namespace reprise::api::anthropic
