// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema/json_schema.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "grammar/schema/evaluator.h"

namespace reprise::grammar {
namespace {

constexpr uint32_t kCountMax = 20'000;    // of items or properties that must be counted
constexpr size_t kPropertiesMax = 2'000;  // named, of one object: each mask looks at all of them
constexpr size_t kKindsMax = 64;          // of names that are not in the schema
constexpr size_t kObjectsMax = 20'000;

// Writes Values down as rules. A rule is begun when it is first used and filled in later, so
// recursion needs no thought.
class Writer {
 public:
  Writer(const JsonValue& root, Grammar& grammar)
      : grammar_(grammar), pool_(grammar.pool()), evaluator_(root, grammar.pool()) {
    const JsonText& text = evaluator_.text();
    const auto with_space = [&](const char* mark) {
      return pool_.Concat(pool_.Literal(mark), text.space);
    };
    open_object_ = with_space("{");
    open_array_ = with_space("[");
    comma_ = with_space(",");
    colon_ = with_space(":");
  }

  Result<RuleId> Write(const JsonValue& schema) {
    const RuleId rule = grammar_.AddRule();
    REPRISE_TRY(AddValue(grammar_.Begin(rule), {{&schema}}, grammar_.End(rule)));
    REPRISE_TRY(FillPending());
    return rule;
  }

  Result<RuleId> WriteWithoutStrings(const JsonValue& schema, bool* strings) {
    const RuleId rule = grammar_.AddRule();
    REPRISE_ASSIGN(const Value* found, evaluator_.Evaluate(evaluator_.Intern({{&schema}})));
    Value value = *found;
    *strings = !pool_.IsNothing(value.string);
    value.string = RegexId::kNothing;
    REPRISE_TRY(Fill(value, rule));
    REPRISE_TRY(FillPending());
    return rule;
  }

 private:
  Status FillPending() {
    while (!pending_.empty()) {
      const auto [id, rule] = pending_.back();
      pending_.pop_back();
      REPRISE_ASSIGN(const Value* found, evaluator_.Evaluate(id));
      REPRISE_TRY(Fill(Value(*found), rule));
      if (grammar_.exhausted()) {
        return ResourceExhausted("the schema is too large to be compiled");
      }
    }
    return OkStatus();
  }

  RegexId Scalars(const Value& value) {
    std::vector<RegexId> parts = {value.number, value.string};
    if (value.null) parts.push_back(pool_.Literal("null"));
    if (value.yes) parts.push_back(pool_.Literal("true"));
    if (value.no) parts.push_back(pool_.Literal("false"));
    return pool_.Or(std::move(parts));
  }

  Status AddValue(StateId from, const Conjunction& literals, StateId to) {
    const ConjunctionId id = evaluator_.Intern(literals);
    if (const auto known = rules_.find(id); known != rules_.end()) {
      grammar_.AddCall(from, known->second, to);
      return OkStatus();
    }
    REPRISE_ASSIGN(const Value* value, evaluator_.Evaluate(id));
    if (value->scalar_only()) {
      grammar_.AddRegex(from, Scalars(*value), to);
      return OkStatus();
    }
    const RuleId rule = grammar_.AddRule();
    rules_.emplace(id, rule);
    pending_.push_back({id, rule});
    grammar_.AddCall(from, rule, to);
    return OkStatus();
  }

  Status Fill(const Value& value, RuleId rule) {
    grammar_.AddRegex(grammar_.Begin(rule), Scalars(value), grammar_.End(rule));
    for (const ArrayShape& shape : value.arrays) REPRISE_TRY(AddArray(shape, rule));
    for (const ObjectShape& shape : value.objects) REPRISE_TRY(AddObjects(shape, rule));
    return OkStatus();
  }

  // ---- arrays: a state for each number of items so far, and of those that `contains` counts

