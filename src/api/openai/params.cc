// SPDX-License-Identifier: Apache-2.0
#include "api/openai/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "api/chat/prompt.h"
#include "api/openai/output_rules.h"
#include "api/pictures/picture_url.h"
#include "base/json_writer.h"

namespace reprise::api::openai {
namespace {

constexpr size_t kStopBytesMax = 4096;
constexpr size_t kStopTokensMax = 1024;
constexpr size_t kLogitBiasMax = 1024;
constexpr size_t kWordsMax = 128;
constexpr size_t kWordBytesMax = 256;
constexpr size_t kKeyBytesMax = 1024;
constexpr int64_t kTokensMax = int64_t{1} << 30;
constexpr int64_t kPinMsMax = int64_t{24} * 3600 * 1000;
constexpr size_t kBreakpointsMax = 4;
constexpr size_t kPartsMax = 4096;
constexpr size_t kVariablesMax = 32;
constexpr size_t kReasoningBytesMax = size_t{64} << 20;

void ReadStop(const ServiceOptions& limits, Fields* fields, ReplyOptions* options) {
  const JsonValue* stop = fields->Find("stop");
  if (stop == nullptr) return;
  const auto add = [&](const JsonValue& value) {
    if (!value.is_string() || value.as_string().size() > kStopBytesMax) {
      return fields->Fail("stop",
                          fmt::format("must be strings of at most {} bytes", kStopBytesMax));
    }
    options->stop.emplace_back(value.as_string());
  };
  if (stop->is_string()) return add(*stop);
  const auto count_max = static_cast<size_t>(limits.stop_count_max);
  const JsonValue* list = fields->Array("stop", count_max);
  if (list == nullptr) return;
  for (const JsonValue& item : list->items()) add(item);
}

void ReadLogitBias(int64_t vocab_size, Fields* fields, ReplyOptions* options) {
  const JsonValue* bias = fields->Object("logit_bias");
  if (bias == nullptr) return;
  if (bias->members().size() > kLogitBiasMax) {
    return fields->Fail("logit_bias", fmt::format("must name at most {} tokens", kLogitBiasMax));
  }
  for (const JsonValue::Member& member : bias->members()) {
    int32_t token = -1;
    const char* end = member.key.data() + member.key.size();
    const auto [stop, error] = std::from_chars(member.key.data(), end, token);
    if (error != std::errc() || stop != end || token < 0 || token >= vocab_size) {
      return fields->Fail("logit_bias", "must have token ids of the vocabulary as keys");
    }
    const double value = member.value.is_number() ? member.value.as_double() : 1000;
    if (!(value >= -100 && value <= 100)) {
      return fields->Fail("logit_bias", "must have values between -100 and 100");
    }
    options->sampling.logit_bias.emplace_back(token, static_cast<float>(value));
  }
}

void ReadTokenIds(const char* name, size_t most, int64_t vocab_size, Fields* fields,
                  std::vector<int32_t>* tokens) {
  const JsonValue* ids = fields->Array(name, most);
  if (ids == nullptr) return;
  for (const JsonValue& id : ids->items()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= vocab_size) {
      return fields->Fail(name, "must be token ids of the vocabulary");
    }
    tokens->push_back(static_cast<int32_t>(id.as_int()));
  }
}

// Strings that are not empty, at most so many; false: the field is not there, or wrong.
bool ReadWords(const char* name, Fields* fields, std::vector<std::string>* words) {
  const JsonValue* list = fields->Array(name, kWordsMax);
  if (list == nullptr) return false;
  words->clear();
  for (const JsonValue& item : list->items()) {
    if (!item.is_string() || item.as_string().empty() || item.as_string().size() > kWordBytesMax) {
      fields->Fail(name, fmt::format("must be strings of 1 to {} bytes", kWordBytesMax));
      return false;
    }
    words->emplace_back(item.as_string());
  }
  return true;
}

// The names are those of llama.cpp, and of vLLM where only that has the field.
void ReadHostSampling(int64_t vocab_size, Fields* fields, ReplyOptions* options) {
  SamplingParams& sampling = options->sampling;
  fields->Read("typical_p", 0.0, 1.0, &sampling.typical_p);
  fields->Read("top_n_sigma", -1.0, 100.0, &sampling.top_n_sigma);
  sampling.top_n_sigma = std::max(sampling.top_n_sigma, 0.0f);  // -1: off
  fields->Read("xtc_probability", 0.0, 1.0, &sampling.xtc_probability);
  fields->Read("xtc_threshold", 0.0, 1.0, &sampling.xtc_threshold);
  DryParams& dry = sampling.dry;
  fields->Read("dry_multiplier", 0.0, 100.0, &dry.multiplier);
  fields->Read("dry_base", 0.0, 100.0, &dry.base);
  fields->Read("dry_allowed_length", 0, kTokensMax, &dry.allowed_length);
  fields->Read("dry_penalty_last_n", -1, kTokensMax, &dry.last_tokens);
  options->dry_breakers = {"\n", ":", "\"", "*"};
  ReadWords("dry_sequence_breakers", fields, &options->dry_breakers);
  ReadWords("bad_words", fields, &options->bad_words);
  std::vector<int32_t>& allowed = sampling.allowed_tokens;
  ReadTokenIds("allowed_token_ids", static_cast<size_t>(vocab_size), vocab_size, fields, &allowed);
  std::ranges::sort(allowed);
  allowed.erase(std::ranges::unique(allowed).begin(), allowed.end());
}

// "options", as Ollama has them, in a body of OpenAI's. The fields of the body itself win.
void ReadNestedOptions(Fields* fields, ReplyOptions* options) {
  const JsonValue* nested = fields->Object("options");
  if (nested == nullptr) return;
  Fields part(*nested, "options.");
  SamplingParams& sampling = options->sampling;
  part.Read("temperature", 0.0, 2.0, &sampling.temperature);
  part.Read("top_p", 0.0, 1.0, &sampling.top_p);
  part.Read("min_p", 0.0, 1.0, &sampling.min_p);
  part.Read("top_k", 0, kTokensMax, &sampling.top_k);
  part.Read("presence_penalty", -2.0, 2.0, &sampling.presence_penalty);
  part.Read("frequency_penalty", -2.0, 2.0, &sampling.frequency_penalty);
  part.Read("repeat_penalty", 0.01, 100.0, &sampling.repetition_penalty);
  int32_t tokens = -1;
  part.Read("num_predict", -2, kTokensMax, &tokens);
  if (tokens >= 0) options->max_tokens = tokens;
  if (part.Find("seed") != nullptr) {
    int64_t seed = 0;
    part.Read("seed", INT64_MIN, INT64_MAX, &seed);
    options->seed = static_cast<uint64_t>(seed);
  }
  if (!part.Unread().empty()) fields->Pass("options");
  fields->Take(part);
}

bool IsExplicit(const JsonValue* breakpoint) {
  if (breakpoint == nullptr || breakpoint->is_null()) return false;
  if (breakpoint->is_bool()) return breakpoint->as_bool();
  return breakpoint->is_object();
}

// The text of a message: a string, or parts that are joined with newlines.
void ReadContent(const ServiceOptions& limits, Fields* fields, int32_t index, ChatTurn* turn,
                 CacheControl* cache) {
  const JsonValue* content = fields->Find("content");
  if (content == nullptr) return;
  const auto mark = [&] { cache->breakpoints.push_back({index, turn->content.size()}); };
  if (content->is_string()) {
    turn->content = std::string(content->as_string());
    if (IsExplicit(fields->Find("prompt_cache_breakpoint"))) mark();
    return;
  }
  const JsonValue* parts = fields->Array("content", kPartsMax);
  if (parts == nullptr) return;
  for (size_t i = 0; i < parts->items().size(); ++i) {
    const JsonValue& part = parts->items()[i];
    const std::string place = fmt::format("content[{}]", i);
    const JsonValue* type = part.Find("type");
    if (type == nullptr || !type->is_string()) {
      return fields->Fail(place, "must be an object with a type");
    }
    const std::string_view kind = type->as_string();
    if (kind == "image_url" && limits.sees) {
      const JsonValue* url = part.Find("image_url");
      if (url != nullptr && url->is_object()) url = url->Find("url");
      ReadPictureUrl(url, fields, place + ".image_url", turn);
      if (!fields->ok()) return;
      turn->pictures.back().place = fmt::format("messages[{}].{}.image_url", index, place);
      if (IsExplicit(part.Find("prompt_cache_breakpoint"))) mark();
      continue;
    }
    const bool beside_picture =
        !turn->pictures.empty() && turn->pictures.back().content_bytes == turn->content.size();
    if (i > 0 && !beside_picture) turn->content += '\n';
    if (kind == "image_url" && limits.ignore_images) {
      turn->content += kImageText;
      continue;
    }
    if (kind != "text" && kind != "refusal") {
      return fields->Fail(place + ".type",
                          fmt::format("'{}' is not supported: this server understands text {}",
                                      kind, limits.sees ? "and pictures" : "only"));
    }
    const JsonValue* text = part.Find(kind);
    if (text == nullptr || !text->is_string()) {
      return fields->Fail(place + "." + std::string(kind), "must be a string");
    }
    turn->content += text->as_string();
    if (IsExplicit(part.Find("prompt_cache_breakpoint"))) mark();
  }
}

void ReadCalls(Fields* fields, ChatTurn* turn) {
  const JsonValue* calls = fields->Array("tool_calls", 128);
  if (calls == nullptr) return;
  for (size_t i = 0; i < calls->items().size(); ++i) {
    const std::string place = fmt::format("tool_calls[{}]", i);
    const JsonValue& call = calls->items()[i];
    const JsonValue* function = call.Find("function");
    const JsonValue* id = call.Find("id");
    const JsonValue* name = function != nullptr ? function->Find("name") : nullptr;
    const JsonValue* arguments = function != nullptr ? function->Find("arguments") : nullptr;
    if (name == nullptr || !name->is_string()) {
      return fields->Fail(place + ".function.name", "must be a string");
    }
    ToolCall made;
    made.name = std::string(name->as_string());
    if (id != nullptr && id->is_string()) made.id = std::string(id->as_string());
    if (arguments == nullptr || arguments->is_null() ||
        (arguments->is_string() && arguments->as_string().empty())) {
      made.arguments = "{}";
    } else if (arguments->is_string()) {
      made.arguments = std::string(arguments->as_string());
    } else if (arguments->is_object()) {
      JsonWriter(&made.arguments).Value(*arguments);
    } else {
      return fields->Fail(place + ".function.arguments", "must be a string");
    }
    turn->calls.push_back(std::move(made));
  }
}

void ReadMessage(const ServiceOptions& limits, const JsonValue& message, int32_t index,
                 Fields* fields, ChatJob* job) {
  if (!message.is_object()) {
    return fields->Fail(fmt::format("messages[{}]", index), "must be an object");
  }
  Fields part(message, fmt::format("messages[{}].", index));
  ChatTurn turn;
  part.Read("role", 32, &turn.role);
  if (turn.role == "developer") turn.role = "system";
  if (turn.role == "function") turn.role = "tool";
  const bool known = turn.role == "system" || turn.role == "user" || turn.role == "assistant" ||
                     turn.role == "tool";
  if (!known) {
    part.Fail("role", "must be one of system, developer, user, assistant, tool");
  }
  ReadContent(limits, &part, index, &turn, &job->cache);
  part.Read("name", 256, &turn.name);
  if (turn.role == "assistant") {
    ReadCalls(&part, &turn);
    part.Read("reasoning", kReasoningBytesMax, &turn.reasoning);  // vLLM's and OpenRouter's name
    part.Read("reasoning_content", kReasoningBytesMax, &turn.reasoning);
  }
  if (turn.role == "tool") part.Read("tool_call_id", 256, &turn.call_id);
  if (turn.role != "assistant" && part.Find("content") == nullptr) {
    part.Fail("content", "is required");
  }
  fields->Take(part);
  job->turns.push_back(std::move(turn));
}

// A last message of the assistant's is how the reply begins, unless the client says that it is not.
void ReadContinuation(Fields* fields, ChatJob* job) {
  if (!fields->ok()) return;
  const std::string last = fmt::format("messages[{}]", job->turns.size() - 1);
  const ChatTurn& turn = job->turns.back();
  const bool asked = fields->Find("continue_final_message") != nullptr;
  bool goes_on = job->turns.size() > 1 && turn.role == "assistant" && turn.calls.empty() &&
                 turn.reasoning.empty();
  bool opens = true;
  if (asked) fields->Read("continue_final_message", &goes_on);
  fields->Read("add_generation_prompt", &opens);
  if (!opens && !goes_on) {
    return fields->Fail("add_generation_prompt", "needs continue_final_message: true",
                        "unsupported_value");
  }
  if (!goes_on) return;
  if (turn.role != "assistant") {
    return fields->Fail("continue_final_message", "needs a last message of the assistant's");
  }
  if (!turn.calls.empty()) return fields->Fail(last + ".tool_calls", "cannot be continued");
  if (!turn.reasoning.empty()) {
    return fields->Fail(last + ".reasoning_content", "cannot be continued");
  }
  if (job->turns.size() < 2) return fields->Fail("messages", "must have one before it");
  ContinueLastTurn(job);
}

}  // namespace

