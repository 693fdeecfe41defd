// SPDX-License-Identifier: Apache-2.0
#include "api/unsupported.h"

#include <span>
#include <string>
#include <string_view>

#include "base/json_writer.h"

namespace reprise::api {
namespace {

constexpr char kUnsupported[] = "unsupported_value";

// A field that is refused unless it says what the server does anyway.
struct Refusal {
  const char* name;
  const char* neutral;  // JSON; empty: nothing is
  const char* why;
};

constexpr char kNoSampler[] = "is not one of this server's ways to choose tokens";
constexpr char kUseTools[] = "was replaced by tools and tool_choice; send these";
constexpr char kTextOnly[] = "is not supported: this server reads and writes text only";
constexpr char kNoServers[] = "is not supported: this server calls no other servers";

constexpr Refusal kRefusals[] = {
    {"functions", "[]", kUseTools},
    {"structural_tag", "", "is not supported; tools can have strict schemas"},
    {"function_call", "\"none\"", kUseTools},
    {"audio", "", kTextOnly},
    {"modalities", "[\"text\"]", kTextOnly},
    {"mm_processor_kwargs", "{}", kTextOnly},
    {"web_search_options", "", kNoServers},
    {"mcp_servers", "[]", kNoServers},
    {"chat_template", "", "cannot be chosen: the model's own is used"},
    {"documents", "[]", "is not supported; put them into the messages"},
    {"verbosity", "\"medium\"", "cannot be chosen; ask for it in the prompt"},
    {"use_beam_search", "false", kNoSampler},
    {"length_penalty", "1", kNoSampler},
    {"mirostat", "0", kNoSampler},
    {"typical_p", "1", kNoSampler},
    {"tfs_z", "1", kNoSampler},
    {"top_n_sigma", "-1", kNoSampler},
    {"dry_multiplier", "0", kNoSampler},
    {"xtc_probability", "0", kNoSampler},
    {"dynatemp_range", "0", kNoSampler},
    {"samplers", "", kNoSampler},
    {"logits_processors", "[]", kNoSampler},
    {"repeat_penalty", "1", "has the name repetition_penalty here"},
    {"allowed_token_ids", "[]", "is not supported; logit_bias can rule tokens out"},
    {"bad_words", "[]", "is not supported; logit_bias can rule tokens out"},
    {"prompt_logprobs", "0", "is not supported; /v1/completions has echo with logprobs"},
    {"n_probs", "0", "has the name logprobs here"},
    {"include_stop_str_in_output", "false", "is not supported"},
    {"skip_special_tokens", "true", "is not supported: special tokens are no text"},
    {"truncate_prompt_tokens", "", "is not supported: prompts are never shortened"},
};

constexpr Refusal kAnthropicRefusals[] = {
    {"mcp_servers", "[]", kNoServers},
    {"container", "", kNoServers},
    {"context_management", "{}", "is not supported: prompts are never shortened"},
};

bool IsNeutral(const JsonValue& value, std::string_view neutral) {
  if (neutral.empty()) return false;
  const auto wanted = JsonDocument::Parse(neutral);
  CHECK(wanted.ok());
  if (value.is_number() && wanted->root().is_number()) {
    return value.as_double() == wanted->root().as_double();
  }
  std::string text;
  JsonWriter(&text).Value(value);
  return text == neutral;
}

void RefuseAll(std::span<const Refusal> refusals, Fields* fields) {
  for (const Refusal& refusal : refusals) {
    const JsonValue* value = fields->Find(refusal.name);
    if (value == nullptr || IsNeutral(*value, refusal.neutral)) continue;
    return fields->Fail(refusal.name, refusal.why, kUnsupported);
  }
}

}  // namespace

void RefuseUnsupported(Fields* fields) { RefuseAll(kRefusals, fields); }
void RefuseAnthropicUnsupported(Fields* fields) { RefuseAll(kAnthropicRefusals, fields); }

}  // namespace reprise::api
