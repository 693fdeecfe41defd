// SPDX-License-Identifier: Apache-2.0
#include "api/anthropic/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/anthropic/client_tools.h"
#include "api/anthropic/conversation.h"
#include "api/fields/unsupported.h"
#include "base/json_writer.h"

namespace reprise::api::anthropic {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kStopBytesMax = 4096;
constexpr int64_t kTokensMax = int64_t{1} << 30;

// Empty for a tool that the request describes itself.
std::string_view TypeOf(const JsonValue& tool) {
  const JsonValue* type = tool.Find("type");
  const bool named = type != nullptr && type->is_string() && type->as_string() != "custom";
  return named ? type->as_string() : std::string_view();
}

// A tool as the templates know it: OpenAI's form.
bool IsStrict(const JsonValue& tool) {
  const JsonValue* strict = tool.Find("strict");
  return strict != nullptr && strict->is_bool() && strict->as_bool();
}

void WriteTool(const JsonValue& tool, JsonWriter* json) {
  const ClientTool* known = FindClientTool(TypeOf(tool));
  json->BeginObject().Member("type", "function").Key("function").BeginObject();
  json->Key("name").Value(*tool.Find("name"));
  if (known != nullptr) {
    json->Member("description", known->description).Key("parameters").Raw(known->input_schema);
  } else {
    if (const JsonValue* description = tool.Find("description")) {
      json->Key("description").Value(*description);
    }
    json->Key("parameters").Value(*tool.Find("input_schema"));
  }
  if (IsStrict(tool)) json->Member("strict", true);
  json->EndObject().EndObject();
}

// A tool that clients run, but for which the model needs eyes.
bool IsComputer(std::string_view type) { return type.starts_with("computer_"); }

// Whether it would run at the vendor's: web_search, code_execution.
bool IsHosted(const JsonValue& tool) {
  return tool.is_object() && !TypeOf(tool).empty() && FindClientTool(TypeOf(tool)) == nullptr &&
         !IsComputer(TypeOf(tool));
}

// The first thing that is wrong with a tool, or nothing.
std::string CheckTool(const JsonValue& tool) {
  if (!tool.is_object()) return "must be an object";
  const std::string_view type = TypeOf(tool);
  if (IsComputer(type)) return fmt::format("has type {}, which is not supported", type);
  const ClientTool* known = FindClientTool(type);
  const JsonValue* name = tool.Find("name");
  if (name == nullptr || !name->is_string() || name->as_string().empty() ||
      name->as_string().size() > kNameBytesMax) {
    return fmt::format("must have a name of 1 to {} bytes", kNameBytesMax);
  }
  if (known != nullptr) return "";
  const JsonValue* schema = tool.Find("input_schema");
  if (schema == nullptr || !schema->is_object()) return "must have an input_schema, an object";
  const JsonValue* description = tool.Find("description");
  if (description != nullptr && !description->is_string()) return "must have text as description";
  return "";
}

void ReadTools(const ServiceOptions& options, Fields* fields, Breakpoints* breakpoints,
               MessagesRequest* request) {
  const JsonValue* tools = fields->Array("tools", static_cast<size_t>(options.tool_count_max));
  if (tools == nullptr || tools->items().empty()) return;
  JsonWriter json(&request->job.tools);
  json.BeginArray();
  for (size_t i = 0; i < tools->items().size(); ++i) {
    const JsonValue& tool = tools->items()[i];
    if (IsHosted(tool)) {
      fields->Pass(fmt::format("tools[{}] ({})", i, TypeOf(tool).substr(0, kNameBytesMax)));
      continue;
    }
    request->job.calls.parse = true;
    if (std::string wrong = CheckTool(tool); !wrong.empty()) {
      return fields->Fail(fmt::format("tools[{}]", i), std::move(wrong));
    }
    WriteTool(tool, &json);
    breakpoints->Read(tool, fmt::format("tools[{}]", i), {-1, 0}, fields);
  }
  json.EndArray();
  if (!request->job.calls.parse) request->job.tools.clear();
  if (std::any_of(tools->items().begin(), tools->items().end(), IsStrict)) {
    request->job.options.rule.calls = OutputRule::Calls::kStrict;
    request->job.options.rule.field = "tools";
  }
}

void ReadToolChoice(Fields* fields, MessagesRequest* request) {
  const JsonValue* choice = fields->Object("tool_choice");
  if (choice == nullptr) return;
  Fields part(*choice, "tool_choice.");
  std::string type;
  part.Read("type", 32, &type);
  part.Read("disable_parallel_tool_use", &request->job.calls.one);
  OutputRule& rule = request->job.options.rule;
  if (type == "any" || type == "tool") {
    rule.calls = OutputRule::Calls::kRequired;
    rule.field = "tool_choice";
    if (type == "tool") {
      part.Read("name", kNameBytesMax, &rule.only_tool);
      if (rule.only_tool.empty()) part.Fail("name", "is required");
      request->job.calls.one = true;
    }
    if (request->job.tools.empty())
      part.Fail("type", "requires a call, but the request has no tools");
  } else if (type == "none") {
    request->job.calls.parse = false;
    rule.calls = OutputRule::Calls::kFree;
  } else if (type != "auto") {
    part.Fail("type", "must be auto, any, tool or none");
  }
  fields->Take(part);
}

// How much to think; without thinking there is nothing to choose. "high" is what models do without
// being asked, so that it asks nothing of those that do not think.
void ReadEffort(Fields* fields, ThinkingRequest* thinking) {
  const JsonValue* output = fields->Object("output_config");
  if (output == nullptr) return;
  Fields part(*output, "output_config.");
  std::string effort;
  part.Read("effort", 32, &effort);
  constexpr std::string_view kEfforts[] = {"", "low", "medium", "high", "xhigh", "max"};
  if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) == std::end(kEfforts)) {
    part.Fail("effort", "must be low, medium, high, xhigh or max");
  }
  if (effort != "high" && thinking->enabled != false) thinking->effort = effort;
  fields->Take(part);
}

