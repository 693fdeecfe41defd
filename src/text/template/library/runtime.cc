// SPDX-License-Identifier: Apache-2.0
#include "text/template/library/runtime.h"

#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {

Result<Value> Runtime::Keep(Ref<Object> object) {
  constexpr size_t kBytes = 192;
  REPRISE_TRY(budget.Allocate(kBytes));
  kept.push_back(object);
  return Value::OfObject(std::move(object));
}

void ArgumentReader::Fail(std::string message) {
  if (status_.ok()) status_ = TypeError(std::string(function_) + "() " + std::move(message));
}

Value ArgumentReader::Optional(std::string_view name, Value fallback) {
  const bool positional = next_ < arguments_.positional.size();
  Value value = positional ? arguments_.positional[next_] : std::move(fallback);
  ++next_;
  for (const auto& [key, given] : arguments_.named) {
    if (key != name) continue;
    if (positional) Fail("got multiple values for argument " + Repr(name));
    value = given;
    ++named_taken_;
  }
  return value;
}

Value ArgumentReader::Required(std::string_view name) {
  Value value = Optional(name, Value());
  if (value.is_missing()) Fail("missing required argument: " + Repr(name));
  return value;
}

bool ArgumentReader::OptionalFlag(std::string_view name, bool fallback) {
  return Truth(Optional(name, Value::Bool(fallback)));
}

int64_t ArgumentReader::OptionalInt(std::string_view name, int64_t fallback) {
  const Value value = Optional(name, Value::Int(fallback));
  if (value.is_integral()) return value.as_int();
  Fail("argument " + Repr(name) + " must be an integer, not " + TypeName(value));
  return fallback;
}

Value ArgumentReader::CheckString(std::string_view name, Value value) {
  if (value.is_string()) return value;
  if (value.is_undefined()) {
    if (status_.ok()) status_ = UndefinedError(value);
  } else if (!value.is_missing()) {
    Fail("argument " + Repr(name) + " must be str, not " + TypeName(value));
  }
  return Value::View("", Origin::kTemplate);
}

Value ArgumentReader::OptionalString(std::string_view name, std::string_view fallback) {
  return CheckString(name, Optional(name, Value::View(fallback, Origin::kTemplate)));
}

Value ArgumentReader::StringOrNone(std::string_view name) {
  Value value = Optional(name, Value::None());
  return value.is_none() ? value : CheckString(name, std::move(value));
}

Value ArgumentReader::RequiredString(std::string_view name) {
  return CheckString(name, Required(name));
}

Status ArgumentReader::Finish() const {
  if (!status_.ok()) return status_;
  if (arguments_.positional.size() > next_) {
    return TypeError(std::string(function_) + "() takes at most " + std::to_string(next_) +
                     " arguments (" + std::to_string(arguments_.positional.size()) + " given)");
  }
  if (arguments_.named.size() > named_taken_) {
    return TypeError(std::string(function_) + "() got an unexpected keyword argument; " +
                     Repr(arguments_.named.back().first) + " is the last of " +
                     std::to_string(arguments_.named.size()));
  }
  return OkStatus();
}

}  // namespace reprise::jinja