void ReadAnswerOptions(Fields* fields, AnswerOptions* options) {
  fields->Read("stream", &options->stream);
  fields->Read("return_token_ids", &options->token_ids);
  fields->Read("return_progress", &options->progress);
  const JsonValue* stream = fields->Object("stream_options");
  if (stream == nullptr) return;
  Fields part(*stream, "stream_options.");
  bool ignored = false;
  part.Read("include_usage", &options->include_usage);
  part.Read("include_obfuscation", &ignored);
  fields->Take(part);
  if (!options->stream) fields->Fail("stream_options", "needs stream: true");
}

bool ParseTtl(std::string_view text, int64_t* ms) {
  int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || count < 0 || count > kPinMsMax || end - stop != 1) return false;
  const int64_t unit = *stop == 's' ? 1000 : *stop == 'm' ? 60'000 : *stop == 'h' ? 3'600'000 : 0;
  if (unit == 0) return false;
  *ms = std::min(count * unit, kPinMsMax);
  return true;
}

void ReadReplyOptions(const ServiceOptions& limits, int64_t vocab_size, Fields* fields,
                      ReplyOptions* options) {
  SamplingParams& sampling = options->sampling;
  sampling = limits.sampling;
  ReadNestedOptions(fields, options);
  fields->Read("temperature", 0.0, 2.0, &sampling.temperature);
  fields->Read("top_p", 0.0, 1.0, &sampling.top_p);
  fields->Read("min_p", 0.0, 1.0, &sampling.min_p);
  if (const JsonValue* top_k = fields->Find("top_k");
      top_k && top_k->is_int() && top_k->as_int() == -1) {
    sampling.top_k = 0;  // vLLM's way to say: all
  } else {
    fields->Read("top_k", 0, kTokensMax, &sampling.top_k);
  }
  fields->Read("presence_penalty", -2.0, 2.0, &sampling.presence_penalty);
  fields->Read("frequency_penalty", -2.0, 2.0, &sampling.frequency_penalty);
  fields->Read("repetition_penalty", 0.01, 100.0, &sampling.repetition_penalty);
  if (fields->Find("seed") != nullptr) {
    int64_t seed = 0;
    fields->Read("seed", INT64_MIN, INT64_MAX, &seed);
    options->seed = static_cast<uint64_t>(seed);
  }
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (fields->Find(name) == nullptr) continue;
    int32_t tokens = 0;
    fields->Read(name, -1, kTokensMax, &tokens);
    options->max_tokens.reset();
    if (tokens >= 0) options->max_tokens = tokens;  // -1, as llama.cpp has it: no limit
  }
  fields->Read("min_tokens", 0, kTokensMax, &options->min_tokens);
  fields->Read("ignore_eos", &options->ignore_eos);
  fields->Read("n", 1, 128, &options->choices);
  fields->Read("priority", INT32_MIN, INT32_MAX, &options->priority);
  ReadSnapKv(fields, &options->snapkv);
  ReadSpeculate(fields, &options->speculate);
  ReadPrediction(fields, &options->prediction);
  ReadStop(limits, fields, options);
  ReadTokenIds("stop_token_ids", kStopTokensMax, vocab_size, fields, &options->stop_tokens);
  ReadLogitBias(vocab_size, fields, options);
  ReadHostSampling(vocab_size, fields, options);
}

