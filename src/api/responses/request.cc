// SPDX-License-Identifier: Apache-2.0
#include "api/responses/request.h"

#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "api/fields/unsupported.h"
#include "api/openai/output_rules.h"
#include "api/openai/params.h"
#include "base/json_writer.h"

namespace reprise::api::responses {
namespace {

constexpr size_t kIdBytesMax = 256;
constexpr size_t kInstructionBytesMax = size_t{64} << 20;
constexpr size_t kMetadataMax = 16;
constexpr const char* kRepeated[] = {"instructions",         "max_output_tokens",
                                     "max_tool_calls",       "prompt_cache_key",
                                     "previous_response_id", "safety_identifier"};
// Of the function that stands for a tool which takes a text.
constexpr char kInputSchema[] =
    R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"]})";
constexpr int64_t kTokensMax = int64_t{1} << 30;

std::string_view TextOf(const JsonValue* value) {
  return value != nullptr && value->is_string() ? value->as_string() : std::string_view();
}

void ReadInclude(Fields* fields, ResponsesRequest* request) {
  const JsonValue* include = fields->Array("include", 32);
  if (include == nullptr) return;
  for (const JsonValue& item : include->items()) {
    const std::string_view name = TextOf(&item);
    if (name == "reasoning.encrypted_content") {
      request->seal_reasoning = true;
    } else if (name == "message.output_text.logprobs") {
      request->logprobs = true;
    } else if (name.find('.') == std::string_view::npos) {
      return fields->Fail("include", "must be names such as reasoning.encrypted_content");
    }
    // The others are parts of items that never occur here.
  }
}

// Writes tools as in chat requests, for templates and parsers.
class ToolReader {
 public:
  ToolReader(size_t count_max, Fields* fields, ResponsesRequest* request)
      : count_max_(count_max), fields_(*fields), request_(*request), json_(&request->job.tools) {}

  void Read() {
    const JsonValue* tools = fields_.Array("tools", count_max_);
    if (tools == nullptr || tools->items().empty()) return;
    json_.BeginArray();
    ReadList(*tools, "tools", "");
    json_.EndArray();
    request_.job.calls.parse = !names_.empty();
    if (names_.empty()) request_.job.tools.clear();
  }

 private:
  // `space`: the namespace around them, or empty.
  void ReadList(const JsonValue& tools, const std::string& place, const std::string& space) {
    for (size_t i = 0; i < tools.items().size() && fields_.ok(); ++i) {
      const JsonValue& tool = tools.items()[i];
      const std::string here = fmt::format("{}[{}]", place, i);
      const std::string_view type = TextOf(tool.Find("type"));
      if (type == "function") {
        ReadFunction(tool, here, space);
      } else if (type == "custom") {
        ReadCustom(tool, here, space);
      } else if (type == "namespace" && space.empty()) {
        ReadNamespace(tool, here);
      } else if (openai::IsHostedTool(tool)) {
        openai::PassHostedTool(tool, i, &fields_);
      } else {
        fields_.Fail(here + ".type",
                     fmt::format("'{}' is not supported: send functions or custom tools", type));
      }
    }
  }

  std::string ReadName(const JsonValue& tool, const std::string& place) {
    const std::string_view name = TextOf(tool.Find("name"));
    if (name.empty() || name.size() > kIdBytesMax) {
      fields_.Fail(place + ".name", fmt::format("must be a string of 1 to {} bytes", kIdBytesMax));
    }
    return std::string(name);
  }

  // A list of functions under a name. The model sees functions only.
  void ReadNamespace(const JsonValue& tool, const std::string& place) {
    const std::string name = ReadName(tool, place);
    const JsonValue* tools = tool.Find("tools");
    if (tools == nullptr || !tools->is_array() || tools->items().size() > count_max_) {
      return fields_.Fail(place + ".tools",
                          fmt::format("must be an array of at most {} functions", count_max_));
    }
    ReadList(*tools, place + ".tools", name);
  }

  // The name of a tool that was not there before; empty: it is wrong.
  std::string ReadNewName(const JsonValue& tool, const std::string& place,
                          const std::string& space) {
    const std::string name = ReadName(tool, place);
    if (!fields_.ok()) return "";
    if (!names_.insert(name).second) {
      fields_.Fail(place + ".name", fmt::format("'{}' is there already", name));
      return "";
    }
    if (names_.size() > count_max_) {
      fields_.Fail("tools", fmt::format("must be at most {} functions", count_max_));
      return "";
    }
    if (!space.empty()) request_.namespaces[name] = space;
    return name;
  }

