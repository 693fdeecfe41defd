// SPDX-License-Identifier: Apache-2.0
// The functions a template finds in its global scope: Jinja's own, and the two that chat templates
// are given (raise_exception, strftime_now).
#include <utility>

#include "text/template/library/attributes.h"
#include "text/template/library/strftime.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {
namespace {

using GlobalFunction = Result<Value> (*)(Runtime*, Arguments*);

class Function final : public Object {
 public:
  explicit Function(GlobalFunction function) : Object(Type::kFunction), function_(function) {}
  std::string type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime* runtime, Arguments* arguments) override {
    return function_(runtime, arguments);
  }

 private:
  const GlobalFunction function_;
};

Result<Value> Range(Runtime* runtime, Arguments* arguments) {
  constexpr uint64_t kItemsMax = 100000;  // as in Jinja's sandbox
  int64_t bounds[3] = {0, 0, 1};
  const std::vector<Value>& given = arguments->positional;
  if (given.empty() || given.size() > 3 || !arguments->named.empty()) {
    return TypeError("range expected 1 to 3 arguments");
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].is_undefined()) return UndefinedError(given[i]);
    if (!given[i].is_integral()) {
      return TypeError("'" + TypeName(given[i]) + "' object cannot be interpreted as an integer");
    }
    bounds[given.size() == 1 ? 1 : i] = given[i].as_int();
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return InvalidArgument("range() arg 3 must not be zero");
  const uint64_t span = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                 : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const bool empty = step > 0 ? start >= stop : start <= stop;
  const uint64_t count = empty ? 0 : (span - 1) / stride + 1;
  if (count > kItemsMax) {
    return InvalidArgument(
        "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  REPRISE_TRY(runtime->budget.Allocate(count * sizeof(Value)));
  Value::Items items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    items.push_back(Value::Int(start + static_cast<int64_t>(i) * step));
  }
  return Value::Of(Value::Sequence::kRange, std::move(items));
}

// dict(mapping or pairs, name=value...).
Result<Value> Dict(Runtime* runtime, Arguments* arguments) {
  if (arguments->positional.size() > 1) return TypeError("dict expected at most 1 argument");
  DictBuilder members;
  const auto set = [&](const Value& key, const Value& value) -> Status {
    if (!key.is_hashable()) return TypeError("unhashable type: '" + TypeName(key) + "'");
    REPRISE_TRY(runtime->budget.Spend(key.is_string() ? 1 : members.size()));
    REPRISE_TRY(runtime->budget.Allocate(8 * sizeof(Value)));
    members.Set(key, value);
    return OkStatus();
  };
  if (!arguments->positional.empty()) {
    const Value& source = arguments->positional[0];
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().pairs()) REPRISE_TRY(set(key, value));
    } else {
      REPRISE_ASSIGN(const Value::Items pairs, Iterate(&runtime->budget, source));
      for (const Value& pair : pairs) {
        REPRISE_ASSIGN(const Value::Items parts, Iterate(&runtime->budget, pair));
        if (parts.size() != 2) return TypeError("dict(): every item must be a pair");
        REPRISE_TRY(set(parts[0], parts[1]));
      }
    }
  }
  for (const auto& [key, value] : arguments->named) {
    REPRISE_TRY(set(Value::String(std::string(key), Origin::kData), value));
  }
  return members.Build();
}

Result<Value> MakeNamespace(Runtime* runtime, Arguments* arguments) {
  REPRISE_ASSIGN(const Value members, Dict(runtime, arguments));
  Ref<Namespace> made(new Namespace);
  for (const auto& [key, value] : members.dict().pairs()) {
    if (key.is_string()) made->Set(key.as_string(), value);
  }
  return runtime->Keep(Ref<Object>(made.get()));
}

Result<Value> RaiseException(Runtime* runtime, Arguments* arguments) {
  ArgumentReader read("raise_exception", *arguments);
  const Value message = read.Required("message");
  REPRISE_TRY(read.Finish());
  REPRISE_ASSIGN(TracedText text, Str(&runtime->budget, message));
  return InvalidArgument(text.TakeText());
}

Result<Value> StrftimeNow(Runtime* runtime, Arguments* arguments) {
  ArgumentReader read("strftime_now", *arguments);
  const Value format = read.RequiredString("format");
  REPRISE_TRY(read.Finish());
  constexpr size_t kFormatBytesMax = 1000;
  if (format.as_string().size() > kFormatBytesMax) {
    return InvalidArgument("strftime_now: the format is longer than 1000 bytes");
  }
  REPRISE_TRY(runtime->budget.Spend(format.as_string().size()));
  REPRISE_ASSIGN(std::string text, FormatTime(format.as_string(), runtime->now));
  return Value::String(std::move(text), format.origin());
}

struct Global {
  const char* name;
  GlobalFunction function;
};
constexpr Global kGlobals[] = {
    {"dict", Dict},   {"namespace", MakeNamespace},  {"raise_exception", RaiseException},
    {"range", Range}, {"strftime_now", StrftimeNow},
};

}  // namespace

Value FindGlobal(std::string_view name) {
  for (const Global& global : kGlobals) {
    if (name == global.name) return Value::OfObject(Ref<Object>(new Function(global.function)));
  }
  return Value();
}

}  // namespace reprise::jinja
