// SPDX-License-Identifier: Apache-2.0
#include "api/openai/format.h"

#include <chrono>
#include <cmath>

#include "base/utf8.h"

namespace reprise::api::openai {
namespace {

// Log probabilities below it are written as it is; JSON has no infinity.
constexpr float kLogprobMin = -9999.0f;

double Logprob(float value) {
  return static_cast<double>(value > kLogprobMin ? value : kLogprobMin);
}

void WriteToken(const ReplyToken& token, JsonWriter* json) {
  json->Member("token", token.bytes).Member("logprob", Logprob(token.logprob));
  json->Key("bytes").BeginArray();
  for (const char byte : token.bytes) json->Int(static_cast<unsigned char>(byte));
  json->EndArray();
}

int64_t CountCharacters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

const char* FinishName(StopKind stop) {
  switch (stop) {
    case StopKind::kLength:
      return "length";
    case StopKind::kToolCalls:
      return "tool_calls";
    default:
      return "stop";
  }
}

int64_t NowSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string MakeId(const char* prefix, const http::Request& request) {
  return std::string(prefix) + request.id;
}

void WriteUsage(const Usage& usage, JsonWriter* json) {
  json->Key("usage").BeginObject();
  json->Member("prompt_tokens", usage.prompt_tokens);
  json->Member("completion_tokens", usage.completion_tokens);
  json->Member("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json->Key("prompt_tokens_details").BeginObject();
  json->Member("cached_tokens", usage.cached_tokens);
  json->Member("cache_write_tokens", usage.written_tokens).EndObject();
  json->Key("completion_tokens_details").BeginObject();
  json->Member("reasoning_tokens", usage.reasoning_tokens);
  json->Member("accepted_prediction_tokens", usage.drafts.accepted);
  json->Member("rejected_prediction_tokens", usage.drafts.run - usage.drafts.accepted).EndObject();
  json->EndObject();
}

void WriteTokenIds(const std::vector<ReplyToken>& tokens, JsonWriter* json) {
  json->Key("token_ids").BeginArray();
  for (const ReplyToken& token : tokens) json->Int(token.id);
  json->EndArray();
}

void WriteTokenWithTop(const ReplyToken& token, JsonWriter* json) {
  json->BeginObject();
  WriteToken(token, json);
  json->Key("top_logprobs").BeginArray();
  for (const ReplyToken& other : token.top) {
    json->BeginObject();
    WriteToken(other, json);
    json->EndObject();
  }
  json->EndArray().EndObject();
}

void WriteChatLogprobs(const std::vector<ReplyToken>& tokens, JsonWriter* json) {
  json->Key("logprobs").BeginObject().Key("content").BeginArray();
  for (const ReplyToken& token : tokens) WriteTokenWithTop(token, json);
  json->EndArray().Key("refusal").Null().EndObject();
}

void WriteCompletionLogprobs(const std::vector<ReplyToken>& tokens, int64_t* offset,
                             JsonWriter* json) {
  json->Key("logprobs").BeginObject();
  json->Key("tokens").BeginArray();
  for (const ReplyToken& token : tokens) json->String(token.bytes);
  json->EndArray().Key("token_logprobs").BeginArray();
  for (const ReplyToken& token : tokens) {
    std::isnan(token.logprob) ? json->Null() : json->Double(Logprob(token.logprob));
  }
  json->EndArray().Key("top_logprobs").BeginArray();
  for (const ReplyToken& token : tokens) {
    if (std::isnan(token.logprob)) {
      json->Null();
      continue;
    }
    json->BeginObject();
    std::vector<std::string_view> seen;  // different tokens may have the same text
    for (const ReplyToken& other : token.top) {
      bool twice = false;
      for (const std::string_view one : seen) twice = twice || one == other.bytes;
      if (twice) continue;
      seen.push_back(other.bytes);
      json->Member(other.bytes, Logprob(other.logprob));
    }
    json->EndObject();
  }
  json->EndArray().Key("text_offset").BeginArray();
  for (const ReplyToken& token : tokens) {
    json->Int(*offset);
    *offset += CountCharacters(token.bytes);
  }
  json->EndArray().EndObject();
}

std::string Event(const std::string& json) {
  std::string event;
  event.reserve(json.size() + 8);
  event += "data: ";
  event += json;
  event += "\n\n";
  return event;
}

}  // namespace reprise::api::openai