void ReadThinking(Fields* fields, MessagesRequest* request) {
  const JsonValue* thinking = fields->Object("thinking");
  if (thinking == nullptr) return;
  Fields part(*thinking, "thinking.");
  std::string type;
  std::string display;
  int32_t budget = 0;
  part.Read("type", 32, &type);
  part.Read("display", 32, &display);
  part.Read("budget_tokens", 1, kTokensMax, &budget);
  if (type == "enabled" || type == "disabled") {
    request->job.thinking.enabled = type == "enabled";
    if (type == "enabled" && budget > 0) request->job.thinking.budget = budget;
  } else if (type != "adaptive" && type != "between_tools") {
    part.Fail("type", "must be enabled, disabled or adaptive");
  }
  request->show_thinking = display != "omitted";
  fields->Take(part);
}

void ReadOptions(const ServiceOptions& limits, bool count_only, Fields* fields,
                 ReplyOptions* options) {
  options->sampling = limits.sampling;
  fields->Read("temperature", 0.0, 2.0, &options->sampling.temperature);
  fields->Read("top_p", 0.0, 1.0, &options->sampling.top_p);
  fields->Read("top_k", 0, kTokensMax, &options->sampling.top_k);
  ReadSnapKv(fields, &options->snapkv);
  ReadSpeculate(fields, &options->speculate);
  if (!count_only) {
    int32_t tokens = 0;
    if (fields->Find("max_tokens") == nullptr) fields->Fail("max_tokens", "is required");
    fields->Read("max_tokens", 0, kTokensMax, &tokens);
    options->max_tokens = tokens;
  }
  const JsonValue* stops =
      fields->Array("stop_sequences", static_cast<size_t>(limits.stop_count_max));
  if (stops != nullptr) {
    for (const JsonValue& stop : stops->items()) {
      if (!stop.is_string() || stop.as_string().empty() ||
          stop.as_string().size() > kStopBytesMax) {
        return fields->Fail("stop_sequences",
                            fmt::format("must be strings of 1 to {} bytes", kStopBytesMax));
      }
      options->stop.emplace_back(stop.as_string());
    }
  }
  const JsonValue* output = fields->Object("output_config");
  const JsonValue* format = output == nullptr ? nullptr : output->Find("format");
  if (format == nullptr) format = fields->Find("output_format");  // the name while it was a beta
  if (format != nullptr && !format->is_null()) {
    const JsonValue* type = format->Find("type");
    const JsonValue* schema = format->Find("schema");
    const bool known = type != nullptr && type->is_string() && type->as_string() == "json_schema";
    if (!known || schema == nullptr || !schema->is_object()) {
      return fields->Fail("output_config.format", "must be a json_schema with a schema");
    }
    options->rule.answer = OutputRule::Answer::kJsonSchema;
    options->rule.field = "output_config.format";
    JsonWriter(&options->rule.text).Value(*schema);
  }
}

