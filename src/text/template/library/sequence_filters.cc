// SPDX-License-Identifier: Apache-2.0
// Filters on lists, dicts and whatever can be iterated.
#include <algorithm>

#include "text/template/library/attributes.h"
#include "text/template/library/filters.h"
#include "text/template/python/iterator.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/strings.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

// Filters compare strings without case unless told otherwise.
Result<Value> IgnoringCase(Runtime* runtime, Value value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  REPRISE_TRY(runtime->budget.Allocate(3 * value.as_string().size()));
  return Value::String(Lower(value.as_string()), value.origin());
}

// Sorts by the keys, stably. REQUIRES: as many keys as items.
Result<Value::Items> SortByKeys(Runtime* runtime, const Value::Items& items,
                                const Value::Items& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status status;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    const Value& left = keys[reverse ? b : a];
    const Value& right = keys[reverse ? a : b];
    status = runtime->budget.Spend(std::min(left.weight(), right.weight()));
    if (!status.ok()) return false;
    const Result<int> compared = Order(left, right);
    if (!compared.ok()) status = compared.status();
    return compared.ok() && *compared < 0;
  });
  REPRISE_TRY(status);
  Value::Items sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

Result<Value> LengthFilter(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("length", arguments).Finish());
  if (subject.is_string()) REPRISE_TRY(runtime->budget.Spend(subject.as_string().size() / 256));
  return LengthOrError(subject);
}

Result<Value> ListFilter(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("list", arguments).Finish());
  REPRISE_ASSIGN(Value::Items items, Iterate(&runtime->budget, subject));
  return Value::List(std::move(items));
}

Result<Value> First(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("first", arguments).Finish());
  const Value none =
      Value::Undefined(Value::Reason::kMessage, "No first item, sequence was empty.");
  if (subject.is_object() && subject.object()->type() == Object::Type::kIterator) {
    Value item;
    REPRISE_ASSIGN(const bool more, static_cast<Iterator*>(subject.object())->Next(&item));
    return more ? item : none;
  }
  REPRISE_ASSIGN(const Value::Items items, Iterate(&runtime->budget, subject));
  return items.empty() ? none : items.front();
}

Result<Value> Last(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("last", arguments).Finish());
  if (subject.is_object()) return TypeError("'" + TypeName(subject) + "' object is not reversible");
  REPRISE_ASSIGN(const Value::Items items, Iterate(&runtime->budget, subject));
  if (!items.empty()) return items.back();
  return Value::Undefined(Value::Reason::kMessage, "No last item, sequence was empty.");
}

Result<Value> Default(Runtime*, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("default", arguments);
  Value fallback = read.Optional("default_value", Value::View("", Origin::kTemplate));
  const bool boolean = read.OptionalFlag("boolean", false);
  REPRISE_TRY(read.Finish());
  return subject.is_undefined() || (boolean && !Truth(subject)) ? fallback : subject;
}

Result<Value> Join(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("join", arguments);
  const Value separator = read.Optional("d", Value::View("", Origin::kTemplate));
  const Value attribute = read.Optional("attribute", Value::None());
  REPRISE_TRY(read.Finish());
  REPRISE_ASSIGN(const Value mark, SoftStr(&runtime->budget, separator));
  REPRISE_ASSIGN(const Value::Items items, Iterate(&runtime->budget, subject));
  PaidText out(&runtime->budget);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) REPRISE_TRY(out.Append(mark));
    REPRISE_ASSIGN(const Value item, GetPath(runtime, items[i], attribute));
    REPRISE_ASSIGN(const Value text, SoftStr(&runtime->budget, item));
    REPRISE_TRY(out.Append(text));
  }
  return Value::Traced(out.Take());
}

Result<Value> Items(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("items", arguments).Finish());
  if (subject.is_undefined()) return IterateItems(Value::List({}));
  if (!subject.is_dict()) return TypeError("Can only get item pairs from a mapping.");
  REPRISE_ASSIGN(const Value pairs,
                 FindMethod(subject, "items")->function(runtime, subject, Arguments()));
  return IterateItems(pairs);
}

Result<Value> DictSort(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("dictsort", arguments);
  const bool case_sensitive = read.OptionalFlag("case_sensitive", false);
  const Value by = read.OptionalString("by", "key");
  const bool reverse = read.OptionalFlag("reverse", false);
  REPRISE_TRY(read.Finish());
  if (subject.is_undefined()) return UndefinedError(subject);
  if (!subject.is_dict()) return TypeError("'" + TypeName(subject) + "' object has no items");
  if (by.as_string() != "key" && by.as_string() != "value") {
    return InvalidArgument("You can only sort by either \"key\" or \"value\"");
  }
  Value::Items items;
  Value::Items keys;
  REPRISE_TRY(runtime->budget.AllocateProduct(subject.dict().pairs().size(), 10 * sizeof(Value)));
  for (const auto& [key, value] : subject.dict().pairs()) {
    items.push_back(Value::Tuple({key, value}));
    REPRISE_ASSIGN(Value sort_key,
                   IgnoringCase(runtime, by.as_string() == "key" ? key : value, case_sensitive));
    keys.push_back(std::move(sort_key));
  }
  REPRISE_ASSIGN(Value::Items sorted, SortByKeys(runtime, items, keys, reverse));
  return Value::List(std::move(sorted));
}

