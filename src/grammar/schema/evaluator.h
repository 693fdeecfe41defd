// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "grammar/intern.h"
#include "grammar/schema/json_text.h"
#include "grammar/schema/references.h"
#include "grammar/schema/value.h"

namespace reprise::grammar {

enum class ConjunctionId : uint32_t {};

// The draft that a document names by `$schema`: keywords that it does not know yet say nothing, and
// up to draft 7 neither does anything beside a `$ref`. Documents that name none have the newest.
enum class Dialect : uint8_t { kDraft4, kDraft6, kDraft7, k2019, k2020 };

// Turns schemas into Values: each keyword, and the opposite of each, is a Value; a schema is the
// intersection of its keywords, its negation the union of their opposites. So `not`, `oneOf`, `if`
// and `dependencies` need no rules of their own.
//
// What it cannot say exactly it refuses, by the keyword's name.
//
// Thread safety: none.
class Evaluator {
 public:
  // The pool and the document must outlive this.
  Evaluator(const JsonValue& root, RegexPool& pool);

  ConjunctionId Intern(const Conjunction& literals);
  const Conjunction& literals(ConjunctionId id) const {
    return conjunctions_[static_cast<size_t>(id)].literals;
  }
  // What all the literals allow together. Shapes that nothing can have are left out. The pointer is
  // valid until the next call.
  Result<const Value*> Evaluate(ConjunctionId id);

  // The value of a property that a shape names: its own schemas and those of the rules for its
  // name.
  Conjunction PropertyValue(const ObjectShape& shape, const ObjectShape::Property& property);

  // All names but these (spelled, with quotes) and those of the patterns.
  RegexId OtherNames(const std::vector<std::string>& spelled, std::vector<RegexId> patterns);
  // Whether a name, spelled as JSON, is among `names`.
  bool HasName(RegexId names, std::string_view name);
  // The schema `false`.
  static Literal Impossible();

  const JsonText& text() const { return text_; }
  RegexPool& pool() { return pool_; }

 private:
  friend class KeywordReader;
  struct Entry {
    Conjunction literals;
    std::unique_ptr<Value> value = {};
    Status status = {};
    bool busy = false;    // being evaluated
    bool judged = false;  // being judged by IsNothing
    std::optional<bool> nothing = {};
  };

  Result<Value> Of(const Literal& literal);
  Result<Value> OfSchema(const JsonValue& schema, bool negated);
  Result<Value> OfConstant(const JsonValue& constant, bool negated);
  // A schema that is only a reference stands for what it refers to.
  Result<Literal> Reduce(Literal literal);
  // Whether nothing can fulfil it, as far as that is seen without going in circles.
  Result<bool> IsNothing(const Value& value);
  Result<bool> IsNothing(const Conjunction& literals);
  Result<bool> IsDead(const ArrayShape& shape);
  Result<bool> IsDead(const ObjectShape& shape);
  Status Prune(Value* value);
  Status Meet(const Value& other, Value* value);
  Status Join(const Value& other, Value* value);
  Value Anything() const;
  Status Spend();

  RegexPool& pool_;
  const JsonText text_;
  const References references_;
  const Dialect dialect_;
  std::vector<Entry> conjunctions_;
  InternIndex index_;
  int depth_ = 0;
  uint64_t steps_ = 0;
  uint64_t unjudged_ = 0;  // times that IsNothing did not know
};

}  // namespace reprise::grammar
