// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/operators.h"

#include <algorithm>
#include <cmath>

#include "text/template/python/format.h"
#include "text/template/python/iterator.h"
#include "text/template/python/repr.h"
#include "text/template/python/strings.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

using Kind = Value::Kind;

Status Unsupported(const char* op, const Value& a, const Value& b) {
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  return TypeError(std::string("unsupported operand type(s) for ") + op + ": '" + TypeName(a) +
                   "' and '" + TypeName(b) + "'");
}

Status Overflow() {
  return InvalidArgument("an integer does not fit in 64 bits, which is all this engine computes");
}

// Three-way comparison of an integer and a double without rounding the integer.
int OrderMixed(int64_t a, double b) {
  if (b >= 9223372036854775808.0) return -1;
  if (b < -9223372036854775808.0) return 1;
  const auto whole = static_cast<int64_t>(b);
  if (a != whole) return a < whole ? -1 : 1;
  const double rest = b - static_cast<double>(whole);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

int OrderNumbers(const Value& a, const Value& b) {
  if (a.is_float() && b.is_float()) {
    return a.as_double() < b.as_double() ? -1 : a.as_double() > b.as_double() ? 1 : 0;
  }
  if (a.is_float()) return -OrderMixed(b.as_int(), a.as_double());
  if (b.is_float()) return OrderMixed(a.as_int(), b.as_double());
  return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
}

bool IsNan(const Value& value) { return value.is_float() && std::isnan(value.as_double()); }

Result<Value> Repeat(Budget* budget, const Value& value, int64_t count) {
  const size_t times = count > 0 ? static_cast<size_t>(count) : 0;
  if (value.is_string()) {
    const std::string_view text = value.as_string();
    REPRISE_TRY(budget->AllocateProduct(times, text.size()));
    TracedText out;
    out.Reserve(times * text.size());
    if (!text.empty()) {
      for (size_t i = 0; i < times; ++i) value.AppendTo(&out);
    }
    Value repeated = Value::Traced(std::move(out));
    return value.is_markup() ? repeated.AsMarkup() : repeated;
  }
  REPRISE_TRY(budget->AllocateProduct(times, value.items().size() * sizeof(Value)));
  Value::Items items;
  if (!value.items().empty()) {
    for (size_t i = 0; i < times; ++i) {
      items.insert(items.end(), value.items().begin(), value.items().end());
    }
  }
  return Value::Of(value.sequence(), std::move(items));
}

bool IsRepeatable(const Value& value) {
  return value.is_string() || value.is_list() || value.is_tuple();
}

Result<Value> PowerOfIntegers(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return InvalidArgument("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Int(result);
}

Result<Value> BinaryOnIntegers(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow();
      return Value::Int(result);
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow();
      return Value::Int(result);
    case BinaryOp::kMul:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow();
      return Value::Int(result);
    case BinaryOp::kDiv:
      if (b == 0) return InvalidArgument("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: {
      if (b == 0) return InvalidArgument("integer division or modulo by zero");
      if (b == -1) {  // INT64_MIN / -1 traps
        if (op == BinaryOp::kMod) return Value::Int(0);
        if (__builtin_sub_overflow(int64_t{0}, a, &result)) return Overflow();
        return Value::Int(result);
      }
      const int64_t quotient = a / b;
      const int64_t rest = a % b;
      const bool floor =
          rest != 0 && (rest < 0) != (b < 0);  // Python rounds towards minus infinity
      if (op == BinaryOp::kFloorDiv) return Value::Int(floor ? quotient - 1 : quotient);
      return Value::Int(floor ? rest + b : rest);
    }
    case BinaryOp::kPow:
      return PowerOfIntegers(a, b);
  }
  return Internal("unknown operator");
}

Result<Value> BinaryOnFloats(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSub:
      return Value::Float(a - b);
    case BinaryOp::kMul:
      return Value::Float(a * b);
    case BinaryOp::kDiv:
      if (b == 0) return InvalidArgument("float division by zero");
      return Value::Float(a / b);
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: {
      if (b == 0) return InvalidArgument("float floor division by zero");
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      if (op == BinaryOp::kMod) return Value::Float(rest == 0 ? std::copysign(0.0, b) : rest);
      return Value::Float(std::round((a - rest) / b));
    }
    case BinaryOp::kPow:
      if (a == 0 && b < 0) return InvalidArgument("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) return InvalidArgument("complex numbers are not supported");
      return Value::Float(std::pow(a, b));
  }
  return Internal("unknown operator");
}

const char* NameOf(BinaryOp op) {
  constexpr const char* kNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kNames[static_cast<int>(op)];
}

// A slice's bounds, resolved against a length, as Python's slice.indices does.
struct SliceBounds {
  int64_t start, stop, step;
};

Result<SliceBounds> Resolve(int64_t length, const Value& start, const Value& stop,
                            const Value& step) {
  const auto given = [](const Value& v) { return !v.is_missing() && !v.is_none(); };
  for (const Value* bound : {&start, &stop, &step}) {
    if (bound->is_undefined()) return UndefinedError(*bound);
    if (given(*bound) && !bound->is_integral()) {
      return TypeError("slice indices must be integers or None or have an __index__ method");
    }
  }
  SliceBounds bounds{0, 0, given(step) ? step.as_int() : 1};
  if (bounds.step == 0) return InvalidArgument("slice step cannot be zero");
  const bool backwards = bounds.step < 0;
  const int64_t low = backwards ? -1 : 0;
  const int64_t high = backwards ? length - 1 : length;
  const auto clamp = [&](const Value& v, int64_t fallback) {
    if (!given(v)) return fallback;
    const int64_t at = v.as_int() < 0 && v.as_int() >= -length ? v.as_int() + length : v.as_int();
    return std::clamp(at, low, high);
  };
  bounds.start = clamp(start, backwards ? high : low);
  bounds.stop = clamp(stop, backwards ? low : high);
  return bounds;
}

template <typename Take>  // take(index)
void WalkSlice(const SliceBounds& bounds, const Take& take) {
  for (int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop;) {
    take(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, bounds.step, &i)) return;
  }
}

