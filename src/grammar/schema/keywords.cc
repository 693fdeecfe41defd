// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema/keywords.h"

#include <algorithm>
#include <cmath>

#include "grammar/regex/pattern.h"
#include "grammar/schema/formats.h"

namespace reprise::grammar {

struct KeywordReader::Row {
  std::string_view key;
  Reader reader;  // null: refused
  Dialect since = Dialect::kDraft4;
};

const KeywordReader::Row KeywordReader::kRows[] = {
    {"type", &KeywordReader::Type},
    {"enum", &KeywordReader::Enum},
    {"const", &KeywordReader::Const, Dialect::kDraft6},
    {"properties", &KeywordReader::Properties},
    {"patternProperties", &KeywordReader::Properties},
    {"additionalProperties", &KeywordReader::Properties},
    {"required", &KeywordReader::Required},
    {"minProperties", &KeywordReader::MinProperties},
    {"maxProperties", &KeywordReader::MaxProperties},
    {"propertyNames", &KeywordReader::PropertyNames, Dialect::kDraft6},
    {"dependencies", &KeywordReader::Dependencies},
    {"dependentRequired", &KeywordReader::Dependencies, Dialect::k2019},
    {"dependentSchemas", &KeywordReader::Dependencies, Dialect::k2019},
    {"items", &KeywordReader::Items},
    {"prefixItems", &KeywordReader::Items, Dialect::k2020},
    {"additionalItems", &KeywordReader::Items},
    {"minItems", &KeywordReader::MinItems},
    {"maxItems", &KeywordReader::MaxItems},
    {"uniqueItems", &KeywordReader::UniqueItems},
    {"contains", &KeywordReader::Contains, Dialect::kDraft6},
    {"minLength", &KeywordReader::MinLength},
    {"maxLength", &KeywordReader::MaxLength},
    {"pattern", &KeywordReader::PatternOf},
    {"format", &KeywordReader::Format},
    {"minimum", &KeywordReader::Minimum},
    {"maximum", &KeywordReader::Maximum},
    {"exclusiveMinimum", &KeywordReader::ExclusiveMinimum},
    {"exclusiveMaximum", &KeywordReader::ExclusiveMaximum},
    {"multipleOf", &KeywordReader::MultipleOf},
    {"allOf", &KeywordReader::AllOf},
    {"anyOf", &KeywordReader::AnyOf},
    {"oneOf", &KeywordReader::OneOf},
    {"not", &KeywordReader::NotOf},
    {"if", &KeywordReader::If, Dialect::kDraft7},
    {"$ref", &KeywordReader::Ref},
    {"unevaluatedProperties", nullptr, Dialect::k2019},
    {"unevaluatedItems", nullptr, Dialect::k2019},
    {"$dynamicRef", nullptr, Dialect::k2020},
    {"$recursiveRef", nullptr, Dialect::k2019},
    {"extends", nullptr},
    {"disallow", nullptr},
    {"divisibleBy", nullptr},
};

Result<std::optional<Value>> KeywordReader::Read(std::string_view key, const JsonValue& argument) {
  const auto row = std::ranges::find(kRows, key, &Row::key);
  if (row == std::end(kRows) || row->since > evaluator_.dialect_) return std::optional<Value>();
  key_ = row->key;
  if (row->reader == nullptr) return Unsupported("is not supported");
  return (this->*row->reader)(argument);
}

Status KeywordReader::Malformed(std::string_view what) const {
  return InvalidArgument("JSON Schema: " + std::string(key_) + " " + std::string(what));
}

Status KeywordReader::Unsupported(std::string_view what) const {
  return Unimplemented("JSON Schema: " + std::string(key_) + " " + std::string(what));
}

Value KeywordReader::Strings(RegexId strings) const {
  Value value = Base();
  value.string = strings;
  return value;
}

Value KeywordReader::Numbers(RegexId numbers) const {
  Value value = Base();
  value.number = numbers;
  return value;
}

Value KeywordReader::Arrays(std::vector<ArrayShape> shapes) const {
  Value value = Base();
  value.arrays = std::move(shapes);
  return value;
}

Value KeywordReader::Objects(std::vector<ObjectShape> shapes) const {
  Value value = Base();
  value.objects = std::move(shapes);
  return value;
}

Result<Conjunction> KeywordReader::Schema(const JsonValue& node, bool negated) {
  if (!node.is_object() && !node.is_bool()) return Malformed("has a value that is not a schema");
  if (node.is_bool() || node.members().empty()) {
    const bool everything = node.is_bool() ? node.as_bool() : true;
    return everything != negated ? Conjunction{} : Conjunction{Evaluator::Impossible()};
  }
  REPRISE_ASSIGN(const Literal literal, evaluator_.Reduce({&node, false, negated}));
  return Conjunction{literal};
}

Result<Value> KeywordReader::Evaluated(const JsonValue& node, bool negated) {
  REPRISE_ASSIGN(const Conjunction literals, Schema(node, negated));
  REPRISE_ASSIGN(const Value* value, evaluator_.Evaluate(evaluator_.Intern(literals)));
  return *value;
}

Result<uint32_t> KeywordReader::Count(const JsonValue& argument) const {
  const bool whole =
      argument.is_number() && argument.as_double() == std::floor(argument.as_double());
  if (!whole || argument.as_double() < 0) return Malformed("must be a natural number");
  return static_cast<uint32_t>(std::min(argument.as_double(), 4'000'000'000.0));
}

Result<std::vector<std::string>> KeywordReader::Names(const JsonValue& argument) const {
  std::vector<std::string> names;
  if (!argument.is_array()) return Malformed("must be an array of names");
  for (const JsonValue& name : argument.items()) {
    if (!name.is_string()) return Malformed("must be an array of names");
    names.emplace_back(name.as_string());
  }
  return names;
}

// ---- any type

Result<std::optional<Value>> KeywordReader::Type(const JsonValue& argument) {
  std::vector<std::string_view> types;
  if (argument.is_string()) types.push_back(argument.as_string());
  if (argument.is_array()) {
    for (const JsonValue& type : argument.items()) {
      if (!type.is_string()) return Malformed("must be a name or an array of names");
      types.push_back(type.as_string());
    }
  }
  if (types.empty()) return Malformed("must be a name or an array of names");
  const JsonValue* nullable = schema_.Find("nullable");
  if (nullable != nullptr && nullable->is_bool() && nullable->as_bool()) types.push_back("null");
  for (const std::string_view type : types) {
    static constexpr std::string_view kTypes[] = {"null",   "boolean", "number", "integer",
                                                  "string", "array",   "object"};
    if (std::ranges::find(kTypes, type) == std::end(kTypes)) {
      return Malformed("names the unknown type \"" + std::string(type.substr(0, 40)) + "\"");
    }
  }
  const auto allowed = [&](std::string_view type) {
    return (std::ranges::find(types, type) != types.end()) != negated_;
  };
  Value value = evaluator_.Anything();
  value.null = allowed("null");
  value.yes = value.no = allowed("boolean");
  if (!allowed("string")) value.string = RegexId::kNothing;
  if (!allowed("array")) value.arrays.clear();
  if (!allowed("object")) value.objects.clear();
  if (!negated_ && !allowed("number")) {
    value.number = allowed("integer") ? text_.integer : RegexId::kNothing;
  } else if (negated_) {
    const bool integers = allowed("integer");
    if (!allowed("number")) value.number = RegexId::kNothing;
    if (allowed("number") && !integers) {
      value.number = pool_.And(text_.decimal, pool_.Not(text_.whole));
    }
  }
  return std::optional(value);
}

Result<std::optional<Value>> KeywordReader::Enum(const JsonValue& argument) {
  if (!argument.is_array()) return Malformed("must be an array");
  // Strings at once: there may be thousands.
  std::vector<std::string> spelled;
  Value value = negated_ ? evaluator_.Anything() : Value();
  for (const JsonValue& constant : argument.items()) {
    if (constant.is_string()) {
      spelled.push_back(SpellJsonString(constant.as_string()));
      continue;
    }
    REPRISE_ASSIGN(const Value one, evaluator_.OfConstant(constant, negated_));
    REPRISE_TRY(negated_ ? evaluator_.Meet(one, &value) : evaluator_.Join(one, &value));
  }
  if (!spelled.empty()) {
    const RegexId set = pool_.LiteralSet({spelled.begin(), spelled.end()});
    value.string = negated_ ? pool_.And(text_.strict_string, pool_.Not(set)) : set;
  }
  return std::optional(value);
}

Result<std::optional<Value>> KeywordReader::Const(const JsonValue& argument) {
  REPRISE_ASSIGN(const Value value, evaluator_.OfConstant(argument, negated_));
  return std::optional(value);
}

// ---- objects

Result<RegexId> KeywordReader::NamePattern(std::string_view pattern) {
  REPRISE_ASSIGN(const Pattern parsed, Pattern::Parse(pattern));
  REPRISE_ASSIGN(const RegexId inner,
                 parsed.Compile(pool_, Spelling::kJsonString, Pattern::Match::kSomewhere));
  const RegexId parts[] = {text_.quote, inner, text_.quote};
  return pool_.Concat(parts);
}

Result<std::optional<Value>> KeywordReader::Properties(const JsonValue&) {
  if (properties_read_) return std::optional<Value>();
  properties_read_ = true;
  ObjectShape shape;
  std::vector<ObjectShape> opposites;
  std::vector<std::string> names;
  std::vector<RegexId> patterns;
  if (const JsonValue* properties = schema_.Find("properties")) {
    if (!properties->is_object()) return Malformed("must be an object");
    for (const auto& member : properties->members()) {
      names.push_back(SpellJsonString(member.key));
      REPRISE_ASSIGN(Conjunction value, Schema(member.value, negated_));
      ObjectShape::Property property{std::string(member.key), std::move(value), negated_, true};
      if (negated_) {
        opposites.push_back({.properties = {std::move(property)}});
      } else {
        shape.properties.push_back(std::move(property));
      }
    }
  }
  if (const JsonValue* by_pattern = schema_.Find("patternProperties")) {
    if (!by_pattern->is_object()) return Malformed("must be an object");
    for (const auto& member : by_pattern->members()) {
      REPRISE_ASSIGN(const RegexId matching, NamePattern(member.key));
      patterns.push_back(matching);
      REPRISE_ASSIGN(Conjunction value, Schema(member.value, negated_));
      if (negated_) {
        opposites.push_back({.some = {{matching, std::move(value)}}});
      } else if (!value.empty()) {
        shape.rules.push_back({matching, std::move(value)});
      }
    }
  }
  if (const JsonValue* additional = schema_.Find("additionalProperties")) {
    REPRISE_ASSIGN(Conjunction value, Schema(*additional, negated_));
    const bool says_nothing =
        negated_ ? value == Conjunction{Evaluator::Impossible()} : value.empty();
    if (!says_nothing) {
      const RegexId others = evaluator_.OtherNames(names, patterns);
      if (negated_) {
        opposites.push_back({.some = {{others, std::move(value)}}});
      } else {
        shape.rules.push_back({others, std::move(value)});
      }
    }
  }
  return std::optional(Objects(negated_ ? std::move(opposites) : std::vector{std::move(shape)}));
}

Result<std::optional<Value>> KeywordReader::Required(const JsonValue& argument) {
  // `required: true` inside of a property is draft 3 and has no meaning since.
  if (argument.is_bool()) return std::optional<Value>();
  REPRISE_ASSIGN(const std::vector<std::string> names, Names(argument));
  if (!negated_) {
    ObjectShape shape;
    for (const std::string& name : names) {
      if (std::ranges::find(shape.properties, name, &ObjectShape::Property::name) ==
          shape.properties.end()) {
        shape.properties.push_back({name, {}, /*required=*/true, /*listed=*/false});
      }
    }
    return std::optional(Objects({std::move(shape)}));
  }
  std::vector<ObjectShape> shapes;
  for (const std::string& name : names) {
    shapes.push_back({.properties = {{name, {Evaluator::Impossible()}, false, false}}});
  }
  return std::optional(Objects(std::move(shapes)));
}

Result<std::optional<Value>> KeywordReader::MinProperties(const JsonValue& argument) {
  REPRISE_ASSIGN(const uint32_t count, Count(argument));
  if (!negated_) return std::optional(Objects({{.min = count}}));
  return std::optional(count == 0 ? Value() : Objects({{.max = count - 1}}));
}

Result<std::optional<Value>> KeywordReader::MaxProperties(const JsonValue& argument) {
  REPRISE_ASSIGN(const uint32_t count, Count(argument));
  return std::optional(
      Objects({negated_ ? ObjectShape{.min = count + 1} : ObjectShape{.max = count}}));
}

Result<std::optional<Value>> KeywordReader::PropertyNames(const JsonValue& argument) {
  REPRISE_ASSIGN(const Value value, Evaluated(argument, /*negated=*/false));
  if (value.string == text_.any_string) {
    return negated_ ? std::optional(Value()) : std::optional<Value>();
  }
  const RegexId others = pool_.And(text_.strict_string, pool_.Not(value.string));
  if (negated_) return std::optional(Objects({{.some = {{others, {}}}}}));
  return std::optional(Objects({{.rules = {{others, {Evaluator::Impossible()}}}}}));
}

Result<Value> KeywordReader::Dependency(std::string_view name, const JsonValue& argument) {
  // Without the property, or with it and what it asks for; the opposite is with it alone.
  const ObjectShape with{.properties = {{std::string(name), {}, true, false}}};
  const ObjectShape without{
      .properties = {{std::string(name), {Evaluator::Impossible()}, false, false}}};
  Value asked;
  if (argument.is_array()) {
    REPRISE_ASSIGN(const std::vector<std::string> names, Names(argument));
    if (negated_) {
      for (const std::string& other : names) {
        asked.objects.push_back({.properties = {{other, {Evaluator::Impossible()}, false, false}}});
      }
    } else {
      ObjectShape all;
      for (const std::string& other : names) all.properties.push_back({other, {}, true, false});
      asked.objects = {std::move(all)};
    }
  } else {
    REPRISE_ASSIGN(asked, Evaluated(argument, negated_));
  }
  Value objects;
  objects.objects = {with};
  if (negated_) {
    REPRISE_TRY(evaluator_.Meet(objects, &asked));
    return asked;
  }
  Value value = evaluator_.Anything();
  value.objects = {without};
  REPRISE_TRY(evaluator_.Meet(asked, &objects));
  REPRISE_TRY(evaluator_.Join(objects, &value));
  return value;
}

Result<std::optional<Value>> KeywordReader::Dependencies(const JsonValue& argument) {
  if (!argument.is_object()) return Malformed("must be an object");
  Value value = Base();
  for (const auto& member : argument.members()) {
    REPRISE_ASSIGN(const Value one, Dependency(member.key, member.value));
    REPRISE_TRY(negated_ ? evaluator_.Join(one, &value) : evaluator_.Meet(one, &value));
  }
  return std::optional(value);
}

// ---- arrays

Result<std::optional<Value>> KeywordReader::Items(const JsonValue&) {
  if (items_read_) return std::optional<Value>();
  items_read_ = true;
  const bool prefixes = evaluator_.dialect_ >= Dialect::k2020;
  const JsonValue* prefix = prefixes ? schema_.Find("prefixItems") : nullptr;
  const JsonValue* items = schema_.Find("items");
  if (prefix == nullptr && items != nullptr && items->is_array()) {
    prefix = items;
    items = schema_.Find("additionalItems");
  }
  ArrayShape shape;
  std::vector<ArrayShape> opposites;
  if (prefix != nullptr) {
    if (!prefix->is_array()) return Malformed("must be an array of schemas");
    for (const JsonValue& item : prefix->items()) {
      REPRISE_ASSIGN(Conjunction value, Schema(item, negated_));
      if (negated_) {
        ArrayShape other{.prefix = shape.prefix,
                         .min = static_cast<uint32_t>(shape.prefix.size() + 1)};
        other.prefix.push_back(std::move(value));
        opposites.push_back(std::move(other));
        shape.prefix.push_back({});
      } else {
        shape.prefix.push_back(std::move(value));
      }
    }
  }
  if (items != nullptr) {
    REPRISE_ASSIGN(Conjunction value, Schema(*items, negated_));
    if (negated_ && !shape.prefix.empty())
      return Unsupported("cannot be negated behind prefixItems");
    if (negated_) {
      opposites.push_back({.contains = {{std::move(value)}}});
    } else {
      shape.items = std::move(value);
    }
  }
  return std::optional(Arrays(negated_ ? std::move(opposites) : std::vector{std::move(shape)}));
}

Result<std::optional<Value>> KeywordReader::MinItems(const JsonValue& argument) {
  REPRISE_ASSIGN(const uint32_t count, Count(argument));
  if (!negated_) return std::optional(Arrays({{.min = count}}));
  return std::optional(count == 0 ? Value() : Arrays({{.max = count - 1}}));
}

Result<std::optional<Value>> KeywordReader::MaxItems(const JsonValue& argument) {
  REPRISE_ASSIGN(const uint32_t count, Count(argument));
  return std::optional(
      Arrays({negated_ ? ArrayShape{.min = count + 1} : ArrayShape{.max = count}}));
}

Result<std::optional<Value>> KeywordReader::UniqueItems(const JsonValue& argument) {
  if (!argument.is_bool()) return Malformed("must be a boolean");
  if (!argument.as_bool()) return negated_ ? std::optional(Value()) : std::optional<Value>();
  if (negated_) return Unsupported("cannot be negated");
  return std::optional(Arrays({{.unique = true}}));
}

Result<std::optional<Value>> KeywordReader::Contains(const JsonValue& argument) {
  ArrayShape::Contains contains;
  if (const JsonValue* min = schema_.Find("minContains")) {
    REPRISE_ASSIGN(contains.min, Count(*min));
  }
  if (const JsonValue* max = schema_.Find("maxContains")) {
    REPRISE_ASSIGN(contains.max, Count(*max));
  }
  REPRISE_ASSIGN(contains.item, Schema(argument, /*negated=*/false));
  if (!negated_) return std::optional(Arrays({{.contains = {std::move(contains)}}}));
  std::vector<ArrayShape> shapes;
  if (contains.min > 0) {
    shapes.push_back({.contains = {{contains.item, 0, contains.min - 1}}});
  }
  if (contains.max != ArrayShape::kUnbounded) {
    shapes.push_back({.contains = {{contains.item, contains.max + 1}}});
  }
  return std::optional(Arrays(std::move(shapes)));
}

// ---- strings

Value KeywordReader::Lengths(uint32_t min, uint32_t max) {
  if (min == 0 && max == RegexPool::kUnbounded) return Strings(text_.any_string);
  const RegexId parts[] = {text_.quote, pool_.Repeat(text_.any_char, min, max), text_.quote};
  return Strings(pool_.Concat(parts));
}

Result<std::optional<Value>> KeywordReader::MinLength(const JsonValue& argument) {
  REPRISE_ASSIGN(const uint32_t count, Count(argument));
  if (negated_) return std::optional(count == 0 ? Value() : Lengths(0, count - 1));
  // Together with maxLength, if that fits: one count instead of two.
  uint32_t max = RegexPool::kUnbounded;
  if (const JsonValue* longest = schema_.Find("maxLength")) {
    REPRISE_ASSIGN(const uint32_t most, Count(*longest));
    if (most >= count) max = most;
  }
  return std::optional(Lengths(count, max));
}

Result<std::optional<Value>> KeywordReader::MaxLength(const JsonValue& argument) {
  REPRISE_ASSIGN(const uint32_t count, Count(argument));
  if (negated_) return std::optional(Lengths(count + 1, RegexPool::kUnbounded));
  if (const JsonValue* shortest = schema_.Find("minLength")) {
    REPRISE_ASSIGN(const uint32_t least, Count(*shortest));
    if (least <= count) return std::optional<Value>();  // said there
  }
  return std::optional(Lengths(0, count));
}

Result<std::optional<Value>> KeywordReader::PatternOf(const JsonValue& argument) {
  if (!argument.is_string()) return Malformed("must be a string");
  REPRISE_ASSIGN(const RegexId strings, NamePattern(argument.as_string()));
  return std::optional(
      Strings(negated_ ? pool_.And(text_.strict_string, pool_.Not(strings)) : strings));
}

Result<std::optional<Value>> KeywordReader::Format(const JsonValue& argument) {
  if (!argument.is_string()) return std::optional<Value>();
  const StringFormat format = FindFormat(argument.as_string());
  switch (format.kind) {
    case StringFormat::Kind::kAnnotation:
      return negated_ ? std::optional(Value()) : std::optional<Value>();
    case StringFormat::Kind::kRefused:
      return Unsupported("\"" + std::string(argument.as_string()) + "\" is not supported");
    case StringFormat::Kind::kPattern:
      break;
  }
  REPRISE_ASSIGN(const Pattern parsed, Pattern::Parse(format.pattern));
  REPRISE_ASSIGN(const RegexId inner,
                 parsed.Compile(pool_, Spelling::kJsonString, Pattern::Match::kWhole));
  const RegexId parts[] = {text_.quote, inner, text_.quote};
  const RegexId strings = pool_.Concat(parts);
  return std::optional(
      Strings(negated_ ? pool_.And(text_.strict_string, pool_.Not(strings)) : strings));
}

// ---- numbers

Value KeywordReader::Compared(Bound bound, const JsonValue& argument) {
  static constexpr Bound kOpposite[] = {Bound::kBelow, Bound::kAtMost, Bound::kAbove,
                                        Bound::kAtLeast};
  if (negated_) bound = kOpposite[static_cast<size_t>(bound)];
  return Numbers(CompareDecimal(pool_, bound, Decimal::Of(argument)));
}

Result<std::optional<Value>> KeywordReader::Minimum(const JsonValue& argument) {
  if (!argument.is_number()) return Malformed("must be a number");
  const JsonValue* exclusive = schema_.Find("exclusiveMinimum");  // draft 4: a boolean
  const bool above = exclusive != nullptr && exclusive->is_bool() && exclusive->as_bool();
  return std::optional(Compared(above ? Bound::kAbove : Bound::kAtLeast, argument));
}

Result<std::optional<Value>> KeywordReader::Maximum(const JsonValue& argument) {
  if (!argument.is_number()) return Malformed("must be a number");
  const JsonValue* exclusive = schema_.Find("exclusiveMaximum");
  const bool below = exclusive != nullptr && exclusive->is_bool() && exclusive->as_bool();
  return std::optional(Compared(below ? Bound::kBelow : Bound::kAtMost, argument));
}

Result<std::optional<Value>> KeywordReader::ExclusiveMinimum(const JsonValue& argument) {
  if (argument.is_bool()) return std::optional<Value>();
  if (!argument.is_number()) return Malformed("must be a number");
  return std::optional(Compared(Bound::kAbove, argument));
}

Result<std::optional<Value>> KeywordReader::ExclusiveMaximum(const JsonValue& argument) {
  if (argument.is_bool()) return std::optional<Value>();
  if (!argument.is_number()) return Malformed("must be a number");
  return std::optional(Compared(Bound::kBelow, argument));
}

Result<std::optional<Value>> KeywordReader::MultipleOf(const JsonValue& argument) {
  if (!argument.is_number() || argument.as_double() <= 0) return Malformed("must be above 0");
  const auto multiples = MultipleDecimal(pool_, Decimal::Of(argument));
  if (!multiples) return Unsupported("with this many digits is not supported");
  return std::optional(
      Numbers(pool_.And(text_.decimal, negated_ ? pool_.Not(*multiples) : *multiples)));
}

// ---- combinations

Result<Value> KeywordReader::Combine(const JsonValue& argument, bool all, bool negated) {
  if (!argument.is_array() || argument.items().empty()) {
    return Malformed("must be an array of schemas, and not empty");
  }
  Value value = all ? evaluator_.Anything() : Value();
  for (const JsonValue& schema : argument.items()) {
    REPRISE_ASSIGN(const Value one, Evaluated(schema, negated));
    REPRISE_TRY(all ? evaluator_.Meet(one, &value) : evaluator_.Join(one, &value));
  }
  return value;
}

Result<std::optional<Value>> KeywordReader::AllOf(const JsonValue& argument) {
  REPRISE_ASSIGN(const Value value, Combine(argument, !negated_, negated_));
  return std::optional(value);
}

Result<std::optional<Value>> KeywordReader::AnyOf(const JsonValue& argument) {
  REPRISE_ASSIGN(const Value value, Combine(argument, negated_, negated_));
  return std::optional(value);
}

// Branches that share no value are simply united. Those that do are cut: one branch without the
// others it meets.
Result<std::optional<Value>> KeywordReader::OneOf(const JsonValue& argument) {
  if (!argument.is_array() || argument.items().empty()) {
    return Malformed("must be an array of schemas, and not empty");
  }
  const auto schemas = argument.items();
  std::vector<Value> branches;
  for (const JsonValue& schema : schemas) {
    REPRISE_ASSIGN(Value branch, Evaluated(schema, /*negated=*/false));
    branches.push_back(std::move(branch));
  }
  // The opposite: in none of them, or in two.
  Value opposite;
  if (negated_) {
    REPRISE_ASSIGN(opposite, Combine(argument, /*all=*/true, /*negated=*/true));
  }
  std::vector<Value> alone = branches;
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      Value both = branches[i];
      REPRISE_TRY(evaluator_.Meet(branches[j], &both));
      REPRISE_ASSIGN(const bool disjoint, evaluator_.IsNothing(both));
      if (disjoint) continue;
      if (negated_) {
        REPRISE_TRY(evaluator_.Join(both, &opposite));
        continue;
      }
      for (const auto& [cut, by] : {std::pair{i, j}, std::pair{j, i}}) {
        const Result<Value> without = Evaluated(schemas[by], /*negated=*/true);
        if (!without.ok()) return without.status().Annotate("oneOf with branches that overlap");
        REPRISE_TRY(evaluator_.Meet(*without, &alone[cut]));
      }
    }
  }
  if (negated_) return std::optional(opposite);
  Value value;
  for (const Value& branch : alone) REPRISE_TRY(evaluator_.Join(branch, &value));
  return std::optional(value);
}

Result<std::optional<Value>> KeywordReader::NotOf(const JsonValue& argument) {
  REPRISE_ASSIGN(const Value value, Evaluated(argument, !negated_));
  return std::optional(value);
}

Result<std::optional<Value>> KeywordReader::If(const JsonValue& argument) {
  Value value;
  for (const bool holds : {true, false}) {
    REPRISE_ASSIGN(Value condition, Evaluated(argument, !holds));
    if (const JsonValue* asked = schema_.Find(holds ? "then" : "else")) {
      REPRISE_ASSIGN(const Value then, Evaluated(*asked, negated_));
      REPRISE_TRY(evaluator_.Meet(then, &condition));
    } else if (negated_) {
      continue;
    }
    REPRISE_TRY(evaluator_.Join(condition, &value));
  }
  return std::optional(value);
}

Result<std::optional<Value>> KeywordReader::Ref(const JsonValue& argument) {
  if (!argument.is_string()) return Malformed("must be a string");
  REPRISE_ASSIGN(const JsonValue* target, evaluator_.references_.Find(argument.as_string()));
  REPRISE_ASSIGN(const Value value, Evaluated(*target, negated_));
  return std::optional(value);
}

}  // namespace reprise::grammar
