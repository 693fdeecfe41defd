// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template/python/budget.h"
#include "text/template/python/value.h"

namespace reprise::jinja {

// Python's operators on values, with Python's error messages. An undefined operand is an error
// except where Jinja lets it pass: printing, truth, equality, iteration, length.

enum class BinaryOp { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

bool Truth(const Value& value);
// Costs the smaller of the two weights: pay for it, or use Compare.
bool Equal(const Value& a, const Value& b);
bool IsIterable(const Value& value);

// Below zero, zero or above; fails for values without an order.
Result<int> Order(const Value& a, const Value& b, const char* op = "<");
Result<bool> Compare(Budget* budget, CompareOp op, const Value& a, const Value& b);
Result<bool> Contains(Budget* budget, const Value& container, const Value& item);
Result<Value> Binary(Budget* budget, BinaryOp op, const Value& a, const Value& b);
Result<Value> Negate(const Value& value);
Result<Value> Positive(const Value& value);

// len(): missing for what has no length.
std::optional<size_t> Length(const Value& value);
Result<Value> LengthOrError(const Value& value);

// The items a `for` loop over the value would see; consumes an iterator.
Result<Value::Items> Iterate(Budget* budget, const Value& value);

// Pays for finding `key` in a dict, or an item in a list.
Status PayForLookup(Budget* budget, const Value& container, const Value& key);
// value[index] without Jinja's fallback to attributes; missing if there is no such item.
Value Item(const Value& value, const Value& index);
// value[start:stop:step]; a bound that was left out is missing.
Result<Value> Slice(Budget* budget, const Value& value, const Value& start, const Value& stop,
                    const Value& step);

// Python's type(x).__name__, and how Jinja's messages name it ("dict object").
std::string TypeName(const Value& value);
std::string TypeTitle(const Value& value);
// The error of using this undefined value.
Status UndefinedError(const Value& value);
Status TypeError(std::string message);

// s + t where either may be Markup: then the other is escaped.
Result<Value> Concatenate(Budget* budget, const Value& a, const Value& b);
// text.replace(from, to, count); a negative count: all of them.
Result<Value> ReplaceText(Budget* budget, const Value& text, std::string_view from, const Value& to,
                          int64_t count);

}  // namespace reprise::jinja
