// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema/value.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace reprise::grammar {

void Conjoin(const Conjunction& more, Conjunction* all) {
  for (const Literal& literal : more) {
    if (std::ranges::find(*all, literal) == all->end()) all->push_back(literal);
  }
}

ArrayShape Intersect(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape both = a;
  both.prefix.resize(std::max(a.prefix.size(), b.prefix.size()), a.items);
  for (size_t i = 0; i < both.prefix.size(); ++i) {
    Conjoin(i < b.prefix.size() ? b.prefix[i] : b.items, &both.prefix[i]);
  }
  Conjoin(b.items, &both.items);
  both.min = std::max(a.min, b.min);
  both.max = std::min(a.max, b.max);
  both.unique |= b.unique;
  for (const auto& contains : b.contains) {
    if (std::ranges::find(both.contains, contains) == both.contains.end()) {
      both.contains.push_back(contains);
    }
  }
  return both;
}

ObjectShape Intersect(const ObjectShape& a, const ObjectShape& b) {
  ObjectShape both = a;
  both.properties.clear();
  std::unordered_map<std::string_view, size_t> places;  // by the names of `a` and `b`
  const auto merge = [&](const ObjectShape& from, bool listed) {
    for (const ObjectShape::Property& property : from.properties) {
      if (const auto known = places.find(property.name); known != places.end()) {
        ObjectShape::Property& same = both.properties[known->second];
        Conjoin(property.value, &same.value);
        same.required |= property.required;
      } else if (property.listed == listed) {
        places.emplace(property.name, both.properties.size());
        both.properties.push_back(property);
      }
    }
  };
  merge(a, /*listed=*/true);
  merge(b, /*listed=*/true);
  merge(a, /*listed=*/false);  // once more: schemas of names that `b` has listed
  merge(b, /*listed=*/false);
  const auto add = [](const std::vector<ObjectShape::Rule>& from, auto* to) {
    for (const ObjectShape::Rule& rule : from) {
      if (std::ranges::find(*to, rule) == to->end()) to->push_back(rule);
    }
  };
  add(b.rules, &both.rules);
  add(b.some, &both.some);
  both.min = std::max(a.min, b.min);
  both.max = std::min(a.max, b.max);
  return both;
}

namespace {

template <typename Shape>
bool AddShape(Shape shape, std::vector<Shape>* shapes) {
  if (shape.min > shape.max) return true;
  if (std::ranges::find(*shapes, shape) != shapes->end()) return true;
  if (shapes->size() == kShapesMax) return false;
  shapes->push_back(std::move(shape));
  return true;
}

}  // namespace

bool Intersect(RegexPool& pool, const Value& a, const Value& b, Value* out) {
  Value both;
  both.null = a.null && b.null;
  both.yes = a.yes && b.yes;
  both.no = a.no && b.no;
  both.number = a.number == b.number ? a.number : pool.And(a.number, b.number);
  both.string = a.string == b.string ? a.string : pool.And(a.string, b.string);
  bool room = true;
  for (const ArrayShape& x : a.arrays) {
    for (const ArrayShape& y : b.arrays) room = room && AddShape(Intersect(x, y), &both.arrays);
  }
  for (const ObjectShape& x : a.objects) {
    for (const ObjectShape& y : b.objects) room = room && AddShape(Intersect(x, y), &both.objects);
  }
  *out = std::move(both);
  return room;
}

bool Unite(RegexPool& pool, const Value& a, Value* into) {
  into->null |= a.null;
  into->yes |= a.yes;
  into->no |= a.no;
  into->number = pool.Or(into->number, a.number);
  into->string = pool.Or(into->string, a.string);
  bool room = true;
  for (const ArrayShape& shape : a.arrays) room = room && AddShape(shape, &into->arrays);
  for (const ObjectShape& shape : a.objects) room = room && AddShape(shape, &into->objects);
  return room;
}

}  // namespace reprise::grammar