  // A tool that takes a text. Its grammar is shown to the model; nothing holds the model to it.
  void ReadCustom(const JsonValue& tool, const std::string& place, const std::string& space) {
    const std::string name = ReadNewName(tool, place, space);
    if (name.empty()) return;
    std::string description(TextOf(tool.Find("description")));
    const JsonValue* format = tool.Find("format");
    if (format != nullptr && format->is_object() && TextOf(format->Find("type")) == "grammar") {
      fields_.Pass(place + ".format");
      description +=
          fmt::format("\n\nThe input follows this grammar ({}):\n{}",
                      TextOf(format->Find("syntax")), TextOf(format->Find("definition")));
    }
    request_.custom.insert(name);
    json_.BeginObject().Member("type", "function").Key("function").BeginObject();
    json_.Member("name", name).Member("description", description);
    json_.Key("parameters").Raw(kInputSchema).EndObject().EndObject();
  }

  void ReadFunction(const JsonValue& tool, const std::string& place, const std::string& space) {
    const std::string name = ReadNewName(tool, place, space);
    if (name.empty()) return;
    json_.BeginObject().Member("type", "function").Key("function").BeginObject();
    json_.Member("name", name);
    for (const char* member : {"description", "parameters"}) {
      const JsonValue* value = tool.Find(member);
      if (value != nullptr && !value->is_null()) json_.Key(member).Value(*value);
    }
    const JsonValue* strict = tool.Find("strict");
    if (strict != nullptr && strict->is_bool() && strict->as_bool()) json_.Member("strict", true);
    json_.EndObject().EndObject();
  }

