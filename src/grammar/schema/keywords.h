// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "grammar/schema/decimal.h"
#include "grammar/schema/evaluator.h"

namespace reprise::grammar {

// The keywords of one schema object: what each of them, or its opposite, allows.
//
// A keyword that constrains one type allows all other types; its opposite none of them.
class KeywordReader {
 public:
  KeywordReader(Evaluator& evaluator, const JsonValue& schema, bool negated)
      : evaluator_(evaluator),
        pool_(evaluator.pool_),
        text_(evaluator.text_),
        schema_(schema),
        negated_(negated) {}

  // Nothing, if the keyword says nothing (an annotation, a part of another one). Fails with
  // kInvalidArgument if its argument is malformed, with kUnimplemented for what is refused.
  Result<std::optional<Value>> Read(std::string_view key, const JsonValue& argument);

 private:
  using Reader = Result<std::optional<Value>> (KeywordReader::*)(const JsonValue&);
  struct Row;
  static const Row kRows[];

  Result<std::optional<Value>> Type(const JsonValue& argument);
  Result<std::optional<Value>> Enum(const JsonValue& argument);
  Result<std::optional<Value>> Const(const JsonValue& argument);
  Result<std::optional<Value>> Properties(const JsonValue& argument);
  Result<std::optional<Value>> Required(const JsonValue& argument);
  Result<std::optional<Value>> MinProperties(const JsonValue& argument);
  Result<std::optional<Value>> MaxProperties(const JsonValue& argument);
  Result<std::optional<Value>> PropertyNames(const JsonValue& argument);
  Result<std::optional<Value>> Dependencies(const JsonValue& argument);
  Result<std::optional<Value>> Items(const JsonValue& argument);
  Result<std::optional<Value>> MinItems(const JsonValue& argument);
  Result<std::optional<Value>> MaxItems(const JsonValue& argument);
  Result<std::optional<Value>> UniqueItems(const JsonValue& argument);
  Result<std::optional<Value>> Contains(const JsonValue& argument);
  Result<std::optional<Value>> MinLength(const JsonValue& argument);
  Result<std::optional<Value>> MaxLength(const JsonValue& argument);
  Result<std::optional<Value>> PatternOf(const JsonValue& argument);
  Result<std::optional<Value>> Format(const JsonValue& argument);
  Result<std::optional<Value>> Minimum(const JsonValue& argument);
  Result<std::optional<Value>> Maximum(const JsonValue& argument);
  Result<std::optional<Value>> ExclusiveMinimum(const JsonValue& argument);
  Result<std::optional<Value>> ExclusiveMaximum(const JsonValue& argument);
  Result<std::optional<Value>> MultipleOf(const JsonValue& argument);
  Result<std::optional<Value>> AllOf(const JsonValue& argument);
  Result<std::optional<Value>> AnyOf(const JsonValue& argument);
  Result<std::optional<Value>> OneOf(const JsonValue& argument);
  Result<std::optional<Value>> NotOf(const JsonValue& argument);
  Result<std::optional<Value>> If(const JsonValue& argument);
  Result<std::optional<Value>> Ref(const JsonValue& argument);

  // A value of one type, with all the others unless this is an opposite.
  Value Base() const { return negated_ ? Value() : evaluator_.Anything(); }
  Value Strings(RegexId strings) const;
  Value Numbers(RegexId numbers) const;
  Value Arrays(std::vector<ArrayShape> shapes) const;
  Value Objects(std::vector<ObjectShape> shapes) const;
  Value Lengths(uint32_t min, uint32_t max);
  Value Compared(Bound bound, const JsonValue& argument);

  Result<Conjunction> Schema(const JsonValue& node, bool negated);
  Result<Value> Evaluated(const JsonValue& node, bool negated);
  Result<RegexId> NamePattern(std::string_view pattern);
  Result<uint32_t> Count(const JsonValue& argument) const;
  Result<std::vector<std::string>> Names(const JsonValue& argument) const;
  Status Malformed(std::string_view what) const;
  Status Unsupported(std::string_view what) const;
  Result<Value> Dependency(std::string_view name, const JsonValue& argument);
  Result<Value> Combine(const JsonValue& argument, bool all, bool negated);

  Evaluator& evaluator_;
  RegexPool& pool_;
  const JsonText& text_;
  const JsonValue& schema_;
  const bool negated_;
  std::string_view key_;  // under way
  bool properties_read_ = false;
  bool items_read_ = false;
};

}  // namespace reprise::grammar
