// SPDX-License-Identifier: Apache-2.0
#include "api/unsupported.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "base/log.h"

namespace reprise::api {
namespace {

constexpr char kUnsupported[] = "unsupported_value";
constexpr char kUnknown[] = "unknown_parameter";  // OpenAI's code for it
constexpr size_t kNameBytesMax = 64;              // of a name that is told or logged
constexpr size_t kUnknownMax = 64;                // fields that are looked at one by one
constexpr size_t kLoggedMax = 1024;               // names that are remembered as logged
constexpr size_t kMistakesMax = 2;                // letters by which a name is misspelt
constexpr size_t kMistakableBytes = 5;            // shorter names have too many neighbours

// A field that this server knows and does not do. With a neutral value it asks for nothing. Else it
// is refused, where the answer would not be what was asked for; or it passes, where it is a hint.
enum class Else { kRefuse, kPass };
struct Refusal {
  std::string_view name;
  std::string_view neutral;  // JSON values that ask for nothing, with commas; empty: none does
  const char* why;
  Else otherwise = Else::kRefuse;
};

constexpr Else kPass = Else::kPass;
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
    {"web_search_options", "", kNoServers, kPass},
    {"mcp_servers", "[]", kNoServers},
    {"plugins", "[]", kNoServers},
    {"moderation", "", kNoServers},
    {"chat_template", "", "cannot be chosen: the model's own is used"},
    {"documents", "[]", "is not supported; put them into the messages"},
    {"verbosity", "\"medium\"", "cannot be chosen; ask for it in the prompt", kPass},
    {"separate_reasoning", "true", "cannot be switched off: reasoning comes apart", kPass},
    {"use_beam_search", "false", kNoSampler},
    {"length_penalty", "1", kNoSampler, kPass},
    {"mirostat", "0", kNoSampler, kPass},
    {"typical_p", "1", kNoSampler, kPass},
    {"tfs_z", "1", kNoSampler, kPass},
    {"top_n_sigma", "-1", kNoSampler, kPass},
    {"dry_multiplier", "0", kNoSampler, kPass},
    {"xtc_probability", "0", kNoSampler, kPass},
    {"dynatemp_range", "0", kNoSampler, kPass},
    {"samplers", "[]", kNoSampler, kPass},
    {"top_a", "0", kNoSampler, kPass},
    {"repeat_last_n", "-1", "is not supported: penalties look at the whole context", kPass},
    {"models", "[]", "is not supported: there is one model", kPass},
    {"safe_prompt", "false", "is not supported; write it into the messages", kPass},
    {"logits_processors", "[]", kNoSampler},
    {"allowed_token_ids", "[]", "is not supported; logit_bias can rule tokens out"},
    {"bad_words", "[]", "is not supported; logit_bias can rule tokens out"},
    {"prompt_logprobs", "0", "is not supported; /v1/completions has echo with logprobs"},
    {"return_tokens_as_token_ids", "false", "is not supported; return_token_ids tells them"},
    {"usage", "{}", "has the name stream_options.include_usage here", kPass},
    {"timings_per_token", "false", kNo, kPass},
    {"return_progress", "false", kNo, kPass},
    {"include_stop_str_in_output", "false", kNo},
    {"skip_special_tokens", "true", "is not supported: special tokens are no text"},
    {"truncate_prompt_tokens", "", kNoCut},
};
constexpr Refusal kChatRefused[] = {{"add_special_tokens", "false", "is the template's to say"}};
constexpr Refusal kTextRefused[] = {{"add_special_tokens", "true", kNo}};

constexpr Refusal kResponsesRefused[] = {
    {"background", "false", "is not supported: ask without it, or stream"},
    {"truncation", "\"disabled\"", "must be disabled on this server", kPass},
    {"context_management", "[]", kNoCut, kPass},
    {"conversation", "", "is not supported; previous_response_id continues one"},
    {"prompt", "", "is not supported: templates of prompts are kept at OpenAI's"},
    {"moderation", "", kNoServers},
    {"access_programs", "[]", kNoServers},
    {"image", "", kTextOnly},
    {"personality", "", "cannot be chosen; ask for it in the instructions", kPass},
};

constexpr Refusal kMessagesRefused[] = {
    {"mcp_servers", "[]", kNoServers},
    {"container", "", kNoServers},
    {"fallbacks", "[]", "is not supported: there is one model", kPass},
    {"fallback_credit_token", "", kNoServers},
    {"context_management",
     R"({}, {"edits":[]}, {"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})", kNoCut,
     kPass},
    {"compaction", "{}", kNoCut, kPass},
    {"speed", "\"standard\"", "cannot be chosen", kPass},
    {"inference_geo", "\"global\"", "cannot be chosen: it is computed where the server is"},
};