void ReadCacheControl(Fields* fields, CacheControl* cache) {
  fields->Read("prompt_cache_key", kKeyBytesMax, &cache->session);
  fields->Read("cache_salt", kKeyBytesMax, &cache->salt);
  fields->Read("min_cache_tokens", 0, kTokensMax, &cache->min_tokens);
  bool prefix = true;
  fields->Read("cache_prefix", &prefix);
  cache->read = cache->write = prefix;
  std::string retention;
  fields->Read("prompt_cache_retention", 32, &retention);
  if (retention == "24h") {
    cache->pin_ms = kPinMsMax;
  } else if (!retention.empty() && retention != "in_memory" && retention != "in-memory") {
    fields->Fail("prompt_cache_retention", "must be in_memory or 24h");
  }
  const JsonValue* options = fields->Object("prompt_cache_options");
  if (options != nullptr) {
    Fields part(*options, "prompt_cache_options.");
    std::string mode = "implicit";
    std::string ttl;
    part.Read("mode", 32, &mode);
    part.Read("ttl", 32, &ttl);
    if (mode != "implicit" && mode != "explicit") part.Fail("mode", "must be implicit or explicit");
    if (!ttl.empty() && !ParseTtl(ttl, &cache->pin_ms)) {
      part.Fail("ttl", "must be a duration such as 30m or 1h");
    }
    // Only what the client marked is to be stored; it marked nothing.
    if (mode == "explicit" && cache->breakpoints.empty()) cache->write = false;
    fields->Take(part);
  }
  if (cache->breakpoints.size() > kBreakpointsMax) {
    cache->breakpoints.erase(cache->breakpoints.begin(),
                             cache->breakpoints.end() - kBreakpointsMax);
  }
  ReadStorePermission(fields, cache);
}

