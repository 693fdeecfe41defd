// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "text/template/library/runtime.h"

namespace reprise::jinja {

// object.name and object[index] with Jinja's rules: a dot prefers the attribute (a method) and then
// tries the item, brackets do it the other way round; what is not there is undefined. Methods that
// would change a list or a dict are refused when they are used, as in the immutable sandbox.

// A method of str, list, tuple or dict. The sandbox refuses those without a function.
struct Method {
  std::string_view name;
  SubjectFunction function;
};
const Method* FindMethod(const Value& object, std::string_view name);  // null if there is none

// REQUIRES: name outlives the render (it is in the template's source).
Result<Value> GetAttribute(Runtime* runtime, const Value& object, std::string_view name);
Result<Value> GetItem(Runtime* runtime, const Value& object, const Value& index);
// Follows "name.other.0", as the attribute arguments of filters do. Where a step is undefined,
// `fallback` takes its place, if there is one.
Result<Value> GetPath(Runtime* runtime, const Value& object, const Value& path,
                      const Value& fallback = Value());

// namespace(): the one thing a template can change.
class Namespace final : public Object {
 public:
  Namespace() : Object(Type::kNamespace) {}
  std::string type_name() const override { return "Namespace"; }
  Value Attribute(std::string_view name) const override;
  void Set(std::string_view name, Value value);
  void Clear() override { members_.clear(); }

 private:
  std::map<std::string, Value, std::less<>> members_;
};

}  // namespace reprise::jinja
