// SPDX-License-Identifier: Apache-2.0
#include "grammar/reply/reply_grammar.h"

#include <algorithm>

#include "grammar/regex/char_set.h"
#include "grammar/regex/pattern.h"
#include "grammar/schema/formats.h"
#include "grammar/schema/json_schema.h"
#include "grammar/schema/json_text.h"
#include "text/output/tools.h"

namespace reprise::grammar {
namespace {

const JsonValue& AnyObject() {
  static const auto* document =
      new JsonDocument(std::move(JsonDocument::Parse(R"({"type": "object"})")).value());
  return document->root();
}

const JsonValue* SchemaOf(const JsonValue& function) {
  const JsonValue* schema = function.Find("parameters");
  return schema != nullptr ? schema : function.Find("input_schema");
}

Status NotInFormat(const CallFormat& format, std::string_view what) {
  return Unimplemented(std::string(what) + " cannot be enforced in this model's format of calls (" +
                       std::string(format.name) + ")");
}

}  // namespace

ReplyGrammar::ReplyGrammar(Grammar* grammar, std::vector<std::string> special)
    : grammar_(*grammar), pool_(grammar->pool()), special_([&] {
        std::sort(special.begin(), special.end(),
                  [](const auto& a, const auto& b) { return a.size() > b.size(); });
        return std::move(special);
      }()) {}

RegexId ReplyGrammar::Marker(std::string_view text) {
  std::string spelled;
  while (!text.empty()) {
    const auto token = std::ranges::find_if(
        special_, [&](const std::string& name) { return text.starts_with(name); });
    if (token != special_.end()) {
      spelled += kSpecialByte + *token;
      text.remove_prefix(token->size());
    } else {
      spelled += text[0];
      text.remove_prefix(1);
    }
  }
  return pool_.Literal(spelled);
}

StateId ReplyGrammar::Write(StateId from, std::string_view marker) {
  if (marker.empty()) return from;
  const StateId to = grammar_.AddState();
  grammar_.AddRegex(from, Marker(marker), to);
  return to;
}

RegexId ReplyGrammar::TextUntil(std::string_view marker) {
  const RegexId any = pool_.Repeat(SpellSet(pool_, CharSet::All(), Spelling::kPlain), 0);
  const RegexId end = Marker(marker);
  const RegexId once = pool_.Concat(any, end);
  // Not twice: nothing may follow an occurrence.
  const RegexId some = SpellSet(pool_, CharSet::All(), Spelling::kPlain);
  return pool_.And(once, pool_.Not(pool_.Concat(once, pool_.Concat(some, any))));
}

RuleId ReplyGrammar::AddReasoning(const ReasoningFormat& format, bool begun, RuleId inner) {
  const RuleId rule = grammar_.AddRule();
  const RegexId blank = pool_.Repeat(pool_.Or(pool_.Literal("\n"), pool_.Literal(" ")), 0, 4);
  const StateId answer = grammar_.AddState();
  grammar_.AddCall(answer, inner, grammar_.End(rule));
  for (const std::string_view marker : format.hidden) {
    if (!marker.empty()) grammar_.AddEmpty(Write(answer, marker), answer);
  }
  if (!begun) grammar_.AddEmpty(grammar_.Begin(rule), answer);
  if (format.end.empty()) return rule;
  const StateId thoughts = begun ? grammar_.Begin(rule) : Write(grammar_.Begin(rule), format.begin);
  const StateId thought = grammar_.AddState();
  grammar_.AddRegex(thoughts, TextUntil(format.end), thought);
  grammar_.AddRegex(thought, blank, answer);
  return rule;
}

RuleId ReplyGrammar::AddChoice(std::span<const RuleId> rules) {
  const RuleId rule = grammar_.AddRule();
  for (const RuleId one : rules) grammar_.AddCall(grammar_.Begin(rule), one, grammar_.End(rule));
  return rule;
}

Result<RuleId> ReplyGrammar::AddTextThenCalls(const CallFormat& format, RuleId calls) {
  const std::string_view first =
      format.section_begin.empty() ? format.call_begin : format.section_begin;
  const std::string_view marker = first.substr(0, first.find_last_not_of("\n ") + 1);
  if (marker.empty() || format.bare)
    return NotInFormat(format, "strict tools together with free text");
  const RuleId rule = grammar_.AddRule();
  const RegexId some = SpellSet(pool_, CharSet::All(), Spelling::kPlain);
  const RegexId any = pool_.Repeat(some, 0);
  const RegexId marked = pool_.Concat(any, pool_.Concat(Marker(marker), any));
  // Text without the marker; with it, calls begin.
  const RegexId text = pool_.And(any, pool_.Not(marked));
  const StateId before = grammar_.AddState();
  grammar_.AddRegex(grammar_.Begin(rule), text, before);
  grammar_.AddEmpty(before, grammar_.End(rule));
  grammar_.AddCall(before, calls, grammar_.End(rule));
  return rule;
}

Result<RuleId> ReplyGrammar::AddCalls(const CallFormat& format, const JsonValue& tools,
                                      const CallRules& rules) {
  const bool list = format.section_begin.find('[') != format.section_begin.npos &&
                    (format.section_end.find(']') != format.section_end.npos);
  const RuleId rule = grammar_.AddRule();
  const StateId begin = Write(grammar_.Begin(rule), format.section_begin);
  const StateId end = grammar_.AddState();
  forced_ = !rules.only.empty();
  size_t count = 0;
  for (const JsonValue& tool : tools.items()) {
    const JsonValue* function = tool.Find("function");
    if (function == nullptr) function = &tool;
    const JsonValue* name = function->Find("name");
    if (name == nullptr || !name->is_string()) continue;
    if (!rules.only.empty() && name->as_string() != rules.only) continue;
    REPRISE_ASSIGN(const StateId done, AddCall(format, *function, begin));
    grammar_.AddEmpty(done, end);
    ++count;
  }
  if (count == 0) {
    return InvalidArgument(rules.only.empty() ? "there are no tools to call"
                                              : "there is no tool \"" + rules.only + "\"");
  }
  const StateId closed = Write(end, format.section_end);
  grammar_.AddEmpty(closed, grammar_.End(rule));
  if (rules.one) return rule;
  if (list) {
    grammar_.AddEmpty(Write(end, ", "), begin);
  } else if (!format.call_begin.empty() && !format.section_begin.empty()) {
    grammar_.AddEmpty(end, begin);  // one section, many calls
  } else if (!format.bare) {
    grammar_.AddEmpty(closed, grammar_.Begin(rule));
    grammar_.AddEmpty(Write(closed, "\n"), grammar_.Begin(rule));
  }
  return rule;
}

Status ReplyGrammar::AddArguments(const JsonValue& function, StateId from, StateId to) {
  const JsonValue* schema = SchemaOf(function);
  const JsonValue* flag = function.Find("strict");
  const bool strict = flag != nullptr && flag->is_bool() && flag->as_bool();
  // Arguments are an object, whatever a schema without a type would allow.
  const JsonValue* type = schema != nullptr ? schema->Find("type") : nullptr;
  if (type != nullptr && type->is_string() && type->as_string() == "object") {
    const Result<RuleId> rule = AddJsonSchema(*schema, *schema, &grammar_);
    if (!rule.ok() && (strict || forced_)) return rule.status();
    if (rule.ok()) {
      grammar_.AddCall(from, *rule, to);
      return OkStatus();
    }
  }
  if (schema != nullptr && type == nullptr && strict) {
    return Unimplemented(
        "a strict tool whose parameters have no \"type\": \"object\" cannot be enforced");
  }
  REPRISE_ASSIGN(const RuleId any, AddJsonSchema(AnyObject(), AnyObject(), &grammar_));
  grammar_.AddCall(from, any, to);
  return OkStatus();
}

Result<StateId> ReplyGrammar::AddCall(const CallFormat& format, const JsonValue& function,
                                      StateId from) {
  using Id = CallFormat::Id;
  const std::string name(function.Find("name")->as_string());
  const RegexId letter =
      pool_.Bytes(ByteSet::Range('a', 'z') | ByteSet::Range('A', 'Z') | ByteSet::Range('0', '9'));
  const auto letters = static_cast<uint32_t>(format.id_letters == 0 ? 24 : format.id_letters);
  const RegexId id = pool_.Repeat(letter, letters, letters);
  const auto regex = [&](StateId at, RegexId text) {
    const StateId to = grammar_.AddState();
    grammar_.AddRegex(at, text, to);
    return to;
  };
  StateId at = Write(from, format.call_begin);
  const bool in_json =
      format.body == CallFormat::Body::kNamedJson || format.body == CallFormat::Body::kKeyedJson;
  if (!in_json) {
    if (format.id == Id::kBeforeName) at = Write(regex(at, id), format.id_end);
    if (format.id == Id::kNameTwice) at = Write(Write(at, name), format.id_end);
    if (format.id == Id::kIsName) {
      const RegexId digits = pool_.Repeat(pool_.Bytes(ByteSet::Range('0', '9')), 1, 3);
      at = regex(Write(at, "functions." + name + ":"), digits);
    } else {
      at = Write(at, name);
    }
    at = Write(at, format.arguments_begin);
  }
  const StateId done = grammar_.AddState();
  switch (format.body) {
    case CallFormat::Body::kJson:
      REPRISE_TRY(AddArguments(function, at, done));
      break;
    case CallFormat::Body::kNamedJson: {
      const char* key = format.bare ? "parameters" : "arguments";
      at = Write(at, "{\"name\": " + SpellJsonString(name) + ", \"" + key + "\": ");
      const StateId given = grammar_.AddState();
      REPRISE_TRY(AddArguments(function, at, given));
      at = given;
      if (format.id == Id::kInBody && format.id_letters > 0) {
        at = Write(regex(Write(at, ", \"id\": \""), id), "\"");
      }
      grammar_.AddEmpty(Write(at, "}"), done);
      break;
    }
    case CallFormat::Body::kKeyedJson: {
      at = Write(at, "{" + SpellJsonString(name) + ": ");
      const StateId given = grammar_.AddState();
      REPRISE_TRY(AddArguments(function, at, given));
      grammar_.AddEmpty(Write(given, "}"), done);
      break;
    }
    case CallFormat::Body::kParameters: {
      REPRISE_ASSIGN(at, AddParameters(format, SchemaOf(function), at));
      grammar_.AddEmpty(at, done);
      break;
    }
    default:
      return NotInFormat(format, "a call");
  }
  return Write(done, format.call_end);
}

// Parameters in the order of the schema, those that are not required may be left out.
Result<StateId> ReplyGrammar::AddParameters(const CallFormat& format, const JsonValue* schema,
                                            StateId from) {
  const JsonValue* properties = schema != nullptr ? schema->Find("properties") : nullptr;
  const JsonValue* required = schema != nullptr ? schema->Find("required") : nullptr;
  static constexpr std::string_view kKnown[] = {"type",  "properties",  "required",
                                                "$defs", "definitions", "additionalProperties",
                                                "title", "description", "$schema"};
  if (schema != nullptr && schema->is_object()) {
    for (const auto& member : schema->members()) {
      if (std::ranges::find(kKnown, member.key) == std::end(kKnown)) {
        return NotInFormat(format, "\"" + std::string(member.key) + "\" of a tool's parameters");
      }
    }
  }
  StateId at = from;
  if (properties == nullptr || !properties->is_object()) return at;
  for (const auto& member : properties->members()) {
    const bool needed = required != nullptr && required->is_array() &&
                        std::ranges::any_of(required->items(), [&](const JsonValue& name) {
                          return name.is_string() && name.as_string() == member.key;
                        });
    REPRISE_ASSIGN(const StateId after,
                   AddParameter(format, member.key, *schema, member.value, at));
    if (!needed) grammar_.AddEmpty(at, after);
    at = after;
  }
  return at;
}

Result<StateId> ReplyGrammar::AddParameter(const CallFormat& format, std::string_view name,
                                           const JsonValue& root, const JsonValue& schema,
                                           StateId from) {
  const CallFormat::Parameter& marks = format.parameter;
  const bool text = OnlyStrings(&schema);
  StateId at = Write(Write(from, marks.begin), name);
  if (!marks.type_begin.empty()) {
    if (!text && marks.type_string != "true")
      return NotInFormat(format, "a parameter that is not text");
    at = Write(Write(at, marks.type_begin), text ? marks.type_string : "false");
  }
  at = Write(at, marks.value_begin);
  const StateId to = grammar_.AddState();
  if (text) {
    REPRISE_ASSIGN(const RegexId value, PlainString(schema, marks.value_end));
    grammar_.AddRegex(at, pool_.Concat(value, Marker(marks.value_end)), to);
    return to;
  }
  // Where nothing tells text from JSON, strings are written as they are, if they cannot be taken
  // for anything else (ValueToJson reads them).
  bool strings = false;
  REPRISE_ASSIGN(const RuleId rule,
                 marks.type_begin.empty()
                     ? AddJsonSchemaWithoutStrings(root, schema, &grammar_, &strings)
                     : AddJsonSchema(root, schema, &grammar_));
  if (strings) {
    REPRISE_ASSIGN(const RegexId texts, StringsAmongOthers(schema, marks.value_end));
    const RegexId string = pool_.And(texts, pool_.Not(TakenForOthers(schema)));
    grammar_.AddRegex(at, pool_.Concat(string, Marker(marks.value_end)), to);
  }
  const StateId value = grammar_.AddState();
  grammar_.AddCall(at, rule, value);
  grammar_.AddRegex(value, Marker(marks.value_end), to);
  return to;
}

Result<RegexId> ReplyGrammar::StringsAmongOthers(const JsonValue& schema, std::string_view end) {
  const JsonValue* choices = schema.Find("anyOf");
  const bool one = choices == nullptr;
  if (one) choices = schema.Find("oneOf");
  if (choices == nullptr || !choices->is_array()) return PlainString(schema, end);
  for (const auto& member : schema.members()) {
    static constexpr std::string_view kKnown[] = {"anyOf", "oneOf", "title", "description",
                                                  "default"};
    if (std::ranges::find(kKnown, member.key) == std::end(kKnown)) {
      return Unimplemented("JSON Schema: " + std::string(member.key) +
                           " beside anyOf, of a parameter that may be text, is not supported");
    }
  }
  std::vector<RegexId> all;
  for (const JsonValue& choice : choices->items()) {
    if (!MayBe(choice, JsonValue::Kind::kString)) continue;
    REPRISE_ASSIGN(const RegexId texts, StringsAmongOthers(choice, end));
    all.push_back(texts);
  }
  if (one && all.size() > 1) {
    return Unimplemented(
        "JSON Schema: oneOf with several strings, of a parameter that may be something else, is "
        "not supported");
  }
  return pool_.Or(std::move(all));
}

// At least all texts that are read as JSON, or as Python prints it, of the other types.
RegexId ReplyGrammar::TakenForOthers(const JsonValue& schema) {
  using Kind = JsonValue::Kind;
  ByteSet blanks;
  for (const char blank : {' ', '\n', '\t', '\r'}) blanks.Add(static_cast<uint8_t>(blank));
  const RegexId space = pool_.Repeat(pool_.Bytes(blanks), 0);
  const RegexId any = pool_.Repeat(pool_.Bytes(~ByteSet()), 0);
  std::vector<RegexId> all;
  if (MayBe(schema, Kind::kNull)) all.push_back(pool_.LiteralSet({"null", "None"}));
  if (MayBe(schema, Kind::kBool)) {
    all.push_back(pool_.LiteralSet({"true", "false", "True", "False"}));
  }
  if (MayBe(schema, Kind::kInt) || MayBe(schema, Kind::kDouble)) {
    ByteSet number = ByteSet::Range('0', '9');
    for (const char mark : {'+', '-', '.', '_', 'e', 'E'}) number.Add(static_cast<uint8_t>(mark));
    all.push_back(pool_.Repeat(pool_.Bytes(number), 1));
  }
  if (MayBe(schema, Kind::kArray) || MayBe(schema, Kind::kObject)) {
    const ByteSet open = ByteSet::Of('[') | ByteSet::Of('{') | ByteSet::Of('(');
    all.push_back(pool_.Concat(pool_.Bytes(open), any));
  }
  const RegexId parts[] = {space, pool_.Or(std::move(all)), space};
  return pool_.Concat(parts);
}

// A string as it stands between markers: without quotes, up to the first end.
Result<RegexId> ReplyGrammar::PlainString(const JsonValue& schema, std::string_view end) {
  // About strings, that is.
  static constexpr std::string_view kSaysNothing[] = {"type",
                                                      "title",
                                                      "description",
                                                      "default",
                                                      "examples",
                                                      "minimum",
                                                      "maximum",
                                                      "exclusiveMinimum",
                                                      "exclusiveMaximum",
                                                      "multipleOf",
                                                      "items",
                                                      "prefixItems",
                                                      "minItems",
                                                      "maxItems",
                                                      "properties",
                                                      "required",
                                                      "additionalProperties"};
  const RegexId any = pool_.Repeat(SpellSet(pool_, CharSet::All(), Spelling::kPlain), 0);
  const RegexId marked = pool_.Concat(any, pool_.Concat(Marker(end), any));
  std::vector<RegexId> all = {any, pool_.Not(marked)};
  uint32_t min = 0;
  uint32_t max = RegexPool::kUnbounded;
  if (!schema.is_object()) return pool_.And(std::move(all));
  for (const auto& [key, value] : schema.members()) {
    if (key == "enum" || key == "const") {
      std::vector<std::string_view> texts;
      if (value.is_string()) texts.push_back(value.as_string());
      if (value.is_array()) {
        for (const JsonValue& one : value.items()) {
          if (one.is_string()) texts.push_back(one.as_string());
        }
      }
      all.push_back(pool_.LiteralSet(std::move(texts)));
    } else if (key == "pattern" && value.is_string()) {
      REPRISE_ASSIGN(const Pattern pattern, Pattern::Parse(value.as_string()));
      REPRISE_ASSIGN(const RegexId regex,
                     pattern.Compile(pool_, Spelling::kPlain, Pattern::Match::kSomewhere));
      all.push_back(regex);
    } else if (key == "format" && value.is_string()) {
      const StringFormat format = FindFormat(value.as_string());
      if (format.kind == StringFormat::Kind::kRefused) {
        return Unimplemented("JSON Schema: format \"" + std::string(value.as_string()) +
                             "\" is not supported");
      }
      if (format.kind == StringFormat::Kind::kAnnotation) continue;
      REPRISE_ASSIGN(const Pattern pattern, Pattern::Parse(format.pattern));
      REPRISE_ASSIGN(const RegexId regex,
                     pattern.Compile(pool_, Spelling::kPlain, Pattern::Match::kWhole));
      all.push_back(regex);
    } else if (key == "minLength" && value.is_int() && value.as_int() >= 0) {
      min = static_cast<uint32_t>(std::min<int64_t>(value.as_int(), 1 << 30));
    } else if (key == "maxLength" && value.is_int() && value.as_int() >= 0) {
      max = static_cast<uint32_t>(std::min<int64_t>(value.as_int(), 1 << 30));
    } else if (std::ranges::find(kSaysNothing, key) != std::end(kSaysNothing)) {
      continue;
    } else {
      return Unimplemented("JSON Schema: " + std::string(key) +
                           " of a parameter that is text is not supported");
    }
  }
  if (min > max) return RegexId::kNothing;
  if (min > 0 || max != RegexPool::kUnbounded) {
    all.push_back(pool_.Repeat(SpellSet(pool_, CharSet::All(), Spelling::kPlain), min, max));
  }
  return pool_.And(std::move(all));
}

}  // namespace reprise::grammar
