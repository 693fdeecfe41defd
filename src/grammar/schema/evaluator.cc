// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema/evaluator.h"

#include <algorithm>
#include <string>

#include "grammar/schema/decimal.h"
#include "grammar/schema/keywords.h"

namespace reprise::grammar {
namespace {

constexpr uint64_t kStepsMax = 100'000;
constexpr int kDepthMax = 200;
constexpr int kPruneDepthMax = 24;

// Keywords that say nothing about values.
bool IsAnnotation(std::string_view key) {
  static constexpr std::string_view kNames[] = {"title",     "description", "default",
                                                "examples",  "$comment",    "readOnly",
                                                "writeOnly", "deprecated"};
  return std::ranges::find(kNames, key) != std::end(kNames);
}

Dialect DialectOf(const JsonValue& root) {
  struct Row {
    std::string_view name;
    Dialect dialect;
  };
  static constexpr Row kRows[] = {{"json-schema.org/draft-04/", Dialect::kDraft4},
                                  {"json-schema.org/draft-06/", Dialect::kDraft6},
                                  {"json-schema.org/draft-07/", Dialect::kDraft7},
                                  {"json-schema.org/draft/2019-09/", Dialect::k2019}};
  const JsonValue* schema = root.Find("$schema");
  if (schema == nullptr || !schema->is_string()) return Dialect::k2020;
  for (const Row& row : kRows) {
    if (schema->as_string().find(row.name) != std::string_view::npos) return row.dialect;
  }
  return Dialect::k2020;
}

}  // namespace

Evaluator::Evaluator(const JsonValue& root, RegexPool& pool)
    : pool_(pool), text_(pool), references_(root), dialect_(DialectOf(root)) {}

Status Evaluator::Spend() {
  if (++steps_ > kStepsMax || pool_.exhausted()) {
    return ResourceExhausted("the schema combines more than can be compiled");
  }
  return OkStatus();
}

ConjunctionId Evaluator::Intern(const Conjunction& literals) {
  uint64_t hash = HashSeed();
  for (const Literal& literal : literals) {
    hash = FoldedMultiply(
        hash ^ reinterpret_cast<uintptr_t>(literal.node),
        0x9e3779b97f4a7c15ull + (literal.negated ? 1 : 0) + (literal.constant ? 2 : 0));
  }
  const uint32_t found =
      index_.Find(hash, [&](uint32_t id) { return conjunctions_[id].literals == literals; });
  if (found != InternIndex::kNone) return ConjunctionId{found};
  const auto id = static_cast<uint32_t>(conjunctions_.size());
  conjunctions_.push_back({.literals = literals});
  index_.Insert(hash, id);
  return ConjunctionId{id};
}

Result<const Value*> Evaluator::Evaluate(ConjunctionId id) {
  const auto at = static_cast<size_t>(id);
  if (conjunctions_[at].value != nullptr) return conjunctions_[at].value.get();
  if (!conjunctions_[at].status.ok()) return conjunctions_[at].status;
  if (conjunctions_[at].busy || depth_ > kDepthMax) {
    return Unimplemented(
        "a $ref that leads back to itself, with no property or item between, "
        "is not supported");
  }
  conjunctions_[at].busy = true;
  ++depth_;
  const auto compute = [&]() -> Result<Value> {
    Value value = Anything();
    const Conjunction literals = conjunctions_[at].literals;
    for (const Literal& literal : literals) {
      REPRISE_ASSIGN(const Value one, Of(literal));
      REPRISE_TRY(Meet(one, &value));
    }
    REPRISE_TRY(Prune(&value));
    return value;
  };
  Result<Value> value = compute();
  --depth_;
  Entry& entry = conjunctions_[at];
  entry.busy = false;
  if (!value.ok()) {
    entry.status = value.status();
    return value.status();
  }
  entry.value = std::make_unique<Value>(std::move(value).value());
  return entry.value.get();
}

Result<Value> Evaluator::Of(const Literal& literal) {
  if (literal.constant) return OfConstant(*literal.node, literal.negated);
  return OfSchema(*literal.node, literal.negated);
}

Result<Literal> Evaluator::Reduce(Literal literal) {
  for (int hops = 0; hops < 32 && !literal.constant && literal.node->is_object(); ++hops) {
    const JsonValue* target = literal.node->Find("$ref");
    if (target == nullptr || !target->is_string()) break;
    const bool alone = std::ranges::all_of(literal.node->members(), [](const auto& member) {
      return member.key == "$ref" || IsAnnotation(member.key);
    });
    if (!alone && dialect_ > Dialect::kDraft7) break;
    REPRISE_ASSIGN(literal.node, references_.Find(target->as_string()));
  }
  return literal;
}

Result<Value> Evaluator::OfSchema(const JsonValue& schema, bool negated) {
  REPRISE_TRY(Spend());
  if (schema.is_bool()) return schema.as_bool() != negated ? Anything() : Value();
  if (!schema.is_object()) return InvalidArgument("a schema must be an object or a boolean");
  Value value = negated ? Value() : Anything();
  KeywordReader reader(*this, schema, negated);
  const JsonValue* reference = schema.Find("$ref");
  const bool alone = dialect_ <= Dialect::kDraft7 && reference != nullptr && reference->is_string();
  for (const auto& member : schema.members()) {
    if (alone && member.key != "$ref") continue;
    REPRISE_ASSIGN(const std::optional<Value> one, reader.Read(member.key, member.value));
    if (!one) continue;
    REPRISE_TRY(negated ? Join(*one, &value) : Meet(*one, &value));
  }
  return value;
}

Result<Value> Evaluator::OfConstant(const JsonValue& constant, bool negated) {
  REPRISE_TRY(Spend());
  Value value = negated ? Anything() : Value();
  switch (constant.kind()) {
    case JsonValue::Kind::kNull:
      value.null = !negated;
      break;
    case JsonValue::Kind::kBool:
      (constant.as_bool() ? value.yes : value.no) = !negated;
      break;
    case JsonValue::Kind::kInt:
    case JsonValue::Kind::kDouble: {
      const Decimal decimal = Decimal::Of(constant);
      value.number = negated ? pool_.Or(CompareDecimal(pool_, Bound::kBelow, decimal),
                                        CompareDecimal(pool_, Bound::kAbove, decimal))
                             : WriteDecimal(pool_, decimal);
      break;
    }
    case JsonValue::Kind::kString: {
      const RegexId equal = pool_.Literal(SpellJsonString(constant.as_string()));
      value.string = negated ? pool_.And(text_.strict_string, pool_.Not(equal)) : equal;
      break;
    }
    case JsonValue::Kind::kArray: {
      const auto size = static_cast<uint32_t>(constant.items().size());
      ArrayShape same{.min = size, .max = size};
      if (negated) value.arrays = {{.min = size + 1}};
      if (negated && size > 0) value.arrays.push_back({.max = size - 1});
      for (const JsonValue& item : constant.items()) {
        if (negated) {
          ArrayShape other{.prefix = same.prefix, .min = size, .max = size};
          other.prefix.push_back({{&item, /*constant=*/true, /*negated=*/true}});
          value.arrays.push_back(std::move(other));
          same.prefix.push_back({});
        } else {
          same.prefix.push_back({{&item, /*constant=*/true}});
        }
      }
      if (!negated) value.arrays = {std::move(same)};
      break;
    }
    case JsonValue::Kind::kObject: {
      std::vector<std::string> names;
      ObjectShape same;
      if (negated) value.objects.clear();
      for (const auto& member : constant.members()) {
        names.push_back(SpellJsonString(member.key));
        const Literal equal{&member.value, /*constant=*/true, negated};
        const ObjectShape::Property property{std::string(member.key), {equal}, true, true};
        if (negated) {
          value.objects.push_back({.properties = {property}});
          value.objects.push_back(
              {.properties = {{std::string(member.key), {Impossible()}, false, false}}});
        } else {
          same.properties.push_back(property);
        }
      }
      const RegexId others = OtherNames(names, {});
      if (negated) {
        value.objects.push_back({.some = {{others, {}}}});
      } else {
        same.rules = {{others, {Impossible()}}};
        value.objects = {std::move(same)};
      }
      break;
    }
  }
  return value;
}

Literal Evaluator::Impossible() {
  static const auto* document = new JsonDocument(std::move(JsonDocument::Parse("false")).value());
  return {&document->root()};
}

RegexId Evaluator::OtherNames(const std::vector<std::string>& spelled,
                              std::vector<RegexId> patterns) {
  std::vector<std::string_view> views(spelled.begin(), spelled.end());
  patterns.push_back(pool_.LiteralSet(std::move(views)));
  return pool_.And(text_.strict_string, pool_.Not(pool_.Or(std::move(patterns))));
}

bool Evaluator::HasName(RegexId names, std::string_view name) {
  const std::string spelled = SpellJsonString(name);
  for (const char byte : spelled) {
    names = pool_.Derive(names, static_cast<uint8_t>(byte));
    if (names == RegexId::kNothing) return false;
  }
  return pool_.Nullable(names);
}

Conjunction Evaluator::PropertyValue(const ObjectShape& shape,
                                     const ObjectShape::Property& property) {
  Conjunction value = property.value;
  for (const ObjectShape::Rule& rule : shape.rules) {
    if (HasName(rule.names, property.name)) Conjoin(rule.value, &value);
  }
  return value;
}

Result<bool> Evaluator::IsNothing(const Conjunction& literals) {
  const ConjunctionId id = Intern(literals);
  const auto at = static_cast<size_t>(id);
  if (conjunctions_[at].nothing) return *conjunctions_[at].nothing;
  if (depth_ > kPruneDepthMax || conjunctions_[at].busy || conjunctions_[at].judged) {
    ++unjudged_;  // deep or recursive: not known yet
    return false;
  }
  REPRISE_TRY(Spend());
  REPRISE_ASSIGN(const Value* value, Evaluate(id));
  const Value copy = *value;
  const uint64_t unjudged = unjudged_;
  conjunctions_[at].judged = true;
  ++depth_;
  const Result<bool> nothing = IsNothing(copy);
  --depth_;
  conjunctions_[at].judged = false;
  // What was left open inside is no verdict.
  if (nothing.ok() && (*nothing || unjudged == unjudged_)) conjunctions_[at].nothing = *nothing;
  return nothing;
}

Result<bool> Evaluator::IsNothing(const Value& value) {
  if (value.null || value.yes || value.no) return false;
  if (!pool_.IsNothing(value.number) || !pool_.IsNothing(value.string)) return false;
  for (const ArrayShape& shape : value.arrays) {
    REPRISE_ASSIGN(const bool dead, IsDead(shape));
    if (!dead) return false;
  }
  for (const ObjectShape& shape : value.objects) {
    REPRISE_ASSIGN(const bool dead, IsDead(shape));
    if (!dead) return false;
  }
  return true;
}

Result<bool> Evaluator::IsDead(const ArrayShape& shape) {
  if (shape.min > shape.max) return true;
  for (size_t i = 0; i < shape.min && i <= shape.prefix.size(); ++i) {
    const Conjunction& item = i < shape.prefix.size() ? shape.prefix[i] : shape.items;
    if (item.empty()) continue;
    REPRISE_ASSIGN(const bool nothing, IsNothing(item));
    if (nothing) return true;
  }
  return false;
}

Result<bool> Evaluator::IsDead(const ObjectShape& shape) {
  uint32_t required = 0;
  for (const ObjectShape::Property& property : shape.properties) {
    if (!property.required) continue;
    ++required;
    const Conjunction value = PropertyValue(shape, property);
    if (value.empty()) continue;
    REPRISE_ASSIGN(const bool nothing, IsNothing(value));
    if (nothing) return true;
  }
  return required > shape.max || shape.min > shape.max;
}

// A single shape may stay though nothing has it: the grammar finds out. Of several, each that goes
// makes all that follows cheaper.
Status Evaluator::Prune(Value* value) {
  const auto prune = [&](auto& shapes) -> Status {
    if (shapes.size() < 2) return OkStatus();
    size_t kept = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      REPRISE_TRY(Spend());
      REPRISE_ASSIGN(const bool dead, IsDead(shapes[i]));
      if (dead) continue;
      if (kept != i) shapes[kept] = std::move(shapes[i]);
      ++kept;
    }
    shapes.resize(kept);
    return OkStatus();
  };
  REPRISE_TRY(prune(value->arrays));
  return prune(value->objects);
}

Status Evaluator::Meet(const Value& other, Value* value) {
  REPRISE_TRY(Spend());
  // Intersections with everything are spelled out for scalars, where nodes would grow.
  Value left = *value;
  Value right = other;
  if (left.string == text_.any_string) left.string = right.string;
  if (right.string == text_.any_string) right.string = left.string;
  if (left.number == text_.any_number) left.number = right.number;
  if (right.number == text_.any_number) right.number = left.number;
  const size_t before = left.objects.size() + left.arrays.size();
  if (!Intersect(pool_, left, right, value)) {
    return ResourceExhausted("the schema has too many alternatives that combine");
  }
  if (value->objects.size() + value->arrays.size() > before + 8) return Prune(value);
  return OkStatus();
}

Status Evaluator::Join(const Value& other, Value* value) {
  REPRISE_TRY(Spend());
  if (!Unite(pool_, other, value)) {
    return ResourceExhausted("the schema has too many alternatives");
  }
  return OkStatus();
}

Value Evaluator::Anything() const {
  Value value{.null = true, .yes = true, .no = true};
  value.number = text_.any_number;
  value.string = text_.any_string;
  value.arrays = {{}};
  value.objects = {{}};
  return value;
}

}  // namespace reprise::grammar