// A conversation that the server would keep. The code in the error lets clients go on without.
void ReadThread(Fields* fields) {
  const JsonValue* thread = fields->Object("thread");
  if (thread == nullptr) return;
  const JsonValue* type = thread->Find("type");
  const bool goes_on = type != nullptr && type->is_string() && type->as_string() == "continue";
  fields->Fail("thread", "is not supported; send the conversation",
               goes_on ? "thread_not_found" : "thread_unsupported_request");
}

// An assistant's message at the end is how the reply begins.
void TakePrefill(Fields* fields, ChatJob* job) {
  if (job->turns.size() < 2 || job->turns.back().role != "assistant") return;
  if (!job->turns.back().calls.empty()) {
    return fields->Fail("messages", "must have the result of a tool_use after it");
  }
  ContinueLastTurn(job);
}

}  // namespace

MessagesRequest ReadMessagesRequest(const ServiceOptions& options, bool count_only,
                                    Fields* fields) {
  MessagesRequest request;
  fields->Read("model", kNameBytesMax, &request.model);
  if (fields->ok() && request.model.empty()) fields->Fail("model", "is required");
  fields->Read("stream", &request.stream);
  ReadOptions(options, count_only, fields, &request.job.options);
  ReadThinking(fields, &request);
  ReadEffort(fields, &request.job.thinking);

  // In the order in which they stand in a prompt.
  Breakpoints breakpoints;
  ReadTools(options, fields, &breakpoints, &request);
  ReadToolChoice(fields, &request);
  ReadSystem(options.strip_preambles, fields, &breakpoints, &request.job);
  ReadMessages(options, fields, &breakpoints, &request.job);
  TakePrefill(fields, &request.job);
  breakpoints.ReadWhole(request.job.turns, fields);
  breakpoints.Finish(request.job.turns, &request.job.cache, fields);
  request.hour_breakpoints = breakpoints.hours();
  ReadStorePermission(fields, &request.job.cache);

  if (const JsonValue* diagnostics = fields->Object("diagnostics")) {
    Fields part(*diagnostics, "diagnostics.");
    part.Read("previous_message_id", kNameBytesMax, &request.previous_message_id);
    request.diagnose = true;
    fields->Take(part);
  }
  // Requests of one user and session belong together; nothing else is made of the name.
  if (const JsonValue* metadata = fields->Object("metadata")) {
    Fields part(*metadata, "metadata.");
    part.Read("user_id", 1024, &request.job.cache.session);
    fields->Take(part);
  }
  ReadThread(fields);
  RefuseUnread(Dialect::kMessages, options, fields);
  NotePassed(*fields, &request.job);
  return request;
}

}  // namespace reprise::api::anthropic