Result<Value> Sort(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("sort", arguments);
  const bool reverse = read.OptionalFlag("reverse", false);
  const bool case_sensitive = read.OptionalFlag("case_sensitive", false);
  const Value attribute = read.Optional("attribute", Value::None());
  REPRISE_TRY(read.Finish());
  REPRISE_ASSIGN(const Value::Items items, Iterate(&runtime->budget, subject));
  Value::Items paths = {attribute};  // "name,other.0": by the first, then by the second
  if (attribute.is_string()) {
    paths.clear();
    for (const std::string_view path : Split(attribute.as_string(), ",", -1)) {
      paths.push_back(attribute.Part(path));
    }
  }
  Value::Items keys;
  for (const Value& item : items) {
    REPRISE_TRY(runtime->budget.AllocateProduct(paths.size() + 4, sizeof(Value)));
    Value::Items key;
    for (const Value& path : paths) {
      REPRISE_ASSIGN(Value part, GetPath(runtime, item, path));
      REPRISE_ASSIGN(part, IgnoringCase(runtime, std::move(part), case_sensitive));
      key.push_back(std::move(part));
    }
    keys.push_back(Value::List(std::move(key)));
  }
  REPRISE_ASSIGN(Value::Items sorted, SortByKeys(runtime, items, keys, reverse));
  return Value::List(std::move(sorted));
}

Result<Value> Unique(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("unique", arguments);
  const bool case_sensitive = read.OptionalFlag("case_sensitive", false);
  const Value attribute = read.Optional("attribute", Value::None());
  REPRISE_TRY(read.Finish());
  REPRISE_ASSIGN(const Value::Items items, Iterate(&runtime->budget, subject));
  DictBuilder seen;
  Value::Items unique;
  for (const Value& item : items) {
    REPRISE_ASSIGN(Value key, GetPath(runtime, item, attribute));
    REPRISE_ASSIGN(key, IgnoringCase(runtime, std::move(key), case_sensitive));
    if (!key.is_hashable()) return TypeError("unhashable type: '" + TypeName(key) + "'");
    REPRISE_TRY(runtime->budget.Spend(key.is_string() ? 1 : seen.size() + 1));
    REPRISE_TRY(runtime->budget.Allocate(key.shallow_bytes() + 128));
    const size_t before = seen.size();
    seen.Set(std::move(key), Value::None());
    if (seen.size() > before) unique.push_back(item);
  }
  return IterateItems(Value::List(std::move(unique)));
}

Result<Value> Extreme(Runtime* runtime, const Value& subject, const Arguments& arguments,
                      int sign) {
  ArgumentReader read(sign < 0 ? "min" : "max", arguments);
  const bool case_sensitive = read.OptionalFlag("case_sensitive", false);
  const Value attribute = read.Optional("attribute", Value::None());
  REPRISE_TRY(read.Finish());
  REPRISE_ASSIGN(const Value::Items items, Iterate(&runtime->budget, subject));
  if (items.empty()) {
    return Value::Undefined(Value::Reason::kMessage, "No aggregated item, sequence was empty.");
  }
  Value best;
  Value best_key;
  for (const Value& item : items) {
    REPRISE_ASSIGN(Value key, GetPath(runtime, item, attribute));
    REPRISE_ASSIGN(key, IgnoringCase(runtime, std::move(key), case_sensitive));
    if (!best.is_missing()) {
      REPRISE_TRY(runtime->budget.Spend(key.weight()));
      REPRISE_ASSIGN(const int order, Order(key, best_key, sign < 0 ? "<" : ">"));
      if (order * sign <= 0) continue;
    }
    best = item;
    best_key = std::move(key);
  }
  return best;
}

Result<Value> Min(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return Extreme(runtime, subject, arguments, -1);
}
Result<Value> Max(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return Extreme(runtime, subject, arguments, 1);
}

Result<Value> Reverse(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("reverse", arguments).Finish());
  if (subject.is_string()) {
    return Slice(&runtime->budget, subject, Value::None(), Value::None(), Value::Int(-1));
  }
  REPRISE_ASSIGN(Value::Items items, Iterate(&runtime->budget, subject));
  std::reverse(items.begin(), items.end());
  return IterateItems(Value::List(std::move(items)), "list_reverseiterator");
}

constexpr Filter kFilters[] = {
    {"count", LengthFilter},  {"d", Default},       {"default", Default}, {"dictsort", DictSort},
    {"first", First},         {"items", Items},     {"join", Join},       {"last", Last},
    {"length", LengthFilter}, {"list", ListFilter}, {"max", Max},         {"min", Min},
    {"reverse", Reverse},     {"sort", Sort},       {"unique", Unique},
};

}  // namespace

std::span<const Filter> SequenceFilters() { return kFilters; }

}  // namespace reprise::jinja