Result<Value> SliceText(const Value& value, const Value& start, const Value& stop,
                        const Value& step) {
  const std::string_view text = value.as_string();
  REPRISE_ASSIGN(const SliceBounds bounds,
                 Resolve(static_cast<int64_t>(CodePointCount(text)), start, stop, step));
  if (bounds.step == 1) {
    if (bounds.start >= bounds.stop) return value.Part(text.substr(0, 0));
    const std::string_view rest =
        text.substr(CodePointOffset(text, static_cast<size_t>(bounds.start)));
    return value.Part(
        rest.substr(0, CodePointOffset(rest, static_cast<size_t>(bounds.stop - bounds.start))));
  }
  std::vector<std::string_view> characters;
  CodePoints points(text);
  uint32_t code = 0;
  for (size_t begin = 0; points.Next(&code); begin = points.offset()) {
    characters.push_back(text.substr(begin, points.offset() - begin));
  }
  TracedText out;
  WalkSlice(bounds, [&](size_t i) { value.AppendPartTo(characters[i], &out); });
  Value result = Value::Traced(std::move(out));
  return value.is_markup() ? result.AsMarkup() : result;
}

}  // namespace

Status TypeError(std::string message) { return InvalidArgument(std::move(message)); }

Status UndefinedError(const Value& value) {
  const std::string text(value.as_string());
  switch (value.reason()) {
    case Value::Reason::kName:
      return InvalidArgument(Repr(value.as_string()) + " is undefined");
    case Value::Reason::kDictAttribute:
      return InvalidArgument("'dict object' has no attribute " + Repr(value.as_string()));
    case Value::Reason::kMessage:
      break;
  }
  return InvalidArgument(text);
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
      return !value.as_string().empty();
    case Kind::kSequence:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().pairs().empty();
    case Kind::kObject:
      return true;
  }
  return false;
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return !IsNan(a) && !IsNan(b) && OrderNumbers(a, b) == 0;
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      return a.as_string() == b.as_string();
    case Kind::kSequence:
      if (a.SameAs(b)) return true;
      return a.sequence() == b.sequence() && a.items().size() == b.items().size() &&
             std::equal(a.items().begin(), a.items().end(), b.items().begin(), Equal);
    case Kind::kDict: {
      if (a.SameAs(b)) return true;
      if (a.dict().pairs().size() != b.dict().pairs().size()) return false;
      for (const auto& [key, value] : a.dict().pairs()) {
        const Value* other = b.dict().Find(key);
        if (other == nullptr || !Equal(value, *other)) return false;
      }
      return true;
    }
    case Kind::kObject:
      return a.SameAs(b);
    default:
      return true;  // None, and undefined values among themselves
  }
}

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kSequence:
    case Kind::kDict:
      return true;
    case Kind::kObject:
      return value.object()->type() == Object::Type::kIterator ||
             value.object()->type() == Object::Type::kLoop;
    default:
      return false;
  }
}

