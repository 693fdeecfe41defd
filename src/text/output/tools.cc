// SPDX-License-Identifier: Apache-2.0
#include "text/output/tools.h"

#include <optional>

#include "text/output/body/json_syntax.h"
#include "text/output/body/literal.h"
#include "text/output/tag_search.h"

namespace reprise {
namespace {

using Kind = JsonValue::Kind;

constexpr unsigned kAnyType = ~0u;
constexpr int kSchemaDepthMax = 8;

unsigned Bit(Kind kind) { return 1u << static_cast<unsigned>(kind); }

unsigned TypeNamed(std::string_view name) {
  if (name == "string" || name == "str") return Bit(Kind::kString);
  if (name == "integer") return Bit(Kind::kInt);
  if (name == "number") return Bit(Kind::kInt) | Bit(Kind::kDouble);
  if (name == "boolean") return Bit(Kind::kBool);
  if (name == "null") return Bit(Kind::kNull);
  if (name == "array") return Bit(Kind::kArray);
  if (name == "object") return Bit(Kind::kObject);
  return kAnyType;
}

// The kinds of values that a schema allows, by its types alone.
unsigned TypesOf(const JsonValue& schema, int depth) {
  if (!schema.is_object() || depth > kSchemaDepthMax) return kAnyType;
  unsigned types = 0;
  if (const JsonValue* type = schema.Find("type")) {
    if (type->is_string()) return TypeNamed(type->as_string());
    if (!type->is_array()) return kAnyType;
    for (const JsonValue& name : type->items()) {
      types |= name.is_string() ? TypeNamed(name.as_string()) : kAnyType;
    }
    return types;
  }
  for (const char* choice : {"anyOf", "oneOf"}) {
    const JsonValue* schemas = schema.Find(choice);
    if (schemas == nullptr || !schemas->is_array()) continue;
    for (const JsonValue& one : schemas->items()) types |= TypesOf(one, depth + 1);
    return types;
  }
  const JsonValue* values = schema.Find("enum");
  if (values == nullptr || !values->is_array()) return kAnyType;
  for (const JsonValue& value : values->items()) types |= Bit(value.kind());
  return types;
}

}  // namespace

const JsonValue* FindTool(const JsonValue* tools, std::string_view name) {
  if (tools == nullptr || !tools->is_array()) return nullptr;
  for (const JsonValue& tool : tools->items()) {
    const JsonValue* function = tool.Find("function");
    if (function == nullptr) function = &tool;
    const JsonValue* found = function->Find("name");
    if (found != nullptr && found->is_string() && found->as_string() == name) return function;
  }
  return nullptr;
}

const JsonValue* FindParameter(const JsonValue* tools, std::string_view tool,
                               std::string_view parameter) {
  const JsonValue* function = FindTool(tools, tool);
  if (function == nullptr) return nullptr;
  const JsonValue* schema = function->Find("parameters");
  if (schema == nullptr) schema = function->Find("input_schema");
  const JsonValue* properties = schema == nullptr ? nullptr : schema->Find("properties");
  return properties == nullptr ? nullptr : properties->Find(parameter);
}

bool OnlyStrings(const JsonValue* schema) {
  return schema == nullptr || TypesOf(*schema, 0) == Bit(Kind::kString);
}

bool MayBe(const JsonValue& schema, JsonValue::Kind kind) {
  return (TypesOf(schema, 0) & Bit(kind)) != 0;
}

std::string ValueToJson(std::string_view text, const JsonValue* schema) {
  std::string quoted;
  if (schema != nullptr) {
    std::string_view bare = text.substr(BlanksAtStart(text));
    bare.remove_suffix(BlanksAtEnd(bare));
    std::string json(bare);
    std::optional<Kind> kind = JsonKindOf(json);
    if (!kind) {
      if (auto converted = LiteralToJson(bare)) {
        json = std::move(*converted);
        kind = JsonKindOf(json);
      }
    }
    const unsigned types = TypesOf(*schema, 0);
    // A number that is none of the types is passed on all the same, unless it could be text.
    const bool text_allowed = (types & Bit(Kind::kString)) != 0;
    if (kind && !(*kind == Kind::kString && text_allowed) &&
        ((types & Bit(*kind)) != 0 || !text_allowed)) {
      return json;
    }
  }
  AppendJsonString(text, &quoted);
  return quoted;
}

}  // namespace reprise
