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

// value % 2 == remainder.
template <int64_t remainder>
Result<bool> Parity(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  REPRISE_TRY(ArgumentReader("test", arguments).Finish());
  REPRISE_ASSIGN(const Value rest,
                 Binary(&runtime->budget, BinaryOp::kMod, subject, Value::Int(2)));
  return Equal(rest, Value::Int(remainder));
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
    {"odd", Parity<1>},
    {"even", Parity<0>},
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