Result<int> Order(const Value& a, const Value& b, const char* op) {
  if (a.is_number() && b.is_number()) return OrderNumbers(a, b);
  if (a.is_string() && b.is_string()) return a.as_string().compare(b.as_string());
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    const size_t count = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < count; ++i) {
      if (!Equal(a.items()[i], b.items()[i])) return Order(a.items()[i], b.items()[i], op);
    }
    return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size() ? 1 : 0;
  }
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  return TypeError("'" + std::string(op) + "' not supported between instances of '" + TypeName(a) +
                   "' and '" + TypeName(b) + "'");
}

Result<bool> Compare(Budget* budget, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEqual:
    case CompareOp::kNotEqual:
      REPRISE_TRY(budget->Spend(std::min(a.weight(), b.weight())));
      return Equal(a, b) == (op == CompareOp::kEqual);
    case CompareOp::kIn:
    case CompareOp::kNotIn: {
      REPRISE_ASSIGN(const bool found, Contains(budget, b, a));
      return found == (op == CompareOp::kIn);
    }
    default:
      break;
  }
  constexpr const char* kNames[] = {"==", "!=", "<", "<=", ">", ">="};
  REPRISE_TRY(budget->Spend(std::min(a.weight(), b.weight())));
  REPRISE_ASSIGN(const int order, Order(a, b, kNames[static_cast<int>(op)]));
  if (IsNan(a) || IsNan(b)) return false;
  switch (op) {
    case CompareOp::kLess:
      return order < 0;
    case CompareOp::kLessEqual:
      return order <= 0;
    case CompareOp::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

Status PayForLookup(Budget* budget, const Value& container, const Value& key) {
  size_t compared = 0;
  if (container.is_sequence()) compared = container.items().size();
  if (container.is_dict() && !key.is_string()) compared = container.dict().pairs().size();
  uint64_t cost = 0;
  if (__builtin_mul_overflow(compared, key.weight(), &cost)) cost = UINT64_MAX / 2;
  return budget->Spend(cost);
}

Result<bool> Contains(Budget* budget, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (item.is_string()) {
        REPRISE_TRY(budget->Spend(container.as_string().size() / 256));
        return FindFirst(container.as_string(), item.as_string()) != std::string_view::npos;
      }
      if (item.is_undefined()) return UndefinedError(item);
      return TypeError("'in <string>' requires string as left operand, not " + TypeName(item));
    case Kind::kDict:
      if (!item.is_hashable()) return TypeError("unhashable type: '" + TypeName(item) + "'");
      REPRISE_TRY(PayForLookup(budget, container, item));
      return container.dict().Find(item) != nullptr;
    case Kind::kUndefined:
      return false;
    default:
      break;
  }
  if (!IsIterable(container)) {
    return TypeError("argument of type '" + TypeName(container) + "' is not iterable");
  }
  if (container.is_object()) {
    REPRISE_ASSIGN(const Value::Items items, Iterate(budget, container));
    return std::any_of(items.begin(), items.end(), [&](const Value& v) { return Equal(v, item); });
  }
  REPRISE_TRY(PayForLookup(budget, container, item));
  const Value::Items& items = container.items();
  return std::any_of(items.begin(), items.end(), [&](const Value& v) { return Equal(v, item); });
}

