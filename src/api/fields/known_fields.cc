// SPDX-License-Identifier: Apache-2.0
#include "api/fields/known_fields.h"

#include <algorithm>
#include <initializer_list>

namespace reprise::api {
namespace {

using enum KnownField::Kind;

constexpr uint32_t In(std::initializer_list<Dialect> dialects) {
  uint32_t set = 0;
  for (const Dialect dialect : dialects) set |= uint32_t{1} << static_cast<uint32_t>(dialect);
  return set;
}

constexpr uint32_t kChat = In({Dialect::kChat});
constexpr uint32_t kText = In({Dialect::kCompletions});
constexpr uint32_t kReplies = kChat | kText;
constexpr uint32_t kResponses = In({Dialect::kResponses});
constexpr uint32_t kMessages = In({Dialect::kMessages});
constexpr uint32_t kOllama = In({Dialect::kOllama});
constexpr uint32_t kOllamaVectors = In({Dialect::kOllamaVectors});
constexpr uint32_t kLlamaCpp = In({Dialect::kLlamaCpp});
constexpr uint32_t kVectors = In({Dialect::kVectors});
constexpr uint32_t kPrompt = In({Dialect::kPrompt});
constexpr uint32_t kOpenAi = kReplies | kVectors | kPrompt;

// Those that may say how tokens are chosen, and how many.
constexpr uint32_t kMaySample = kReplies | kResponses | kLlamaCpp | kPrompt;

constexpr char kNo[] = "is not supported by this server";
constexpr char kNoSampler[] = "is not supported: this server does not have this sampling method";
constexpr char kUseTools[] = "is not supported; use tools and tool_choice";
constexpr char kTextOnly[] = "is not supported: this server reads and writes text only";
constexpr char kNoServers[] = "is not supported: this server calls no other servers";
constexpr char kNoCut[] = "is not supported: prompts are never shortened";

// Rows of one field in several dialects stand together; those of one dialect in the order of its
// documentation.
constexpr KnownField kFields[] = {
    // What clients of OpenAI, vLLM, SGLang, llama.cpp and OpenRouter send.
    {kOpenAi, "functions", kRefused, "[]", kUseTools},
    {kOpenAi, "structural_tag", kRefused, "", "is not supported; tools can have strict schemas"},
    {kOpenAi, "function_call", kRefused, R"("none")", kUseTools},
    {kOpenAi, "audio", kRefused, "", kTextOnly},
    {kOpenAi, "modalities", kRefused, R"(["text"])", kTextOnly},
    {kOpenAi, "mm_processor_kwargs", kRefused, "{}", kTextOnly},
    {kOpenAi, "web_search_options", kHint, "", kNoServers},
    {kOpenAi, "mcp_servers", kRefused, "[]", kNoServers},
    {kOpenAi, "plugins", kRefused, "[]", kNoServers},
    {kOpenAi, "moderation", kRefused, "", kNoServers},
    {kOpenAi, "chat_template", kRefused, "", "is not supported: the model's own template is used"},
    {kOpenAi, "documents", kRefused, "[]", "is not supported; put them into the messages"},
    {kOpenAi, "verbosity", kHint, "\"medium\"",
     "is not supported; ask for short or long replies in the prompt"},
    {kOpenAi, "separate_reasoning", kHint, "true",
     "cannot be false: reasoning is always in reasoning_content"},
    {kOpenAi, "use_beam_search", kRefused, "false", kNoSampler},
    {kOpenAi, "length_penalty", kHint, "1", kNoSampler},
    {kOpenAi, "mirostat", kHint, "0", kNoSampler},
    {kOpenAi, "tfs_z", kHint, "1", kNoSampler},
    {kOpenAi, "dynatemp_range", kHint, "0", kNoSampler},
    {kOpenAi, "samplers", kHint, "[]", kNoSampler},
    {kOpenAi, "top_a", kHint, "0", kNoSampler},
    {kOpenAi, "repeat_last_n", kHint, "-1",
     "is not supported: penalties look at the whole context"},
    {kOpenAi, "models", kHint, "[]", "is not supported: there is one model"},
    {kOpenAi, "safe_prompt", kHint, "false", "is not supported; write it into the messages"},
    {kOpenAi, "logits_processors", kRefused, "[]", kNoSampler},
    {kOpenAi, "prompt_logprobs", kRefused, "0",
     "is not supported; /v1/completions has echo with logprobs"},
    {kOpenAi, "return_tokens_as_token_ids", kRefused, "false",
     "is not supported; use return_token_ids"},
    {kOpenAi, "usage", kHint, "{}", "is not supported; use stream_options.include_usage"},
    {kOpenAi, "timings_per_token", kHint, "false", kNo},
    {kVectors | kPrompt, "return_progress", kHint, "false", kNo},
    {kOpenAi, "include_stop_str_in_output", kRefused, "false", kNo},
    {kOpenAi, "skip_special_tokens", kRefused, "true",
     "is not supported: text never has special tokens"},
    {kOpenAi, "truncate_prompt_tokens", kRefused, "", kNoCut},
    {kChat | kPrompt, "add_special_tokens", kRefused, "false",
     "is not supported: the chat template adds special tokens"},
    {kText | kVectors, "add_special_tokens", kRefused, "true", kNo},
    // The Responses API.
    {kResponses, "truncation", kHint, "\"disabled\"", "must be disabled on this server"},
    {kResponses, "context_management", kHint, "[]", kNoCut},
    {kResponses, "conversation", kRefused, "", "is not supported; use previous_response_id"},
    {kResponses, "prompt", kRefused, "", "is not supported: only OpenAI stores prompt templates"},
    {kResponses, "moderation", kRefused, "", kNoServers},
    {kResponses, "access_programs", kRefused, "[]", kNoServers},
    {kResponses, "image", kRefused, "", kTextOnly},
    {kResponses, "personality", kHint, "", "is not supported; describe it in the instructions"},
    // Anthropic's Messages API.
    {kMessages, "mcp_servers", kRefused, "[]", kNoServers},
    {kMessages, "container", kRefused, "", kNoServers},
    {kMessages, "fallbacks", kHint, "[]", "is not supported: there is one model"},
    {kMessages, "fallback_credit_token", kRefused, "", kNoServers},
    {kMessages, "context_management", kHint,
     R"({}, {"edits":[]}, {"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})", kNoCut},
    {kMessages, "compaction", kHint, "{}", kNoCut},
    {kMessages, "speed", kHint, "\"standard\"", "is not supported: there is one speed"},
    {kMessages, "inference_geo", kRefused, "\"global\"",
     "is not supported: replies are computed where this server runs"},
    // Ollama.
    {kOllama, "width", kRefused, "0", kTextOnly},
    {kOllama, "height", kRefused, "0", kTextOnly},
    {kOllama, "steps", kRefused, "0", kTextOnly},
    {kOllama, "top_logprobs", kRefused, "0", "is not supported here; use /v1/chat/completions"},
    // llama.cpp's own endpoints.
    {kLlamaCpp, "mirostat", kHint, "0", kNoSampler},
    {kLlamaCpp, "dynatemp_range", kHint, "0", kNoSampler},
    {kLlamaCpp, "samplers", kHint, R"("", [])", kNoSampler},
    {kLlamaCpp, "min_keep", kHint, "0", kNo},
    {kLlamaCpp, "n_keep", kHint, "0", kNoCut},
    {kLlamaCpp, "n_probs", kRefused, "0", "is not supported here; /v1/completions has logprobs"},
    {kLlamaCpp, "t_max_predict_ms", kHint, "0", kNo},
    {kLlamaCpp, "t_max_prompt_ms", kHint, "0", kNo},
    {kLlamaCpp, "n_indent", kHint, "0", kNo},
    {kLlamaCpp, "lora", kRefused, "[]", kNo},
    {kLlamaCpp, "image_data", kRefused, "[]", kTextOnly},
    {kLlamaCpp, "multimodal_data", kRefused, "[]", kTextOnly},
    {kLlamaCpp, "response_fields", kHint, "[]", kNo},
    {kLlamaCpp, "post_sampling_probs", kHint, "false", kNo},
    {kLlamaCpp, "timings_per_token", kHint, "false", kNo},