  Status AddArray(const ArrayShape& shape, RuleId rule) {
    if (shape.unique && shape.max > 1) {
      return Unimplemented("JSON Schema: uniqueItems is not supported");
    }
    if (shape.contains.size() > 1) {
      return Unimplemented("JSON Schema: contains, more than once for one array, is not supported");
    }
    const bool bounded = shape.max != ArrayShape::kUnbounded;
    const auto prefix = static_cast<uint32_t>(shape.prefix.size());
    const uint32_t last = bounded ? shape.max : std::max({shape.min, prefix, uint32_t{1}});
    ArrayShape::Contains contains{.min = 0};
    if (!shape.contains.empty()) contains = shape.contains[0];
    const bool counts_max = contains.max != ArrayShape::kUnbounded;
    const uint32_t most = counts_max ? contains.max : contains.min;
    if (uint64_t{last} * (most + 1) > kCountMax) {
      return Unimplemented("JSON Schema: arrays with this many items to count are not supported");
    }
    Conjunction not_contained;
    for (const Literal& literal : contains.item) {
      not_contained.push_back({literal.node, literal.constant, !literal.negated});
    }
    if (counts_max && contains.item.size() != 1) {
      return Unimplemented("JSON Schema: maxContains with this contains is not supported");
    }
    std::vector<StateId> states((last + 1) * (most + 1));
    for (StateId& state : states) state = grammar_.AddState();
    const auto at = [&](uint32_t items, uint32_t contained) {
      return states[items * (most + 1) + contained];
    };
    const JsonText& text = evaluator_.text();
    grammar_.AddRegex(grammar_.Begin(rule), open_array_, at(0, 0));
    for (uint32_t items = 0; items <= last && !grammar_.exhausted(); ++items) {
      for (uint32_t contained = 0; contained <= most; ++contained) {
        const StateId here = at(items, contained);
        if (items >= shape.min && contained >= contains.min) {
          const RegexId close = pool_.Literal("]");
          grammar_.AddRegex(here, items == 0 ? close : pool_.Concat(text.space, close),
                            grammar_.End(rule));
        }
        if (items == last && bounded) continue;
        StateId before = here;
        if (items > 0) {
          before = grammar_.AddState();
          grammar_.AddRegex(here, comma_, before);
        }
        const uint32_t next = std::min(items + 1, last);
        Conjunction item = items < prefix ? shape.prefix[items] : shape.items;
        Conjunction other = item;
        if (counts_max) Conjoin(not_contained, &other);
        REPRISE_TRY(AddValue(before, other, at(next, contained)));
        if (contained < most) {
          Conjoin(contains.item, &item);
          REPRISE_TRY(AddValue(before, item, at(next, contained + 1)));
        }
      }
    }
    return OkStatus();
  }

  // ---- objects

  // Names that no property has, by what their values must be.
  struct Kind {
    RegexId names;
    Conjunction value;
  };

  Result<std::vector<Kind>> Kinds(const ObjectShape& shape) {
    std::vector<std::string> spelled;
    for (const auto& property : shape.properties) spelled.push_back(SpellJsonString(property.name));
    std::vector<Kind> kinds = {{evaluator_.OtherNames(spelled, {}), {}}};
    for (const ObjectShape::Rule& rule : shape.rules) {
      std::vector<Kind> split;
      const bool forbids = rule.value == Conjunction{Evaluator::Impossible()};
      for (const Kind& kind : kinds) {
        if (kind.names != rule.names) {
          const RegexId outside = pool_.And(kind.names, pool_.Not(rule.names));
          if (!pool_.IsNothing(outside)) split.push_back({outside, kind.value});
        }
        if (forbids) continue;
        Kind inside{pool_.And(kind.names, rule.names), kind.value};
        if (pool_.IsNothing(inside.names)) continue;
        Conjoin(rule.value, &inside.value);
        split.push_back(std::move(inside));
      }
      kinds = std::move(split);
      if (kinds.size() > kKindsMax) {
        return Unimplemented(
            "JSON Schema: patternProperties that overlap so often are not supported");
      }
    }
    return kinds;
  }

  // "Some property is so" becomes one object for each named property that may be it, and one where
  // it is another: the last, as of a name that comes twice the last counts.
  Status AddObjects(ObjectShape shape, RuleId rule) {
    if (++object_count_ > kObjectsMax) {
      return ResourceExhausted("the schema has too many alternatives");
    }
    if (shape.some.empty()) return AddObject(shape, nullptr, rule);
    const ObjectShape::Rule some = shape.some.back();
    shape.some.pop_back();
    for (size_t i = 0; i < shape.properties.size(); ++i) {
      if (!evaluator_.HasName(some.names, shape.properties[i].name)) continue;
      ObjectShape named = shape;
      Conjoin(some.value, &named.properties[i].value);
      named.properties[i].required = true;
      REPRISE_TRY(AddObjects(std::move(named), rule));
    }
    REPRISE_ASSIGN(const std::vector<Kind> kinds, Kinds(shape));
    const bool free = std::ranges::any_of(kinds, [&](const Kind& kind) {
      return !pool_.IsNothing(pool_.And(kind.names, some.names));
    });
    if (!free) return OkStatus();
    if (!shape.some.empty()) {
      return Unimplemented(
          "JSON Schema: several negations over the properties of one object are not supported");
    }
    return AddObject(shape, &some, rule);
  }

