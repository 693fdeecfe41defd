// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api/chat/job.h"
#include "api/fields.h"
#include "api/openai/params.h"

namespace reprise::api::openai {

// What the reply must be: response_format (OpenAI), structured_outputs and guided_json,
// guided_regex, guided_choice, guided_grammar (vLLM), regex and ebnf (SGLang), grammar and
// json_schema (llama.cpp). Only one of them may be there. Errors stay in `fields`.
void ReadAnswerRule(Fields* fields, OutputRule* rule);

// The member `name` alone: {"type": "json_object"}, {"type": "json_schema", ...} or text.
void ReadFormatRule(const std::string& name, Fields* fields, OutputRule* rule);

// tool_choice, and whether a tool is strict. `tools`: the JSON array of the request's functions, or
// empty; allowed_tools leaves some of them.
void ReadCallRule(Fields* fields, std::string* tools, CallRules* calls, OutputRule* rule);

}  // namespace reprise::api::openai
