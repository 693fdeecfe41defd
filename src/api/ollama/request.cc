// SPDX-License-Identifier: Apache-2.0
#include "api/ollama/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/fields/unsupported.h"
#include "api/llamacpp/infill.h"
#include "api/pictures/picture_url.h"
#include "base/json_writer.h"

namespace reprise::api::ollama {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kTextBytesMax = size_t{64} << 20;
constexpr int64_t kTokensMax = int64_t{1} << 30;

// Options that openai/params.h reads under the same names.
constexpr std::string_view kShared[] = {"temperature",      "top_k", "top_p", "min_p",
                                        "presence_penalty", "seed",  "stop",  "frequency_penalty",
                                        "typical_p"};
// How Ollama would load and run a model; answers do not depend on them.
constexpr std::string_view kRunning[] = {
    "num_keep",  "num_batch",        "num_gpu",       "main_gpu",   "low_vram", "use_mmap",
    "use_mlock", "num_thread",       "numa",          "vocab_only", "f16_kv",   "logits_all",
    "num_gqa",   "penalize_newline", "embedding_only"};
// Options that this sampler does not have, and the values that mean without it.
constexpr std::pair<std::string_view, double> kAbsent[] = {{"tfs_z", 1}, {"mirostat", 0}};

template <typename List>
bool Contains(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

void CheckOption(const std::string& name, bool strict, Fields* part) {
  if (Contains(kShared, name) || Contains(kRunning, name)) return;
  if (name == "num_predict" || name == "num_ctx" || name == "repeat_penalty") return;
  if (name == "mirostat_eta" || name == "mirostat_tau") return;  // mirostat itself is refused
  if (name == "repeat_last_n") return;                           // CheckPenaltyWindow
  for (const auto& [absent, without] : kAbsent) {
    if (name != absent) continue;
    const JsonValue* value = part->Find(name);
    if (value != nullptr && !(value->is_number() && value->as_double() == without)) {
      strict ? part->Leave(name, without) : part->Pass(name);
    }
    return;
  }
  strict ? part->Fail(name, "is not an option that this server knows") : part->Pass(name);
}

void ReadOptions(const ServiceOptions& limits, const ServedModel& model, Fields* fields,
                 ReplyOptions* reply) {
  static const auto kNone = JsonDocument::Parse("{}");
  const JsonValue* options = fields->Object("options");
  Fields part(options != nullptr ? *options : kNone->root(), "options.");
  if (options != nullptr) {
    for (const JsonValue::Member& member : options->members()) {
      if (!member.value.is_null())
        CheckOption(std::string(member.key), limits.strict_fields, &part);
    }
  }
  CheckPenaltyWindow(&part);
  openai::ReadReplyOptions(limits, model.vocab_size, &part, reply);
  part.Read("repeat_penalty", 0.01, 100.0, &reply->sampling.repetition_penalty);
  int32_t tokens = -1;
  part.Read("num_predict", -2, kTokensMax, &tokens);  // -1: no limit; -2: to the end of the context
  if (tokens >= 0) reply->max_tokens = tokens;
  int32_t context = 0;
  part.Read("num_ctx", 0, kTokensMax, &context);
  // The context is the server's: a prompt that does not fit is refused, whatever this says.
  if (context > model.context_tokens) part.Pass("num_ctx");
  fields->Take(part);
}

// "think": a switch, or how much.
void ReadThink(Fields* fields, ThinkingRequest* thinking) {
  const JsonValue* think = fields->Find("think");
  if (think == nullptr) return;
  if (think->is_bool()) {
    thinking->enabled = think->as_bool();
  } else if (think->is_string()) {
    thinking->effort = std::string(think->as_string().substr(0, kNameBytesMax));
  } else {
    fields->Fail("think", "must be true, false, low, medium or high");
  }
}

// "format": "json", or a schema.
void ReadFormat(Fields* fields, OutputRule* rule) {
  const JsonValue* format = fields->Find("format");
  if (format == nullptr) return;
  const std::string_view word = format->is_string() ? format->as_string() : std::string_view();
  if (format->is_string() && word.empty()) return;
  rule->field = "format";
  if (word == "json") {
    rule->answer = OutputRule::Answer::kJsonObject;
  } else if (format->is_object()) {
    rule->answer = OutputRule::Answer::kJsonSchema;
    JsonWriter(&rule->text).Value(*format);
  } else {
    fields->Fail("format", "must be json or a JSON schema");
  }
}

// What both kinds of requests have.
void ReadShared(const ServiceOptions& options, const ServedModel& model, Fields* fields,
                OllamaRequest* request) {
  request->model = ReadModelName(fields);
  fields->Read("stream", &request->stream);
  ReadOptions(options, model, fields, &request->job.options);
  ReadThink(fields, &request->job.thinking);
  ReadFormat(fields, &request->job.options.rule);
  ReadStorePermission(fields, &request->job.cache);
  bool logprobs = false;
  fields->Read("logprobs", &logprobs);
  if (logprobs) fields->Fail("logprobs", "are not supported here; use /v1/chat/completions");
}

// Images stand in front of the turn's text, become a text behind it, or are refused.
void ReadImages(const ServiceOptions& options, Fields* part, ChatTurn* turn) {
  const JsonValue* images = part->Array("images", 1024);
  if (images == nullptr || images->items().empty()) return;
  if (options.sees) {
    const std::string content = std::exchange(turn->content, {});
    for (size_t i = 0; i < images->items().size() && part->ok(); ++i) {
      ReadPictureData(&images->items()[i], part, fmt::format("images[{}]", i), turn);
    }
    turn->content = content;
    return;
  }
  if (!options.ignore_images) {
    return part->Fail("images", "are not supported: this server understands text only");
  }
  for (size_t i = 0; i < images->items().size(); ++i)
    turn->content += "\n" + std::string(kImageText);
}

}  // namespace

std::string ReadModelName(Fields* fields) {
  std::string name;
  fields->Read("name", kNameBytesMax, &name);
  fields->Read("model", kNameBytesMax, &name);
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

OllamaRequest ReadChat(const ServiceOptions& options, const ServedModel& model, Account*,
                       Fields* fields) {
  OllamaRequest request;
  ReadShared(options, model, fields, &request);
  const JsonValue* messages = fields->Find("messages");
  if (messages == nullptr || (messages->is_array() && messages->items().empty())) {
    request.load_only = true;
    openai::ReadTools(options, fields, &request.job);
    return request;
  }
  ChatJob& job = request.job;
  openai::ReadMessages(options, fields, &job);
  openai::ReadTools(options, fields, &job);
  if (!fields->ok()) return request;
  for (size_t i = 0; i < job.turns.size(); ++i) {
    Fields part(messages->items()[i], fmt::format("messages[{}].", i));
    part.Read("thinking", kTextBytesMax, &job.turns[i].reasoning);
    part.Read("tool_name", kNameBytesMax, &job.turns[i].name);
    ReadImages(options, &part, &job.turns[i]);
    fields->Take(part);
  }
  return request;
}

OllamaRequest ReadGenerate(const ServiceOptions& options, const ServedModel& model,
                           Account* account, Fields* fields) {
  OllamaRequest request;
  ReadShared(options, model, fields, &request);
  fields->Read("raw", &request.raw);
  fields->Read("prompt", kTextBytesMax, &request.prompt);
  Prompt infill;
  if (llamacpp::ReadSuffix(model, request.prompt, account, fields, &request.job.options, &infill)) {
    request.raw = true;
    request.infill = std::move(infill);
  }
  std::string own_template;
  fields->Read("template", kTextBytesMax, &own_template);
  if (!own_template.empty()) fields->Fail("template", "is not supported by this server");
  const JsonValue* context = fields->Find("context");
  if (context != nullptr && !(context->is_array() && context->items().empty())) {
    fields->Fail("context", "is not supported; use /api/chat, and send the conversation");
  }
  ChatTurn user;
  user.role = "user";
  user.content = request.prompt;
  ReadImages(options, fields, &user);
  if (request.raw && !user.pictures.empty()) fields->Fail("images", "need raw: false");
  request.prompt = user.content;
  request.load_only = request.prompt.empty() && user.pictures.empty();
  ChatTurn system;
  system.role = "system";
  fields->Read("system", kTextBytesMax, &system.content);
  if (!system.content.empty()) request.job.turns.push_back(std::move(system));
  request.job.turns.push_back(std::move(user));
  return request;
}

}  // namespace reprise::api::ollama
