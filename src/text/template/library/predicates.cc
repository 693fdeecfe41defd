// SPDX-License-Identifier: Apache-2.0
// Jinja's tests: what may stand after `is`, and be named in select() and its like.
#include <cmath>

#include "text/template/library/attributes.h"
#include "text/template/library/runtime.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {
namespace {

struct Test {
  std::string_view name;
  TestFunction function;
};

template <bool (*predicate)(const Value&)>
Result<bool> Plain(Runtime*, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("test", arguments).Finish());
  return predicate(subject);
}

bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsBoolean(const Value& v) { return v.is_bool(); }
bool IsFalse(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool IsTrue(const Value& v) { return v.is_bool() && v.as_bool(); }
bool IsInteger(const Value& v) { return v.is_int(); }
bool IsFloat(const Value& v) { return v.is_float(); }
bool IsString(const Value& v) { return v.is_string(); }
bool IsMapping(const Value& v) { return v.is_dict(); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsEscaped(const Value& v) { return v.is_markup(); }
bool IsCallable(const Value& v) {
  // An undefined value has a __call__, which fails.
  return v.is_undefined() || (v.is_object() && v.object()->callable());
}
bool IsSequence(const Value& v) {
  // len() and subscripts: dicts, too; views of a dict have no subscripts.
  return v.is_string() || v.is_dict() || v.is_undefined() ||
         (v.is_sequence() && v.sequence() <= Value::Sequence::kRange);
}

template <CompareOp op>
Result<bool> Compares(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("test", arguments);
  const Value other = read.Required("other");
  REPRISE_TRY(read.Finish());
  return Compare(&runtime->budget, op, subject, other);
}

Result<bool> SameAs(Runtime*, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("sameas", arguments);
  const Value other = read.Required("other");
  REPRISE_TRY(read.Finish());
  return subject.SameAs(other);
}

// value % divisor == remainder.
Result<bool> Divides(Runtime* runtime, const Value& subject, const Value& divisor,
                     int64_t remainder) {
  REPRISE_ASSIGN(const Value rest, Binary(&runtime->budget, BinaryOp::kMod, subject, divisor));
  return Equal(rest, Value::Int(remainder));
}

template <int64_t remainder>
Result<bool> Parity(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("test", arguments).Finish());
  return Divides(runtime, subject, Value::Int(2), remainder);
}

Result<bool> DivisibleBy(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  ArgumentReader read("divisibleby", arguments);
  const Value divisor = read.Required("num");
  REPRISE_TRY(read.Finish());
  return Divides(runtime, subject, divisor, 0);
}

// islower() or isupper() of str(value).
Result<bool> HasCase(Runtime* runtime, const Value& subject, const Arguments& arguments,
                     std::string_view method) {
  REPRISE_ASSIGN(const Value text, SoftStr(&runtime->budget, subject));
  REPRISE_ASSIGN(const Value answer, FindMethod(text, method)->function(runtime, text, arguments));
  return answer.as_bool();
}
Result<bool> IsLower(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return HasCase(runtime, subject, arguments, "islower");
}
Result<bool> IsUpper(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return HasCase(runtime, subject, arguments, "isupper");
}

Result<bool> IsFilter(Runtime*, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("filter", arguments).Finish());
  return subject.is_string() && FindFilter(subject.as_string()) != nullptr;
}
Result<bool> IsTest(Runtime*, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("test", arguments).Finish());
  return subject.is_string() && FindTest(subject.as_string()) != nullptr;
}

constexpr Test kTests[] = {
    {"defined", Plain<IsDefined>},
    {"undefined", Plain<IsUndefined>},
    {"none", Plain<IsNone>},
    {"boolean", Plain<IsBoolean>},
    {"false", Plain<IsFalse>},
    {"true", Plain<IsTrue>},
    {"integer", Plain<IsInteger>},
    {"float", Plain<IsFloat>},
    {"string", Plain<IsString>},
    {"mapping", Plain<IsMapping>},
    {"number", Plain<IsNumber>},
    {"sequence", Plain<IsSequence>},
    {"iterable", Plain<IsIterable>},
    {"callable", Plain<IsCallable>},
    {"escaped", Plain<IsEscaped>},
    {"lower", IsLower},
    {"upper", IsUpper},
    {"odd", Parity<1>},
    {"even", Parity<0>},
    {"divisibleby", DivisibleBy},
    {"sameas", SameAs},
    {"filter", IsFilter},
    {"test", IsTest},
    {"in", Compares<CompareOp::kIn>},
    {"==", Compares<CompareOp::kEqual>},
    {"eq", Compares<CompareOp::kEqual>},
    {"equalto", Compares<CompareOp::kEqual>},
    {"!=", Compares<CompareOp::kNotEqual>},
    {"ne", Compares<CompareOp::kNotEqual>},
    {">", Compares<CompareOp::kGreater>},
    {"gt", Compares<CompareOp::kGreater>},
    {"greaterthan", Compares<CompareOp::kGreater>},
    {">=", Compares<CompareOp::kGreaterEqual>},
    {"ge", Compares<CompareOp::kGreaterEqual>},
    {"<", Compares<CompareOp::kLess>},
    {"lt", Compares<CompareOp::kLess>},
    {"lessthan", Compares<CompareOp::kLess>},
    {"<=", Compares<CompareOp::kLessEqual>},
    {"le", Compares<CompareOp::kLessEqual>},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  for (const Test& test : kTests) {
    if (test.name == name) return test.function;
  }
  return nullptr;
}

}  // namespace reprise::jinja