Result<Value> Concatenate(Budget* budget, const Value& a, const Value& b) {
  REPRISE_TRY(budget->Allocate(a.as_string().size() + b.as_string().size()));
  const bool markup = a.is_markup() || b.is_markup();
  TracedText out;
  out.Reserve(a.as_string().size() + b.as_string().size());
  for (const Value* part : {&a, &b}) {
    if (markup && !part->is_markup()) {
      out.Append(EscapedHtml(part->as_string()), part->origin());
    } else {
      part->AppendTo(&out);
    }
  }
  Value joined = Value::Traced(std::move(out));
  return markup ? joined.AsMarkup() : joined;
}

Result<Value> ReplaceText(Budget* budget, const Value& text, std::string_view from, const Value& to,
                          int64_t count) {
  const std::string_view bytes = text.as_string();
  REPRISE_TRY(budget->Spend(bytes.size() / 8));  // there may be as many finds
  REPRISE_TRY(
      budget->Allocate(std::max(bytes.size(), ReplacedBytes(bytes, from, to.as_string(), count))));
  TracedText out;
  size_t at = 0;
  const std::vector<size_t> finds = FindAll(bytes, from, count);
  REPRISE_TRY(budget->AllocateProduct(finds.size(), sizeof(size_t) + sizeof(TextRange)));
  for (const size_t found : finds) {
    text.AppendPartTo(bytes.substr(at, found - at), &out);
    to.AppendTo(&out);
    at = found + from.size();
  }
  text.AppendPartTo(bytes.substr(at), &out);
  return Value::Traced(std::move(out));
}

Result<Value> Binary(Budget* budget, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return BinaryOnIntegers(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return BinaryOnFloats(op, a.as_double(), b.as_double());
  if (op == BinaryOp::kMod && a.is_string()) return FormatPercent(budget, a, b);
  if (op == BinaryOp::kAdd) {
    if (a.is_string() && b.is_string()) return Concatenate(budget, a, b);
    if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
      REPRISE_TRY(budget->Allocate((a.items().size() + b.items().size()) * sizeof(Value)));
      Value::Items items = a.items();
      items.insert(items.end(), b.items().begin(), b.items().end());
      return Value::Of(a.sequence(), std::move(items));
    }
    if (!a.is_undefined() && !b.is_undefined() && (a.is_string() || a.is_list() || a.is_tuple())) {
      const std::string type = a.is_string() ? "str" : TypeName(a);
      return TypeError("can only concatenate " + type + " (not \"" + TypeName(b) + "\") to " +
                       type);
    }
  }
  if (op == BinaryOp::kMul) {
    if (IsRepeatable(a) && b.is_integral()) return Repeat(budget, a, b.as_int());
    if (IsRepeatable(b) && a.is_integral()) return Repeat(budget, b, a.as_int());
  }
  return Unsupported(NameOf(op), a, b);
}

Result<Value> Negate(const Value& value) {
  if (value.is_float()) return Value::Float(-value.as_double());
  if (!value.is_integral()) {
    if (value.is_undefined()) return UndefinedError(value);
    return TypeError("bad operand type for unary -: '" + TypeName(value) + "'");
  }
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.as_int(), &result)) return Overflow();
  return Value::Int(result);
}

Result<Value> Positive(const Value& value) {
  if (value.is_float()) return value;
  if (value.is_integral()) return Value::Int(value.as_int());
  if (value.is_undefined()) return UndefinedError(value);
  return TypeError("bad operand type for unary +: '" + TypeName(value) + "'");
}

