// SPDX-License-Identifier: Apache-2.0
#include "text/template/library/attributes.h"

#include <algorithm>
#include <charconv>

#include "text/template/library/methods.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/strings.h"

namespace reprise::jinja {
namespace {

// A method taken from its object without calling it: true, defined, and callable later.
class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, const Method* method)
      : Object(Type::kMethod, self.depth() + 1), self_(std::move(self)), method_(method) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime* runtime, Arguments* arguments) override {
    return method_->function(runtime, self_, *arguments);
  }

 private:
  const Value self_;
  const Method* const method_;
};

bool IsDunder(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

Value Unsafe(const Value& object, std::string_view name) {
  return Value::Undefined(Value::Reason::kMessage, "access to attribute " + Repr(name) + " of '" +
                                                       TypeName(object) + "' object is unsafe.");
}

// getattr(): missing if there is no such attribute.
Value PythonAttribute(const Value& object, std::string_view name) {
  if (object.is_object()) {
    Value found = object.object()->Attribute(name);
    if (!found.is_missing()) return found;
  } else if (const Method* method = FindMethod(object, name)) {
    if (method->function == nullptr) return Unsafe(object, name);
    return Value::OfObject(Ref<Object>(new BoundMethod(object, method)));
  }
  return IsDunder(name) ? Unsafe(object, name) : Value();
}

Value NoSuch(const Value& object, const Value& index) {
  std::string message;
  if (index.is_string()) {
    message = "'" + TypeTitle(object) + "' has no attribute " + Repr(index.as_string());
  } else {
    message = TypeTitle(object) + " has no element " +
              (index.is_int() ? std::to_string(index.as_int()) : "of type " + TypeName(index));
  }
  return Value::Undefined(Value::Reason::kMessage, std::move(message));
}

}  // namespace

const Method* FindMethod(const Value& object, std::string_view name) {
  const std::span<const Method> methods = MethodsOf(object);  // sorted by name
  const auto found =
      std::lower_bound(methods.begin(), methods.end(), name,
                       [](const Method& m, std::string_view n) { return m.name < n; });
  return found != methods.end() && found->name == name ? &*found : nullptr;
}

Result<Value> GetAttribute(Runtime* runtime, const Value& object, std::string_view name) {
  if (object.is_undefined()) return UndefinedError(object);
  Value found = PythonAttribute(object, name);
  if (!found.is_missing()) return found;
  if (object.is_dict()) {
    const Value* item = object.dict().Find(name);
    if (item != nullptr) return *item;
    return Value::UndefinedView(Value::Reason::kDictAttribute, name);
  }
  Value missing = NoSuch(object, Value::View(name, Origin::kTemplate));
  REPRISE_TRY(runtime->budget.Admit(missing));
  return missing;
}

Result<Value> GetItem(Runtime* runtime, const Value& object, const Value& index) {
  if (object.is_undefined()) return UndefinedError(object);
  if (object.is_dict()) REPRISE_TRY(PayForLookup(&runtime->budget, object, index));
  if (object.is_string()) REPRISE_TRY(runtime->budget.Spend(object.as_string().size() / 64));
  Value found = Item(object, index);
  if (found.is_missing() && index.is_string()) found = PythonAttribute(object, index.as_string());
  if (found.is_missing()) {
    found = NoSuch(object, index);
    REPRISE_TRY(runtime->budget.Admit(found));
  }
  return found;
}

Result<Value> GetPath(Runtime* runtime, const Value& object, const Value& path,
                      const Value& fallback) {
  const auto step = [&](const Value& from, const Value& index) -> Result<Value> {
    REPRISE_ASSIGN(Value found, GetItem(runtime, from, index));
    const bool replace = found.is_undefined() && !fallback.is_missing() && !fallback.is_none();
    return replace ? fallback : found;
  };
  if (path.is_none() || path.is_missing()) return object;
  if (!path.is_string()) return step(object, path);
  Value value = object;
  for (const std::string_view part : Split(path.as_string(), ".", -1)) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool digits =
        !part.empty() && part[0] != '-' && error == std::errc() && end == part.data() + part.size();
    const Value index = digits ? Value::Int(number) : path.Part(part);
    REPRISE_ASSIGN(value, step(value, index));
  }
  return value;
}

Value Namespace::Attribute(std::string_view name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? Value() : found->second;
}

void Namespace::Set(std::string_view name, Value value) {
  const auto found = members_.find(name);
  if (found != members_.end()) {
    found->second = std::move(value);
  } else {
    members_.emplace(name, std::move(value));
  }
}

}  // namespace reprise::jinja
