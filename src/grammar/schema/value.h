// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {

// What a schema allows, type by type: a sum that is closed under union and intersection.
//
// Null, booleans, numbers and strings are regular languages and combine exactly. Arrays and objects
// are unions of shapes; a shape names the schemas of its members without looking into them, so
// recursion is no obstacle.

// A schema of the document, or a constant, that must hold or must not.
struct Literal {
  const JsonValue* node;
  bool constant = false;  // the value itself, not a schema
  bool negated = false;
  bool operator==(const Literal&) const = default;
};

// All of them hold, in the order in which they were met (which is the order of properties). Empty:
// any value.
using Conjunction = std::vector<Literal>;

// Appends those of `more` that are not there.
void Conjoin(const Conjunction& more, Conjunction* all);

struct ArrayShape {
  static constexpr uint32_t kUnbounded = ~uint32_t{0};
  struct Contains {
    Conjunction item = {};
    uint32_t min = 1;
    uint32_t max = kUnbounded;
    bool operator==(const Contains&) const = default;
  };
  std::vector<Conjunction> prefix = {};
  Conjunction items = {};  // behind the prefix
  uint32_t min = 0;
  uint32_t max = kUnbounded;
  std::vector<Contains> contains = {};
  bool unique = false;
  bool operator==(const ArrayShape&) const = default;
};

struct ObjectShape {
  static constexpr uint32_t kUnbounded = ~uint32_t{0};
  struct Property {
    std::string name;
    Conjunction value;
    bool required = false;
    bool listed = false;  // by `properties`, which decides the order; others come behind
    bool operator==(const Property&) const = default;
  };
  // Every property whose name is among `names` (as a JSON string) has such a value.
  struct Rule {
    RegexId names;
    Conjunction value;
    bool operator==(const Rule&) const = default;
  };
  std::vector<Property> properties = {};  // in the order in which they are written
  std::vector<Rule> rules = {};
  std::vector<Rule> some = {};  // there is a property with such a name and such a value
  uint32_t min = 0;
  uint32_t max = kUnbounded;
  bool operator==(const ObjectShape&) const = default;
};

struct Value {
  bool null = false;
  bool yes = false;
  bool no = false;
  RegexId number = RegexId::kNothing;
  RegexId string = RegexId::kNothing;
  std::vector<ArrayShape> arrays = {};
  std::vector<ObjectShape> objects = {};

  bool scalar_only() const { return arrays.empty() && objects.empty(); }
};

// Shapes of a union; more are refused.
inline constexpr size_t kShapesMax = 512;

ArrayShape Intersect(const ArrayShape& a, const ArrayShape& b);
ObjectShape Intersect(const ObjectShape& a, const ObjectShape& b);
// False if there would be too many shapes.
bool Intersect(RegexPool& pool, const Value& a, const Value& b, Value* out);
bool Unite(RegexPool& pool, const Value& a, Value* into);

}  // namespace reprise::grammar