constexpr Refusal kOllamaRefused[] = {
    {"width", "0", kTextOnly},
    {"height", "0", kTextOnly},
    {"steps", "0", kTextOnly},
    {"top_logprobs", "0", "is not supported here; use /v1/chat/completions"},
};

constexpr Refusal kLlamaCppRefused[] = {
    {"typical_p", "1", kNoSampler, kPass},
    {"mirostat", "0", kNoSampler, kPass},
    {"dynatemp_range", "0", kNoSampler, kPass},
    {"dry_multiplier", "0", kNoSampler, kPass},
    {"xtc_probability", "0", kNoSampler, kPass},
    {"top_n_sigma", "-1", kNoSampler, kPass},
    {"samplers", "\"\", []", kNoSampler, kPass},
    {"min_keep", "0", kNo, kPass},
    {"n_keep", "0", kNoCut, kPass},
    {"n_probs", "0", "is not supported here; /v1/completions has logprobs"},
    {"t_max_predict_ms", "0", kNo, kPass},
    {"t_max_prompt_ms", "0", kNo, kPass},
    {"n_indent", "0", kNo, kPass},
    {"lora", "[]", kNo},
    {"image_data", "[]", kTextOnly},
    {"multimodal_data", "[]", kTextOnly},
    {"response_fields", "[]", kNo, kPass},
    {"post_sampling_probs", "false", kNo, kPass},
    {"timings_per_token", "false", kNo, kPass},
    {"return_progress", "false", kNo, kPass},
};

// Names for statistics and bills, and hints that only make others faster.
constexpr std::string_view kOpenAiHarmless[] = {"user",
                                                "store",
                                                "metadata",
                                                "service_tier",
                                                "safety_identifier",
                                                "rid",
                                                "id_slot",
                                                "request_id",
                                                "spaces_between_special_tokens",
                                                "keep_alive"};
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
constexpr std::string_view kOllamaVectorsHarmless[] = {"keep_alive", "options", "cache"};
// Details of what is refused when it is switched on; where llama.cpp would put the state.
constexpr std::string_view kSamplerDetails[] = {"mirostat_tau",       "mirostat_eta",
                                                "dynatemp_exponent",  "xtc_threshold",
                                                "dry_base",           "dry_allowed_length",
                                                "dry_penalty_last_n", "dry_sequence_breakers",
                                                "penalize_nl",        "id_slot"};
constexpr std::string_view kVectorsHarmless[] = {"user", "request_id", "cache"};
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
                                                "speculate",
                                                "user",
                                                "store",
                                                "metadata",
                                                "service_tier",
                                                "safety_identifier",
                                                "prediction"};

struct Rules {
  std::span<const Refusal> refused = {};
  std::span<const Refusal> refused_too = {};
  std::span<const std::string_view> harmless = {};
  std::span<const std::string_view> harmless_too = {};
  bool strict = false;  // unknown fields are refused, whatever the operator says
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
      return {.strict = true};
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

// As JSON: the order of members and the spelling of numbers do not matter.
bool IsEqual(const JsonValue& a, const JsonValue& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.kind() != b.kind()) return false;
  if (a.is_string()) return a.as_string() == b.as_string();
  if (a.is_bool()) return a.as_bool() == b.as_bool();
  if (a.is_array()) {
    return std::ranges::equal(a.items(), b.items(), IsEqual);
  }
  if (!a.is_object()) return true;
  return a.members().size() == b.members().size() &&
         std::ranges::all_of(a.members(), [&](const JsonValue::Member& member) {
           const JsonValue* other = b.Find(member.key);
           return other != nullptr && IsEqual(member.value, *other);
         });
}

bool IsNeutral(const JsonValue& value, std::string_view neutral) {
  const auto list = JsonDocument::Parse("[" + std::string(neutral) + "]");
  CHECK(list.ok());
  return std::ranges::any_of(list->root().items(),
                             [&](const JsonValue& one) { return IsEqual(value, one); });
}

