// SPDX-License-Identifier: Apache-2.0
#include "api/unsupported.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "base/log.h"

namespace reprise::api {
namespace {

constexpr char kUnsupported[] = "unsupported_value";
constexpr char kUnknown[] = "unknown_parameter";  // OpenAI's code for it
constexpr size_t kNameBytesMax = 64;              // of a name that is told or logged
constexpr size_t kLoggedMax = 8;

// A field that is refused unless it says what the server does anyway.
struct Refusal {
  std::string_view name;
  std::string_view neutral;  // JSON values that ask for nothing, with commas; empty: none does
  const char* why;
};

constexpr char kNo[] = "is not supported by this server";
constexpr char kNoSampler[] = "is not one of this server's ways to choose tokens";
constexpr char kUseTools[] = "was replaced by tools and tool_choice; send these";
constexpr char kTextOnly[] = "is not supported: this server reads and writes text only";
constexpr char kNoServers[] = "is not supported: this server calls no other servers";
constexpr char kNoCut[] = "is not supported: prompts are never shortened";

// What clients of OpenAI, vLLM, SGLang, llama.cpp and OpenRouter send.
constexpr Refusal kOpenAiRefused[] = {
    {"functions", "[]", kUseTools},
    {"structural_tag", "", "is not supported; tools can have strict schemas"},
    {"function_call", "\"none\"", kUseTools},
    {"audio", "", kTextOnly},
    {"modalities", "[\"text\"]", kTextOnly},
    {"mm_processor_kwargs", "{}", kTextOnly},
    {"web_search_options", "", kNoServers},
    {"mcp_servers", "[]", kNoServers},
    {"plugins", "[]", kNoServers},
    {"moderation", "", kNoServers},
    {"chat_template", "", "cannot be chosen: the model's own is used"},
    {"documents", "[]", "is not supported; put them into the messages"},
    {"verbosity", "\"medium\"", "cannot be chosen; ask for it in the prompt"},
    {"reasoning", "{}", "has the name reasoning_effort here"},
    {"thinking", "{}", "has the name enable_thinking here"},
    {"include_reasoning", "true", "cannot be switched off; enable_thinking can be"},
    {"separate_reasoning", "true", "cannot be switched off: reasoning comes apart"},
    {"reasoning_format", "\"auto\", \"deepseek\"", "cannot be chosen: it is reasoning_content"},
    {"use_beam_search", "false", kNoSampler},
    {"length_penalty", "1", kNoSampler},
    {"mirostat", "0", kNoSampler},
    {"typical_p", "1", kNoSampler},
    {"tfs_z", "1", kNoSampler},
    {"top_n_sigma", "-1", kNoSampler},
    {"dry_multiplier", "0", kNoSampler},
    {"xtc_probability", "0", kNoSampler},
    {"dynatemp_range", "0", kNoSampler},
    {"samplers", "[]", kNoSampler},
    {"logits_processors", "[]", kNoSampler},
    {"repeat_penalty", "1", "has the name repetition_penalty here"},
    {"n_predict", "", "has the name max_tokens here"},
    {"allowed_token_ids", "[]", "is not supported; logit_bias can rule tokens out"},
    {"bad_words", "[]", "is not supported; logit_bias can rule tokens out"},
    {"regex", "", "has the name structured_outputs.regex here"},
    {"ebnf", "", "has the name grammar here"},
    {"prompt_logprobs", "0", "is not supported; /v1/completions has echo with logprobs"},
    {"n_probs", "0", "has the name logprobs here"},
    {"return_tokens_as_token_ids", "false", "is not supported; return_token_ids tells them"},
    {"usage", "{}", "has the name stream_options.include_usage here"},
    {"timings_per_token", "false", kNo},
    {"return_progress", "false", kNo},
    {"include_stop_str_in_output", "false", kNo},
    {"skip_special_tokens", "true", "is not supported: special tokens are no text"},
    {"truncate_prompt_tokens", "", kNoCut},
};
constexpr Refusal kChatRefused[] = {{"add_special_tokens", "false", "is the template's to say"}};
constexpr Refusal kTextRefused[] = {{"add_special_tokens", "true", kNo}};

constexpr Refusal kResponsesRefused[] = {
    {"background", "false", "is not supported: ask without it, or stream"},
    {"truncation", "\"disabled\"", "must be disabled on this server"},
    {"context_management", "[]", kNoCut},
    {"conversation", "", "is not supported; previous_response_id continues one"},
    {"prompt", "", "is not supported: templates of prompts are kept at OpenAI's"},
    {"moderation", "", kNoServers},
    {"access_programs", "[]", kNoServers},
    {"image", "", kTextOnly},
    {"personality", "", "cannot be chosen; ask for it in the instructions"},
};

constexpr Refusal kMessagesRefused[] = {
    {"mcp_servers", "[]", kNoServers},
    {"container", "", kNoServers},
    {"fallbacks", "[]", "is not supported: there is one model"},
    {"fallback_credit_token", "", kNoServers},
    {"thread", "", "is not supported; send the conversation"},
    {"context_management",
     R"({}, {"edits":[]}, {"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})", kNoCut},
    {"compaction", "{}", kNoCut},
    {"speed", "\"standard\"", "cannot be chosen"},
    {"inference_geo", "\"global\"", "cannot be chosen: it is computed where the server is"},
};

constexpr Refusal kOllamaRefused[] = {
    {"width", "0", kTextOnly},
    {"height", "0", kTextOnly},
    {"steps", "0", kTextOnly},
    {"top_logprobs", "0", "is not supported here; use /v1/chat/completions"},
};

constexpr Refusal kLlamaCppRefused[] = {
    {"typical_p", "1", kNoSampler},
    {"mirostat", "0", kNoSampler},
    {"dynatemp_range", "0", kNoSampler},
    {"dry_multiplier", "0", kNoSampler},
    {"xtc_probability", "0", kNoSampler},
    {"top_n_sigma", "-1", kNoSampler},
    {"samplers", "\"\", []", kNoSampler},
    {"min_keep", "0", kNo},
    {"n_keep", "0", kNoCut},
    {"n_probs", "0", "is not supported here; /v1/completions has logprobs"},
    {"t_max_predict_ms", "0", kNo},
    {"t_max_prompt_ms", "0", kNo},
    {"n_indent", "0", kNo},
    {"lora", "[]", kNo},
    {"image_data", "[]", kTextOnly},
    {"multimodal_data", "[]", kTextOnly},
    {"response_fields", "[]", kNo},
    {"post_sampling_probs", "false", kNo},
    {"timings_per_token", "false", kNo},
    {"return_progress", "false", kNo},
};

// Names for statistics and bills, and hints that only make others faster.
constexpr std::string_view kOpenAiHarmless[] = {
    "user",       "store", "metadata", "service_tier", "safety_identifier",
    "prediction", "rid",   "id_slot",  "request_id",   "spaces_between_special_tokens"};
// Calls of OpenAI's own tools, of which there are none; bytes to hide lengths, which add none; what
// Codex tells of itself.
constexpr std::string_view kResponsesHarmless[] = {
    "user",           "service_tier",   "safety_identifier",
    "max_tool_calls", "stream_options", "client_metadata"};
// Counting takes a whole request, too.
constexpr std::string_view kMessagesHarmless[] = {"service_tier", "user_profile_id", "workspace_id",
                                                  "billing_policy", "max_tokens"};
// A prompt that would have to be cut is refused, whatever these say.
constexpr std::string_view kOllamaHarmless[] = {"keep_alive", "truncate", "shift", "verbose"};
constexpr std::string_view kOllamaVectorsHarmless[] = {"keep_alive", "options"};
// Details of what is refused when it is switched on; where llama.cpp would put the state.
constexpr std::string_view kSamplerDetails[] = {"mirostat_tau",       "mirostat_eta",
                                                "dynatemp_exponent",  "xtc_threshold",
                                                "dry_base",           "dry_allowed_length",
                                                "dry_penalty_last_n", "dry_sequence_breakers",
                                                "penalize_nl",        "id_slot"};
constexpr std::string_view kVectorsHarmless[] = {"user", "request_id"};
// Of a chat request, what changes the reply and not the prompt.
constexpr std::string_view kPromptHarmless[] = {"temperature",
                                                "top_p",
                                                "top_k",
                                                "min_p",
                                                "presence_penalty",
                                                "frequency_penalty",
                                                "repetition_penalty",
                                                "seed",
                                                "max_tokens",
                                                "max_completion_tokens",
                                                "min_tokens",
                                                "ignore_eos",
                                                "n",
                                                "best_of",
                                                "priority",
                                                "stop",
                                                "stop_token_ids",
                                                "logit_bias",
                                                "logprobs",
                                                "top_logprobs",
                                                "stream",
                                                "stream_options",
                                                "return_token_ids",
                                                "prompt_cache_key",
                                                "prompt_cache_options",
                                                "prompt_cache_retention",
                                                "cache_salt",
                                                "cache_prefix",
                                                "cache_prompt",
                                                "min_cache_tokens",
                                                "snapkv",
                                                "user",
                                                "store",
                                                "metadata",
                                                "service_tier",
                                                "safety_identifier",
                                                "prediction"};

struct Rules {
  std::span<const Refusal> refused;
  std::span<const Refusal> refused_too;
  std::span<const std::string_view> harmless;
  std::span<const std::string_view> harmless_too = {};
};

Rules RulesOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kChat:
      return {kOpenAiRefused, kChatRefused, kOpenAiHarmless, kSamplerDetails};
    case Dialect::kCompletions:
      return {kOpenAiRefused, kTextRefused, kOpenAiHarmless, kSamplerDetails};
    case Dialect::kResponses:
      return {kResponsesRefused, {}, kResponsesHarmless};
    case Dialect::kMessages:
      return {kMessagesRefused, {}, kMessagesHarmless};
    case Dialect::kOllama:
      return {kOllamaRefused, {}, kOllamaHarmless};
    case Dialect::kOllamaVectors:
      return {{}, {}, kOllamaVectorsHarmless};
    case Dialect::kLlamaCpp:
      return {kLlamaCppRefused, {}, kSamplerDetails};
    case Dialect::kVectors:
      return {kOpenAiRefused, kTextRefused, kVectorsHarmless};
    case Dialect::kPrompt:
      return {kOpenAiRefused, kChatRefused, kPromptHarmless};
    case Dialect::kOwn:
      return {};
  }
  return {};
}