  // States by the number of named properties behind and, in `tracks`, of those written so far: none
  // or some, or as many as minProperties and maxProperties must tell apart.
  Status AddObject(const ObjectShape& shape, const ObjectShape::Rule* last, RuleId rule) {
    if (shape.properties.size() > kPropertiesMax) {
      return Unimplemented(
          "JSON Schema: objects with more than 2,000 named properties are not supported");
    }
    REPRISE_ASSIGN(const std::vector<Kind> kinds, Kinds(shape));
    const size_t named = shape.properties.size();
    const bool bounded =
        shape.max != ObjectShape::kUnbounded && (!kinds.empty() || shape.max < named);
    const auto required = static_cast<size_t>(std::ranges::count_if(
        shape.properties, [](const auto& property) { return property.required; }));
    if (!kinds.empty() && shape.min > required + 1) {
      // A name that comes twice would be counted twice.
      return Unimplemented(
          "JSON Schema: minProperties beyond the required ones is not supported "
          "where names are free");
    }
    const uint32_t tracks = bounded ? shape.max : std::max(shape.min, uint32_t{1});
    if ((named + 2) * (uint64_t{tracks} + 1) > 10 * kCountMax) {
      return Unimplemented(
          "JSON Schema: objects with this many properties to count are not supported");
    }
    std::vector<StateId> states((named + 1) * (tracks + 1));
    for (StateId& state : states) state = grammar_.AddState();
    const auto at = [&](size_t index, uint32_t track) {
      return states[index * (tracks + 1) + track];
    };
    grammar_.AddRegex(grammar_.Begin(rule), open_object_, at(0, 0));

    // Joins the tracks that lead to `track` before a name: with a comma, unless it is the first.
    const auto before_name = [&](size_t index, uint32_t track) {
      const StateId name = grammar_.AddState();
      if (track == 1) grammar_.AddEmpty(at(index, 0), name);
      if (track > 1) grammar_.AddRegex(at(index, track - 1), comma_, name);
      if (track == tracks && !bounded) grammar_.AddRegex(at(index, track), comma_, name);
      return name;
    };
    const auto add_pair = [&](StateId from, RegexId name, const Conjunction& value, StateId to) {
      const StateId colon = grammar_.AddState();
      grammar_.AddRegex(from, pool_.Concat(name, colon_), colon);
      return AddValue(colon, value, to);
    };
    for (size_t i = 0; i < named && !grammar_.exhausted(); ++i) {
      const ObjectShape::Property& property = shape.properties[i];
      const Conjunction value = evaluator_.PropertyValue(shape, property);
      const RegexId name = pool_.Literal(SpellJsonString(property.name));
      for (uint32_t track = 0; track <= tracks; ++track) {
        if (!property.required) grammar_.AddEmpty(at(i, track), at(i + 1, track));
        if (track > 0) REPRISE_TRY(add_pair(before_name(i, track), name, value, at(i + 1, track)));
      }
    }
    for (uint32_t track = 1; track <= tracks; ++track) {
      const StateId name = before_name(named, track);
      for (const Kind& kind : kinds) {
        REPRISE_TRY(add_pair(name, kind.names, kind.value, at(named, track)));
        if (last == nullptr || track < shape.min) continue;
        Conjunction value = kind.value;
        Conjoin(last->value, &value);
        const StateId end = grammar_.AddState();
        REPRISE_TRY(add_pair(name, pool_.And(kind.names, last->names), value, end));
        Close(end, /*empty=*/false, rule);
      }
    }
    for (uint32_t track = shape.min; track <= tracks && last == nullptr; ++track) {
      Close(at(named, track), track == 0, rule);
    }
    return OkStatus();
  }

  void Close(StateId from, bool empty, RuleId rule) {
    const RegexId close = pool_.Literal("}");
    grammar_.AddRegex(from, empty ? close : pool_.Concat(evaluator_.text().space, close),
                      grammar_.End(rule));
  }

  Grammar& grammar_;
  RegexPool& pool_;
  Evaluator evaluator_;
  RegexId open_object_, open_array_, comma_, colon_;
  std::map<ConjunctionId, RuleId> rules_;
  std::vector<std::pair<ConjunctionId, RuleId>> pending_;
  size_t object_count_ = 0;
};

}  // namespace

Result<RuleId> AddJsonSchema(const JsonValue& root, const JsonValue& schema, Grammar* grammar) {
  return Writer(root, *grammar).Write(schema);
}

Result<RuleId> AddJsonSchemaWithoutStrings(const JsonValue& root, const JsonValue& schema,
                                           Grammar* grammar, bool* strings) {
  return Writer(root, *grammar).WriteWithoutStrings(schema, strings);
}

Result<Grammar> CompileJsonSchema(const JsonValue& schema, const SchemaOptions& options) {
  Grammar grammar(options.budget);
  grammar.pool().SetAlphabet(options.alphabet);
  REPRISE_ASSIGN(const RuleId rule, AddJsonSchema(schema, schema, &grammar));
  REPRISE_TRY(grammar.Finish(rule));
  return grammar;
}

}  // namespace reprise::grammar
