// SPDX-License-Identifier: Apache-2.0
// The methods of dict and list. Those without a function change their object.
#include "text/template/library/methods.h"

#include "text/template/python/operators.h"

namespace reprise::jinja {
namespace {

// The parameters of a built-in method are positional only.
Status TakesPositional(const char* name, const Arguments& arguments, size_t min, size_t max) {
  if (!arguments.named.empty()) {
    return TypeError(std::string(name) + "() takes no keyword arguments");
  }
  const size_t count = arguments.positional.size();
  if (count >= min && count <= max) return OkStatus();
  return TypeError(std::string(name) + " expected " + std::to_string(min) +
                   (min == max ? "" : " to " + std::to_string(max)) + " arguments, got " +
                   std::to_string(count));
}

Result<Value> DictGet(Runtime* runtime, const Value& self, const Arguments& arguments) {
  REPRISE_TRY(TakesPositional("get", arguments, 1, 2));
  const Value& key = arguments.positional[0];
  if (!key.is_hashable()) return TypeError("unhashable type: '" + TypeName(key) + "'");
  REPRISE_TRY(PayForLookup(&runtime->budget, self, key));
  const Value* found = self.dict().Find(key);
  if (found != nullptr) return *found;
  return arguments.positional.size() > 1 ? arguments.positional[1] : Value::None();
}

Result<Value> DictItems(Runtime* runtime, const Value& self, const Arguments& arguments) {
  REPRISE_TRY(TakesPositional("items", arguments, 0, 0));
  const Value::Pairs& pairs = self.dict().pairs();
  REPRISE_TRY(runtime->budget.AllocateProduct(pairs.size(), 8 * sizeof(Value)));
  Value::Items items;
  items.reserve(pairs.size());
  for (const auto& [key, value] : pairs) items.push_back(Value::Tuple({key, value}));
  return Value::Of(Value::Sequence::kDictItems, std::move(items));
}

Result<Value> DictKeys(Runtime* runtime, const Value& self, const Arguments& arguments) {
  REPRISE_TRY(TakesPositional("keys", arguments, 0, 0));
  REPRISE_ASSIGN(Value::Items keys, Iterate(&runtime->budget, self));
  return Value::Of(Value::Sequence::kDictKeys, std::move(keys));
}

Result<Value> DictValues(Runtime* runtime, const Value& self, const Arguments& arguments) {
  REPRISE_TRY(TakesPositional("values", arguments, 0, 0));
  REPRISE_TRY(runtime->budget.AllocateProduct(self.dict().pairs().size(), sizeof(Value)));
  Value::Items values;
  for (const auto& [unused, value] : self.dict().pairs()) values.push_back(value);
  return Value::Of(Value::Sequence::kDictValues, std::move(values));
}

constexpr Method kDictMethods[] = {
    {"clear", nullptr},      {"get", DictGet},    {"items", DictItems},
    {"keys", DictKeys},      {"pop", nullptr},    {"popitem", nullptr},
    {"setdefault", nullptr}, {"update", nullptr}, {"values", DictValues},
};
constexpr Method kListMethods[] = {
    {"append", nullptr}, {"clear", nullptr},  {"extend", nullptr},  {"insert", nullptr},
    {"pop", nullptr},    {"remove", nullptr}, {"reverse", nullptr}, {"sort", nullptr},
};

static_assert(IsSorted(kDictMethods));
static_assert(IsSorted(kListMethods));

}  // namespace

std::span<const Method> MethodsOf(const Value& value) {
  if (value.is_dict()) return kDictMethods;
  if (value.is_string()) return StringMethods();
  if (value.is_list()) return kListMethods;
  return {};
}

}  // namespace reprise::jinja