bool IsHarmless(const Rules& rules, std::string_view name) {
  return name == "model" || std::ranges::find(rules.harmless, name) != rules.harmless.end() ||
         std::ranges::find(rules.harmless_too, name) != rules.harmless_too.end();
}

const Refusal* FindRefusal(const Rules& rules, std::string_view name) {
  for (const std::span<const Refusal> list : {rules.refused, rules.refused_too}) {
    const auto found = std::ranges::find(list, name, &Refusal::name);
    if (found != list.end()) return &*found;
  }
  return nullptr;
}

std::string TextOf(const JsonValue& value) {
  std::string text;
  JsonWriter(&text).Value(value);
  return text;
}

bool IsNeutral(const JsonValue& value, std::string_view neutral) {
  const auto list = JsonDocument::Parse("[" + std::string(neutral) + "]");
  CHECK(list.ok());
  return std::ranges::any_of(list->root().items(), [&](const JsonValue& one) {
    if (value.is_number() && one.is_number()) return value.as_double() == one.as_double();
    return value.kind() == one.kind() && TextOf(value) == TextOf(one);
  });
}

// As much of a name as may be repeated, and something where it is nothing.
std::string_view CutName(std::string_view name) {
  if (name.empty()) return "\"\"";
  if (name.size() <= kNameBytesMax) return name;
  size_t end = kNameBytesMax;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0u) == 0x80u) --end;
  return name.substr(0, end);
}

