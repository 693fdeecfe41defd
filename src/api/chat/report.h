// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "engine/request.h"
#include "text/tokenizer.h"

namespace reprise::api {

// How far a prompt has come, in tokens.
struct Progress {
  int64_t total = 0;
  int64_t cached = 0;     // of them, not computed
  int64_t processed = 0;  // of them, cached or computed
  int64_t ms = 0;         // since the request came
};

// The "reprise" object of a response: what was reused, what was not and why, and what it took.
// `prompt` gives the text around the place where the prompt left what was stored;
// `session` is what the client calls the conversation, or empty; `passed_fields` are the fields of
// the request that had no effect.
std::string FormatReportJson(const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                             std::string_view session, std::span<const std::string> passed_fields,
                             const Completion& completion);

// "timings": how many tokens came from the cache, were computed and were said, and how fast, in
// llama.cpp's words.
void WriteTimings(const Completion& completion, JsonWriter* json);

// "prompt_progress": {"total", "cache", "processed", "time_ms"}, in llama.cpp's words: what is
// cached is processed.
void WriteProgress(const Progress& progress, JsonWriter* json);

}  // namespace reprise::api