void ReadMessages(const ServiceOptions& limits, Fields* fields, ChatJob* job) {
  const auto count_max = static_cast<size_t>(limits.message_count_max);
  const JsonValue* messages = fields->Array("messages", count_max);
  if (messages == nullptr) {
    if (fields->ok()) fields->Fail("messages", "is required");
    return;
  }
  if (messages->items().empty()) return fields->Fail("messages", "must not be empty");
  for (size_t i = 0; i < messages->items().size() && fields->ok(); ++i) {
    ReadMessage(limits, messages->items()[i], static_cast<int32_t>(i), fields, job);
  }
  ReadVariables(fields, job);
  ReadContinuation(fields, job);
}

void ReadVariables(Fields* fields, ChatJob* job) {
  const JsonValue* variables = fields->Object("chat_template_kwargs");
  if (variables == nullptr) return;
  if (variables->members().size() > kVariablesMax) {
    return fields->Fail("chat_template_kwargs",
                        fmt::format("must have at most {} members", kVariablesMax));
  }
  JsonWriter(&job->variables).Value(*variables);
}

namespace {

// "thinking": {"type", "budget_tokens"}, as Anthropic, GLM, Kimi and DeepSeek have it.
void ReadThinkingObject(Fields* fields, ThinkingRequest* thinking) {
  const JsonValue* object = fields->Object("thinking");
  if (object == nullptr) return;
  Fields part(*object, "thinking.");
  std::string type;
  int32_t budget = -1;
  part.Read("type", 32, &type);
  part.Read("budget_tokens", 0, kTokensMax, &budget);
  if (type == "enabled" || type == "disabled") {
    thinking->enabled = type == "enabled";
  } else if (!type.empty() && type != "adaptive" && type != "auto") {
    part.Fail("type", "must be enabled, disabled or adaptive");
  }
  if (budget >= 0 && thinking->enabled != false) thinking->budget = budget;
  fields->Take(part);
}

// "reasoning": {"effort", "max_tokens", "enabled", "exclude"}, as OpenRouter has it.
void ReadReasoningObject(Fields* fields, ThinkingRequest* thinking) {
  const JsonValue* object = fields->Object("reasoning");
  if (object == nullptr) return;
  Fields part(*object, "reasoning.");
  int32_t budget = -1;
  part.Read("effort", 32, &thinking->effort);
  part.Read("max_tokens", 0, kTokensMax, &budget);
  if (budget >= 0) thinking->budget = budget;
  if (part.Find("enabled") != nullptr) {
    bool enabled = false;
    part.Read("enabled", &enabled);
    thinking->enabled = enabled;
  }
  fields->Take(part);
}

// "think", as Ollama has it: a switch, or how much.
void ReadThink(Fields* fields, ThinkingRequest* thinking) {
  const JsonValue* think = fields->Find("think");
  if (think == nullptr) return;
  if (think->is_bool()) {
    thinking->enabled = think->as_bool();
  } else {
    fields->Read("think", 32, &thinking->effort);
  }
}

}  // namespace