void LogIgnored(const std::vector<std::string_view>& names) {
  if (names.empty() || !LogEnabled(LogLevel::kWarning)) return;
  std::string line;
  JsonWriter json(&line);
  json.BeginObject().Member("event", "ignored").Member("count", uint64_t{names.size()});
  json.Key("fields").BeginArray();
  for (size_t i = 0; i < std::min(names.size(), kLoggedMax); ++i) json.String(names[i]);
  json.EndArray().EndObject();
  Log(LogLevel::kWarning, line);
}

}  // namespace

void RefuseUnread(Dialect dialect, const ServiceOptions& options, Fields* fields) {
  if (!fields->ok()) return;
  const Rules rules = RulesOf(dialect);
  std::vector<std::string_view> ignored;
  for (const JsonValue::Member* member : fields->Unread()) {
    const std::string_view name = member->key;
    if (IsHarmless(rules, name)) continue;
    if (const Refusal* refusal = FindRefusal(rules, name)) {
      if (IsNeutral(member->value, refusal->neutral)) continue;
      return fields->Fail(name, refusal->why, kUnsupported);
    }
    if (!options.ignore_unknown_fields) {
      return fields->Fail(CutName(name), "is not a field that this endpoint knows", kUnknown);
    }
    ignored.push_back(CutName(name));
  }
  LogIgnored(ignored);
}

void CheckPenaltyWindow(Fields* fields) {
  const JsonValue* window = fields->Find("repeat_last_n");
  const JsonValue* penalty = fields->Find("repeat_penalty");
  if (window == nullptr || penalty == nullptr) return;
  if (penalty->is_number() && penalty->as_double() == 1) return;
  if (window->is_int() && window->as_int() == -1) return;
  fields->Fail("repeat_last_n", "must be -1 on this server: the penalty looks at the whole context",
               kUnsupported);
}

}  // namespace reprise::api
