// SPDX-License-Identifier: Apache-2.0
#include "api/openai/output_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "api/body.h"
#include "base/json_writer.h"

namespace reprise::api::openai {
namespace {

using Answer = OutputRule::Answer;

constexpr size_t kRuleBytesMax = size_t{1} << 20;

std::string TextOf(const JsonValue& value) {
  std::string text;
  JsonWriter(&text).Value(value);
  return text;
}

// One request, one rule.
void Set(Fields* fields, std::string_view field, Answer answer, OutputRule* rule) {
  if (rule->answer != Answer::kFree) {
    fields->Fail(field, fmt::format("cannot be combined with {}", rule->field));
  }
  rule->answer = answer;
  rule->field = field;
}

void SetSchema(Fields* fields, std::string_view field, const JsonValue& schema, OutputRule* rule) {
  Set(fields, field, Answer::kJsonSchema, rule);
  // vLLM takes a schema as text, too.
  rule->text = schema.is_string() ? std::string(schema.as_string()) : TextOf(schema);
  if (!schema.is_object() && !schema.is_bool() && !schema.is_string()) {
    fields->Fail(field, "must be a JSON schema");
  }
}

void SetText(Fields* fields, std::string_view field, const JsonValue& text, Answer answer,
             OutputRule* rule) {
  Set(fields, field, answer, rule);
  if (!text.is_string()) return fields->Fail(field, "must be a string");
  rule->text = text.as_string();
}

void SetChoices(Fields* fields, std::string_view field, const JsonValue& list, OutputRule* rule) {
  Set(fields, field, Answer::kChoice, rule);
  if (!list.is_array()) return fields->Fail(field, "must be an array of strings");
  for (const JsonValue& choice : list.items()) {
    if (!choice.is_string()) return fields->Fail(field, "must be an array of strings");
    rule->choices.emplace_back(choice.as_string());
  }
}

// vLLM's object, old and new: the same members with and without "guided_" before them.
void ReadStructured(Fields* fields, OutputRule* rule) {
  const JsonValue* structured = fields->Object("structured_outputs");
  struct Row {
    std::string_view name;
    Answer answer;
  };
  static constexpr Row kRows[] = {{"json", Answer::kJsonSchema},
                                  {"regex", Answer::kRegex},
                                  {"choice", Answer::kChoice},
                                  {"grammar", Answer::kGrammar},
                                  {"json_object", Answer::kJsonObject}};
  const auto read = [&](const JsonValue* value, const std::string& field, Answer answer) {
    if (value == nullptr || value->is_null()) return;
    switch (answer) {
      case Answer::kJsonSchema:
        return SetSchema(fields, field, *value, rule);
      case Answer::kChoice:
        return SetChoices(fields, field, *value, rule);
      case Answer::kJsonObject:
        if (value->is_bool() && value->as_bool()) Set(fields, field, answer, rule);
        return;
      default:
        return SetText(fields, field, *value, answer, rule);
    }
  };
  for (const Row& row : kRows) {
    const std::string name(row.name);
    read(fields->Find("guided_" + name), "guided_" + name, row.answer);
    if (structured != nullptr)
      read(structured->Find(name), "structured_outputs." + name, row.answer);
  }
  if (structured == nullptr) return;
  for (const auto& member : structured->members()) {
    static constexpr std::string_view kHarmless[] = {"disable_any_whitespace", "disable_fallback",
                                                     "disable_additional_properties",
                                                     "whitespace_pattern", "_backend"};
    const bool known = std::ranges::find(kRows, member.key, &Row::name) != std::end(kRows) ||
                       std::ranges::find(kHarmless, member.key) != std::end(kHarmless);
    if (known || member.value.is_null()) continue;
    fields->Fail("structured_outputs." + std::string(member.key), "is not supported by this server",
                 "unsupported_value");
  }
}

}  // namespace

void ReadFormatRule(const std::string& name, Fields* fields, OutputRule* rule) {
  const JsonValue* format = fields->Object(name);
  if (format == nullptr) return;
  const JsonValue* type = format->Find("type");
  const std::string_view word =
      type != nullptr && type->is_string() ? type->as_string() : std::string_view();
  if (word == "json_object") {
    // Some clients put a schema beside it.
    const JsonValue* schema = format->Find("schema");
    if (schema != nullptr) return SetSchema(fields, name + ".schema", *schema, rule);
    return Set(fields, name, Answer::kJsonObject, rule);
  }
  if (word == "json_schema") {
    const JsonValue* outer = format->Find("json_schema");
    const JsonValue* schema = outer != nullptr ? outer->Find("schema") : format->Find("schema");
    // Chat completions have it one level deeper than the Responses API.
    const bool deep = outer != nullptr || (schema == nullptr && name == "response_format");
    const std::string place = name + (deep ? ".json_schema.schema" : ".schema");
    if (schema == nullptr) return fields->Fail(place, "is required");
    return SetSchema(fields, place, *schema, rule);
  }
  if (word != "text") {
    fields->Fail(name + ".type", "must be text, json_object or json_schema");
  }
}

void ReadAnswerRule(Fields* fields, OutputRule* rule) {
  ReadFormatRule("response_format", fields, rule);
  ReadStructured(fields, rule);
  for (const char* name : {"grammar", "ebnf"}) {
    const JsonValue* grammar = fields->Find(name);
    if (grammar != nullptr) SetText(fields, name, *grammar, Answer::kGrammar, rule);
  }
  if (const JsonValue* regex = fields->Find("regex")) {
    SetText(fields, "regex", *regex, Answer::kRegex, rule);
  }
  if (const JsonValue* schema = fields->Find("json_schema")) {
    SetSchema(fields, "json_schema", *schema, rule);
  }
  if (rule->text.size() > kRuleBytesMax) {
    fields->Fail(rule->field, fmt::format("must have at most {} bytes", kRuleBytesMax));
  }
}

namespace {

bool IsStrict(const JsonValue& tool) {
  const JsonValue* function = tool.Find("function");
  const JsonValue* flag = function != nullptr ? function->Find("strict") : nullptr;
  return flag != nullptr && flag->is_bool() && flag->as_bool();
}

std::string_view NameIn(const JsonValue& tool) {
  const JsonValue* function = tool.Find("function");
  const JsonValue* name = (function != nullptr ? function : &tool)->Find("name");
  return name != nullptr && name->is_string() ? name->as_string() : std::string_view();
}

// {"type": "allowed_tools", "mode", "tools"}, or the last two in a member allowed_tools: leaves
// these tools. True if one of them must be called.
bool ReadAllowedTools(const JsonValue& choice, const JsonValue& given, Fields* fields,
                      std::string* tools) {
  const JsonValue* inner = choice.Find("allowed_tools");
  const JsonValue& allowed = inner != nullptr && inner->is_object() ? *inner : choice;
  const JsonValue* list = allowed.Find("tools");
  if (list == nullptr || !list->is_array()) {
    fields->Fail("tool_choice.tools", "must be an array of functions");
    return false;
  }
  std::unordered_set<std::string_view> names;
  for (const JsonValue& tool : list->items()) {
    if (tool.is_object()) names.insert(NameIn(tool));
  }
  std::string kept;
  JsonWriter json(&kept);
  json.BeginArray();
  size_t count = 0;
  for (const JsonValue& tool : given.items()) {
    if (!names.contains(NameIn(tool))) continue;
    json.Value(tool);
    ++count;
  }
  json.EndArray();
  *tools = count > 0 ? std::move(kept) : std::string();
  const JsonValue* mode = allowed.Find("mode");
  return mode != nullptr && mode->is_string() && mode->as_string() == "required";
}

}  // namespace

void ReadCallRule(Fields* fields, std::string* tools, CallRules* calls, OutputRule* rule) {
  const auto given = JsonDocument::Parse(tools->empty() ? "[]" : *tools, kToolLimits);
  if (!given.ok()) return fields->Fail("tools", given.status().message());
  if (std::ranges::any_of(given->root().items(), IsStrict)) {
    rule->calls = OutputRule::Calls::kStrict;
    if (rule->field.empty()) rule->field = "tools";
  }
  const JsonValue* choice = fields->Find("tool_choice");
  if (choice == nullptr) return;
  const std::string_view word = choice->is_string() ? choice->as_string() : std::string_view();
  if (word == "auto") return;
  if (word == "none") {
    calls->parse = false;
    rule->calls = OutputRule::Calls::kFree;
    return;
  }
  const JsonValue* type = choice->is_object() ? choice->Find("type") : nullptr;
  if (type != nullptr && type->is_string() && type->as_string() == "allowed_tools") {
    const bool required = ReadAllowedTools(*choice, given->root(), fields, tools);
    if (tools->empty()) calls->parse = false;
    if (!required) return;
  } else if (choice->is_object()) {
    rule->only_tool = NameIn(*choice);
    if (rule->only_tool.empty()) return fields->Fail("tool_choice.function.name", "is required");
    calls->one = true;
  } else if (word != "required" && word != "any") {  // Mistral's word for it
    return fields->Fail("tool_choice", "must be none, auto, required or a function");
  }
  if (tools->empty())
    return fields->Fail("tool_choice", "requires a call, but the request has no tools");
  rule->calls = OutputRule::Calls::kRequired;
  rule->field = "tool_choice";
}

}  // namespace reprise::api::openai