    // Names of other servers for what this one has.
    {kMaySample, "repeat_penalty", kAlias, "", "repetition_penalty"},
    {kMaySample, "n_predict", kAlias, "", "max_tokens"},
    {kMaySample, "random_seed", kAlias, "", "seed"},
    {kMaySample, "cache_prompt", kAlias, "", "cache_prefix"},

    // Names for statistics and bills, hints that only make others faster, and details of what is
    // refused or passed when it is switched on.
    {kReplies | kResponses | kVectors | kPrompt, "user", kHarmless},
    {kReplies | kPrompt, "store", kHarmless},
    {kReplies | kPrompt, "metadata", kHarmless},
    {kReplies | kResponses | kMessages | kPrompt, "service_tier", kHarmless},
    {kReplies | kResponses | kPrompt, "safety_identifier", kHarmless},
    {kReplies, "rid", kHarmless},
    {kReplies | kLlamaCpp, "id_slot", kHarmless},
    {kReplies | kVectors, "request_id", kHarmless},
    {kReplies, "spaces_between_special_tokens", kHarmless},
    {kReplies | kOllama | kOllamaVectors, "keep_alive", kHarmless},
    {kResponses, "max_tool_calls", kHarmless},
    {kResponses | kPrompt, "stream_options", kHarmless},
    {kResponses, "client_metadata", kHarmless},
    {kMessages, "user_profile_id", kHarmless},
    {kMessages, "workspace_id", kHarmless},
    {kMessages, "billing_policy", kHarmless},
    {kMessages | kPrompt, "max_tokens", kHarmless},
    {kOllama, "truncate", kHarmless},
    {kOllama, "shift", kHarmless},
    {kOllama, "verbose", kHarmless},
    {kOllamaVectors, "options", kHarmless},
    {kOllamaVectors | kVectors, "cache", kHarmless},
    {kReplies | kLlamaCpp, "mirostat_tau", kHarmless},
    {kReplies | kLlamaCpp, "mirostat_eta", kHarmless},
    {kReplies | kLlamaCpp, "dynatemp_exponent", kHarmless},
    {kReplies | kLlamaCpp, "penalize_nl", kHarmless},
    {kPrompt, "temperature", kHarmless},
    {kPrompt, "top_p", kHarmless},
    {kPrompt, "top_k", kHarmless},
    {kPrompt, "min_p", kHarmless},
    {kPrompt, "typical_p", kHarmless},
    {kPrompt, "top_n_sigma", kHarmless},
    {kPrompt, "xtc_probability", kHarmless},
    {kPrompt, "xtc_threshold", kHarmless},
    {kPrompt, "dry_multiplier", kHarmless},
    {kPrompt, "dry_base", kHarmless},
    {kPrompt, "dry_allowed_length", kHarmless},
    {kPrompt, "dry_penalty_last_n", kHarmless},
    {kPrompt, "dry_sequence_breakers", kHarmless},
    {kPrompt, "bad_words", kHarmless},
    {kPrompt, "allowed_token_ids", kHarmless},
    {kPrompt, "presence_penalty", kHarmless},
    {kPrompt, "frequency_penalty", kHarmless},
    {kPrompt, "repetition_penalty", kHarmless},
    {kPrompt, "seed", kHarmless},
    {kPrompt, "max_completion_tokens", kHarmless},
    {kPrompt, "min_tokens", kHarmless},
    {kPrompt, "ignore_eos", kHarmless},
    {kPrompt, "n", kHarmless},
    {kPrompt, "best_of", kHarmless},
    {kPrompt, "priority", kHarmless},
    {kPrompt, "stop", kHarmless},
    {kPrompt, "stop_token_ids", kHarmless},
    {kPrompt, "logit_bias", kHarmless},
    {kPrompt, "logprobs", kHarmless},
    {kPrompt, "top_logprobs", kHarmless},
    {kPrompt, "stream", kHarmless},
    {kPrompt, "return_token_ids", kHarmless},
    {kPrompt, "prompt_cache_key", kHarmless},
    {kPrompt, "prompt_cache_options", kHarmless},
    {kPrompt, "prompt_cache_retention", kHarmless},
    {kPrompt, "cache_salt", kHarmless},
    {kPrompt, "cache_prefix", kHarmless},
    {kPrompt, "min_cache_tokens", kHarmless},
    {kPrompt, "snapkv", kHarmless},
    {kPrompt, "speculate", kHarmless},
    {kPrompt, "prediction", kHarmless},
};

}  // namespace

bool KnownField::IsOf(Dialect dialect) const {
  return (dialects >> static_cast<uint32_t>(dialect) & 1) != 0;
}

std::span<const KnownField> KnownFields() { return kFields; }

const KnownField* FindKnownField(Dialect dialect, std::string_view name) {
  const auto found = std::ranges::find_if(
      kFields, [&](const KnownField& field) { return field.name == name && field.IsOf(dialect); });
  return found != std::end(kFields) ? &*found : nullptr;
}

}  // namespace reprise::api