void ReadThinking(const ServedModel& model, Fields* fields, ChatJob* job) {
  ThinkingRequest& thinking = job->thinking;
  ReadThinkingObject(fields, &thinking);
  ReadReasoningObject(fields, &thinking);
  ReadThink(fields, &thinking);
  fields->Read("reasoning_effort", 32, &thinking.effort);
  if (fields->Find("enable_thinking") != nullptr) {
    bool enabled = false;
    fields->Read("enable_thinking", &enabled);
    thinking.enabled = enabled;
  }
  if (fields->Find("thinking_budget") != nullptr) {
    int32_t budget = 0;
    fields->Read("thinking_budget", 0, kTokensMax, &budget);
    thinking.budget = budget;
  }
  if (!fields->ok()) return;
  const Status planned = PlanThinking(model, job);
  if (!planned.ok()) fields->Fail("reasoning_effort", planned.message());
}

bool IsHostedTool(const JsonValue& tool) {
  const JsonValue* type = tool.is_object() ? tool.Find("type") : nullptr;
  return type != nullptr && type->is_string() && type->as_string() != "function" &&
         type->as_string() != "custom" && !type->as_string().starts_with("computer");
}

void PassHostedTool(const JsonValue& tool, size_t index, Fields* fields) {
  constexpr size_t kTypeBytesMax = 64;
  const std::string_view type = tool.Find("type")->as_string();
  fields->Pass(fmt::format("tools[{}] ({})", index, type.substr(0, kTypeBytesMax)));
}