  const size_t count_max_;
  Fields& fields_;
  ResponsesRequest& request_;
  JsonWriter json_;
  std::unordered_set<std::string> names_;
};

// What the reply must be: text.format, tool_choice, strict tools.
void ReadRules(Fields* fields, ResponsesRequest* request) {
  OutputRule& rule = request->job.options.rule;
  if (const JsonValue* text = fields->Object("text")) {
    Fields part(*text, "text.");
    openai::ReadFormatRule("format", &part, &rule);
    std::string verbosity = "medium";
    part.Read("verbosity", 32, &verbosity);
    if (verbosity != "medium") part.Pass("verbosity");
    if (!rule.field.empty()) rule.field = "text." + rule.field;
    fields->Take(part);
  }
  bool parallel = true;
  fields->Read("parallel_tool_calls", &parallel);
  request->job.calls.one = !parallel;
  if (!fields->ok()) return;
  openai::ReadCallRule(fields, &request->job.tools, &request->job.calls, &rule);
}

void ReadPrevious(const ResponseStore& store, const Tenant& tenant, Fields* fields,
                  ResponsesRequest* request) {
  std::string id;
  fields->Read("previous_response_id", kIdBytesMax, &id);
  if (id.empty()) return;
  const auto previous = store.Find(tenant.name, id);
  if (previous == nullptr) {
    return fields->Fail("previous_response_id",
                        fmt::format("'{}' is not a response that this server remembers; send the "
                                    "conversation as input",
                                    id),
                        "previous_response_not_found");
  }
  request->conversation.items = previous->items;
}

void ReadMetadata(Fields* fields) {
  const JsonValue* metadata = fields->Object("metadata");
  if (metadata == nullptr) return;
  if (metadata->members().size() > kMetadataMax) {
    return fields->Fail("metadata", fmt::format("must have at most {} members", kMetadataMax));
  }
  for (const JsonValue::Member& member : metadata->members()) {
    if (!member.value.is_string()) return fields->Fail("metadata", "must have strings as values");
  }
}

// A member as the client sent it, or `otherwise`.
void Repeat(const Fields& fields, const char* name, const char* otherwise, JsonWriter* json) {
  json->Key(name);
  const JsonValue* value = fields.Find(name);
  value == nullptr ? json->Raw(otherwise) : json->Value(*value);
}

std::string FormatSettings(const Fields& fields, const ResponsesRequest& request) {
  std::string text;
  JsonWriter json(&text);
  for (const char* name : kRepeated) {
    Repeat(fields, name, "null", &json);
  }
  if (fields.Find("user") != nullptr) Repeat(fields, "user", "", &json);
  Repeat(fields, "metadata", "{}", &json);
  Repeat(fields, "tools", "[]", &json);
  Repeat(fields, "tool_choice", "\"auto\"", &json);
  Repeat(fields, "parallel_tool_calls", "true", &json);
  Repeat(fields, "reasoning", R"({"effort":null,"summary":null})", &json);
  Repeat(fields, "text", R"({"format":{"type":"text"}})", &json);
  Repeat(fields, "top_logprobs", "0", &json);
  json.Member("background", request.background).Member("service_tier", "default");
  json.Member("truncation", "disabled").Member("store", request.store);
  json.Member("temperature", request.job.options.sampling.temperature);
  json.Member("top_p", request.job.options.sampling.top_p);
  return text;
}

}  // namespace

ResponsesRequest ReadResponsesRequest(const ServiceOptions& options, int64_t vocab_size,
                                      const ResponseStore& store, const Tenant& tenant,
                                      Account* account, Fields* fields) {
  ResponsesRequest request;
  ChatJob& job = request.job;
  fields->SetDialect(Dialect::kResponses);
  fields->Read("stream", &request.stream);
  fields->Read("store", &request.store);
  fields->Read("background", &request.background);
  ReadInclude(fields, &request);
  ToolReader(static_cast<size_t>(options.tool_count_max), fields, &request).Read();
  ReadRules(fields, &request);
  openai::ReadReplyOptions(options, vocab_size, fields, &job.options);
  if (job.options.choices != 1) fields->Fail("n", "must be 1");
  if (fields->Find("max_output_tokens") != nullptr) {
    int32_t tokens = 1;
    fields->Read("max_output_tokens", 1, kTokensMax, &tokens);
    job.options.max_tokens = tokens;
  }
  if (const JsonValue* reasoning = fields->Object("reasoning")) {
    Fields part(*reasoning, "reasoning.");
    part.Read("effort", 32, &job.thinking.effort);
    fields->Take(part);
  }
  int32_t top = 0;
  fields->Read("top_logprobs", 0, 20, &top);
  if (request.logprobs) job.options.logprobs = top;
  openai::ReadCacheControl(fields, &job.cache);
  if (job.cache.forget) {
    if (fields->Find("store") != nullptr && request.store) {
      fields->Fail("store", "cannot be true: cache.store is false");
    }
    request.store = false;
  }
  if (request.background && !request.store) {
    fields->Fail("background", "needs a response that is stored: leave out store");
  }
  openai::ReadVariables(fields, &job);
  ReadMetadata(fields);

  std::string instructions;
  fields->Read("instructions", kInstructionBytesMax, &instructions);
  ReadPrevious(store, tenant, fields, &request);
  StoredResponse& conversation = request.conversation;
  conversation.input_begin = conversation.items.size();
  std::shared_ptr<const Item> found;
  ReadInput(
      options,
      [&](std::string_view id) {
        found = store.FindItem(tenant.name, id);
        return found.get();
      },
      fields, &conversation.items);
  conversation.input_end = conversation.items.size();
  size_t bytes = 0;
  for (const Item& item : conversation.items) {
    bytes += item.bytes();
    if (!item.pictures.empty() && !options.sees) {
      fields->Fail("input", "continues a conversation with pictures, and this model sees none");
      return request;
    }
  }
  const Status room = account->TakeReading(bytes, "the items of the conversation");
  if (!room.ok()) {
    fields->Fail("input", "cannot be read: " + room.message());
    return request;
  }
  job.turns = MakeTurns(instructions, conversation.items);
  if (fields->ok() && job.turns.empty()) fields->Fail("input", "is required");
  if (job.turns.size() > static_cast<size_t>(options.message_count_max)) {
    fields->Fail("input", fmt::format("must be at most {} turns", options.message_count_max));
  }
  RefuseUnread(Dialect::kResponses, options, fields);
  NotePassed(*fields, &job);
  if (fields->ok()) request.settings = FormatSettings(*fields, request);
  return request;
}

}  // namespace reprise::api::responses