// As much of a name as may be repeated, and something where it is nothing.
std::string_view CutName(std::string_view name) {
  if (name.empty()) return "\"\"";
  if (name.size() <= kNameBytesMax) return name;
  size_t end = kNameBytesMax;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0u) == 0x80u) --end;
  return name.substr(0, end);
}

// Whether the names differ in at most kMistakesMax letters, put in, left out or changed.
bool IsNear(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > kMistakesMax || a.size() < kMistakableBytes) return false;
  std::vector<size_t> row(a.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= b.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= a.size(); ++j) {
      const size_t changed = diagonal + (a[j - 1] == b[i - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back() <= kMistakesMax;
}

// The field that a client may have meant; empty: none.
std::string_view Misspelt(const Rules& rules, const Fields& fields, std::string_view name) {
  if (name.size() > kNameBytesMax) return {};
  const auto near = [name](std::string_view known) { return IsNear(name, known); };
  const auto asked = std::ranges::find_if(fields.asked(), near);
  if (asked != fields.asked().end()) return *asked;
  for (const auto list : {rules.harmless, rules.harmless_too}) {
    const auto found = std::ranges::find_if(list, near);
    if (found != list.end()) return *found;
  }
  for (const auto list : {rules.refused, rules.refused_too}) {
    const auto found = std::ranges::find_if(list, near, &Refusal::name);
    if (found != list.end()) return found->name;
  }
  return {};
}

// True the first time a name is seen. When the memory for names is full, all count as seen.
bool IsNew(const std::string& name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> seen;
  const std::lock_guard lock(mutex);
  return seen.size() < kLoggedMax && seen.insert(name).second;
}

void LogPassed(const std::vector<std::string>& names) {
  if (names.empty() || !LogEnabled(LogLevel::kWarning)) return;
  std::vector<std::string> fresh;
  std::ranges::copy_if(names, std::back_inserter(fresh), IsNew);
  if (fresh.empty()) return;
  std::string line;
  JsonWriter json(&line);
  json.BeginObject().Member("event", "passed_fields").Key("fields").BeginArray();
  for (const std::string& name : fresh) json.String(name);
  json.EndArray().EndObject();
  Log(LogLevel::kWarning, line);
}

// A field that no table knows. False if it is refused.
bool PassUnknown(const Rules& rules, const ServiceOptions& options, std::string_view name,
                 Fields* fields) {
  if (options.strict_fields || rules.strict) {
    fields->Fail(CutName(name), "is not a field that this endpoint knows", kUnknown);
  } else if (const std::string_view meant = Misspelt(rules, *fields, name); !meant.empty()) {
    fields->Fail(CutName(name), fmt::format("is not a field; did you mean {}?", meant), kUnknown);
  } else {
    fields->Pass(CutName(name));
  }
  return fields->ok();
}

}  // namespace

void RefuseUnread(Dialect dialect, const ServiceOptions& options, Fields* fields) {
  if (!fields->ok()) return;
  const Rules rules = RulesOf(dialect);
  size_t unknown = 0;
  for (const JsonValue::Member* member : fields->Unread()) {
    const std::string_view name = member->key;
    if (IsHarmless(rules, name)) continue;
    if (const Refusal* refusal = FindRefusal(rules, name)) {
      if (IsNeutral(member->value, refusal->neutral)) continue;
      if (refusal->otherwise == Else::kRefuse || options.strict_fields) {
        return fields->Fail(name, refusal->why, kUnsupported);
      }
      fields->Pass(name);
    } else if (++unknown > kUnknownMax) {
      return fields->Fail(CutName(name), "is one unknown field too many", kUnknown);
    } else if (!PassUnknown(rules, options, name, fields)) {
      return;
    }
  }
  LogPassed(fields->passed());
}

void CheckPenaltyWindow(Fields* fields) {
  const JsonValue* window = fields->Find("repeat_last_n");
  const JsonValue* penalty = fields->Find("repeat_penalty");
  if (window == nullptr || penalty == nullptr) return;
  if (penalty->is_number() && penalty->as_double() == 1) return;
  if (window->is_int() && window->as_int() == -1) return;
  fields->Pass("repeat_last_n");
}

}  // namespace reprise::api
