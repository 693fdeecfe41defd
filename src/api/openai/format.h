// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "api/chat/reply.h"
#include "base/json_writer.h"

namespace reprise::api::openai {

const char* FinishName(StopKind stop);

// Seconds since 1970.
int64_t NowSeconds();

// "chatcmpl-" and the request's id.
std::string MakeId(const char* prefix, const http::Request& request);

void WriteUsage(const Usage& usage, JsonWriter* json);

// "token_ids": [...]
void WriteTokenIds(const std::vector<ReplyToken>& tokens, JsonWriter* json);

// {"token", "logprob", "bytes", "top_logprobs": [...]}
void WriteTokenWithTop(const ReplyToken& token, JsonWriter* json);
// {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}
void WriteChatLogprobs(const std::vector<ReplyToken>& tokens, JsonWriter* json);
// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; offsets count characters from
// `offset` on, which goes up.
void WriteCompletionLogprobs(const std::vector<ReplyToken>& tokens, int64_t* offset,
                             JsonWriter* json);

// "data: {...}\n\n"
std::string Event(const std::string& json);

}  // namespace reprise::api::openai