std::optional<size_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return CodePointCount(value.as_string());
    case Kind::kSequence:
      return value.items().size();
    case Kind::kDict:
      return value.dict().pairs().size();
    case Kind::kObject:
      if (value.object()->type() == Object::Type::kLoop) {
        return static_cast<size_t>(value.object()->Attribute("length").as_int());
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Result<Value> LengthOrError(const Value& value) {
  const std::optional<size_t> length = Length(value);
  if (!length) return TypeError("object of type '" + TypeName(value) + "' has no len()");
  return Value::Int(static_cast<int64_t>(*length));
}

Result<Value::Items> Iterate(Budget* budget, const Value& value) {
  Value::Items items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kSequence:
      REPRISE_TRY(budget->Allocate(value.items().size() * sizeof(Value)));
      return value.items();
    case Kind::kString: {
      const std::string_view text = value.as_string();
      REPRISE_TRY(budget->AllocateProduct(text.size(), 2 * sizeof(Value) + sizeof(std::string)));
      CodePoints points(text);
      uint32_t code = 0;
      for (size_t begin = 0; points.Next(&code); begin = points.offset()) {
        items.push_back(value.Part(text.substr(begin, points.offset() - begin)));
      }
      return items;
    }
    case Kind::kDict:
      REPRISE_TRY(budget->Allocate(value.dict().pairs().size() * sizeof(Value)));
      for (const auto& [key, unused] : value.dict().pairs()) items.push_back(key);
      return items;
    case Kind::kObject:
      if (value.object()->type() == Object::Type::kIterator) {
        return Drain(budget, static_cast<Iterator*>(value.object()));
      }
      break;
    default:
      break;
  }
  return TypeError("'" + TypeName(value) + "' object is not iterable");
}

Value Item(const Value& value, const Value& index) {
  if (value.is_dict()) {
    if (!index.is_hashable()) return Value();
    const Value* found = value.dict().Find(index);
    return found == nullptr ? Value() : *found;
  }
  if (!index.is_integral()) return Value();
  int64_t at = index.as_int();
  if (value.is_sequence() && (value.sequence() <= Value::Sequence::kRange)) {
    const auto count = static_cast<int64_t>(value.items().size());
    if (at < 0) at += count;
    return at >= 0 && at < count ? value.items()[static_cast<size_t>(at)] : Value();
  }
  if (value.is_string()) {
    const std::string_view text = value.as_string();
    if (at < 0) at += static_cast<int64_t>(CodePointCount(text));
    if (at < 0) return Value();
    const size_t begin = CodePointOffset(text, static_cast<size_t>(at));
    if (begin >= text.size()) return Value();
    const size_t length = CodePointOffset(text.substr(begin), 1);
    return value.Part(text.substr(begin, length));
  }
  return Value();
}

Result<Value> Slice(Budget* budget, const Value& value, const Value& start, const Value& stop,
                    const Value& step) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_string()) {
    REPRISE_TRY(budget->AllocateProduct(value.as_string().size(),
                                        step.is_missing() ? 1 : sizeof(std::string_view)));
    return SliceText(value, start, stop, step);
  }
  if (!value.is_sequence() || value.sequence() > Value::Sequence::kRange) {
    if (value.is_dict()) return TypeError("unhashable type: 'slice'");
    return TypeError("'" + TypeName(value) + "' object is not subscriptable");
  }
  const Value::Items& all = value.items();
  REPRISE_ASSIGN(const SliceBounds bounds,
                 Resolve(static_cast<int64_t>(all.size()), start, stop, step));
  REPRISE_TRY(budget->Allocate(all.size() * sizeof(Value)));
  Value::Items items;
  WalkSlice(bounds, [&](size_t i) { items.push_back(all[i]); });
  return Value::Of(value.sequence(), std::move(items));
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kSequence: {
      constexpr const char* kNames[] = {"list",      "tuple",       "range",
                                        "dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<int>(value.sequence())];
    }
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return value.object()->type_name();
  }
  return "object";
}

std::string TypeTitle(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is_object() && value.object()->type() == Object::Type::kNamespace) {
    return "jinja2.utils.Namespace object";
  }
  return TypeName(value) + " object";
}

}  // namespace reprise::jinja