void ReadTools(const ServiceOptions& limits, Fields* fields, ChatJob* job) {
  const auto count_max = static_cast<size_t>(limits.tool_count_max);
  const JsonValue* tools = fields->Array("tools", count_max);
  std::string kept;
  JsonWriter json(&kept);
  json.BeginArray();
  for (size_t i = 0; tools != nullptr && i < tools->items().size(); ++i) {
    const JsonValue& tool = tools->items()[i];
    if (IsHostedTool(tool)) {
      PassHostedTool(tool, i, fields);
      continue;
    }
    const JsonValue* function = tool.Find("function");
    const JsonValue* name = function != nullptr ? function->Find("name") : nullptr;
    if (name == nullptr || !name->is_string() || name->as_string().empty() ||
        name->as_string().size() > 256) {
      return fields->Fail(fmt::format("tools[{}]", i), "must be a function with a name");
    }
    json.Value(tool);
    job->calls.parse = true;
  }
  json.EndArray();
  if (job->calls.parse) job->tools = std::move(kept);
  bool parallel = true;
  fields->Read("parallel_tool_calls", &parallel);
  job->calls.one = !parallel;
  ReadAnswerRule(fields, &job->options.rule);
  ReadCallRule(fields, &job->tools, &job->calls, &job->options.rule);
}

}  // namespace reprise::api::openai
