// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "api/chat/job.h"
#include "api/fields.h"
#include "api/service.h"
#include "base/json.h"

namespace reprise::api::openai {

// Fields that chat and completions have in common. Errors stay in `fields`.
void ReadReplyOptions(const ServiceOptions& limits, int64_t vocab_size, Fields* fields,
                      ReplyOptions* options);
void ReadCacheControl(Fields* fields, CacheControl* cache);

// The messages of a chat request, with the breakpoints marked in them, and what goes with them: a
// last message that is to be continued, variables for the template.
void ReadMessages(const ServiceOptions& limits, Fields* fields, ChatJob* job);
// chat_template_kwargs; ReadMessages does it.
void ReadVariables(Fields* fields, ChatJob* job);
// Tools, tool_choice and whatever else a reply must fit.
void ReadTools(const ServiceOptions& limits, Fields* fields, ChatJob* job);

// Whether a tool would run at the vendor (web_search, code_interpreter): not a function of the
// client's. There are none here; PassHostedTool notes that it was left out.
bool IsHostedTool(const JsonValue& tool);
void PassHostedTool(const JsonValue& tool, size_t index, Fields* fields);

// How much to think, in OpenAI's words and other servers', planned with the switches of the model's
// template.
void ReadThinking(const ServedModel& model, Fields* fields, ChatJob* job);

// "5m", "1h", "24h", "90s". False if it is not a duration.
bool ParseTtl(std::string_view text, int64_t* ms);

// How the answer is to look, whatever it says.
struct AnswerOptions {
  bool stream = false;
  bool show_reasoning = true;
  bool include_usage = false;  // a chunk of its own at the end of a stream
  bool logprobs = false;
  bool token_ids = false;
  bool progress = false;  // of the prompt, in a stream

  bool wants_tokens() const { return logprobs || token_ids; }
};
// All but logprobs, which each endpoint has in its own way.
void ReadAnswerOptions(Fields* fields, AnswerOptions* options);

}  // namespace reprise::api::openai
