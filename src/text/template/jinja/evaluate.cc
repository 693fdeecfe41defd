// SPDX-License-Identifier: Apache-2.0
// Expressions.
#include <utility>

#include "text/template/jinja/depth_guard.h"
#include "text/template/jinja/interpreter.h"
#include "text/template/library/attributes.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {

Result<Value> Interpreter::Eval(const Expr& expr, const Ref<Frame>& frame) {
  const DepthGuard guard(&depth_);
  Status entered = guard.Enter(&runtime_.budget);
  Result<Value> value = entered.ok() ? EvalNode(expr, frame) : Result<Value>(std::move(entered));
  if (!value.ok() && error_line_ == 0) error_line_ = expr.line;
  return value;
}

Result<Value> Interpreter::EvalNode(const Expr& expr, const Ref<Frame>& frame) {
  switch (expr.kind) {
    case Expr::Kind::kConst: {
      const Value& value = static_cast<const ConstExpr&>(expr).value;
      return value.is_string() ? value.AsView() : value;  // the count is not ours to touch
    }
    case Expr::Kind::kName: {
      const auto& name = static_cast<const NameExpr&>(expr);
      const Value& value = frame->At(name.ref);
      if (!value.is_missing()) return value;
      return Value::UndefinedView(Value::Reason::kName, name.name);
    }
    case Expr::Kind::kTuple:
    case Expr::Kind::kList: {
      REPRISE_ASSIGN(Value::Items items, EvalAll(static_cast<const ListExpr&>(expr).items, frame));
      Value value = expr.kind == Expr::Kind::kList ? Value::List(std::move(items))
                                                   : Value::Tuple(std::move(items));
      REPRISE_TRY(runtime_.budget.Admit(value));
      return value;
    }
    case Expr::Kind::kDict:
      return EvalDict(static_cast<const DictExpr&>(expr), frame);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
      return EvalJunction(static_cast<const ListExpr&>(expr), frame);
    case Expr::Kind::kNot:
    case Expr::Kind::kNegate:
    case Expr::Kind::kPositive: {
      REPRISE_ASSIGN(const Value operand,
                     Eval(*static_cast<const ListExpr&>(expr).items[0], frame));
      if (expr.kind == Expr::Kind::kNot) return Value::Bool(!Truth(operand));
      return expr.kind == Expr::Kind::kNegate ? Negate(operand) : Positive(operand);
    }
    case Expr::Kind::kBinary: {
      const auto& binary = static_cast<const BinaryExpr&>(expr);
      REPRISE_ASSIGN(const Value left, Eval(*binary.left, frame));
      REPRISE_ASSIGN(const Value right, Eval(*binary.right, frame));
      return Binary(&runtime_.budget, binary.op, left, right);
    }
    case Expr::Kind::kCompare:
      return EvalCompare(static_cast<const CompareExpr&>(expr), frame);
    case Expr::Kind::kConcat:
      return EvalConcat(static_cast<const ListExpr&>(expr), frame);
    case Expr::Kind::kConditional:
      return EvalConditional(static_cast<const ConditionalExpr&>(expr), frame);
    case Expr::Kind::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(expr);
      REPRISE_ASSIGN(const Value object, Eval(*attribute.object, frame));
      return GetAttribute(&runtime_, object, attribute.name);
    }
    case Expr::Kind::kItem: {
      const auto& item = static_cast<const ItemExpr&>(expr);
      REPRISE_ASSIGN(const Value object, Eval(*item.object, frame));
      REPRISE_ASSIGN(const Value index, Eval(*item.index, frame));
      return GetItem(&runtime_, object, index);
    }
    case Expr::Kind::kSlice:
      return EvalSlice(static_cast<const SliceExpr&>(expr), frame);
    case Expr::Kind::kCall:
      return EvalCall(static_cast<const CallExpr&>(expr), frame, Value());
    case Expr::Kind::kFilter:
      return EvalFilter(static_cast<const FilterExpr&>(expr), frame);
    case Expr::Kind::kTest:
      return EvalTest(static_cast<const TestExpr&>(expr), frame);
  }
  return Internal("unknown expression");
}

Result<Value::Items> Interpreter::EvalAll(const std::vector<ExprPtr>& exprs,
                                          const Ref<Frame>& frame) {
  Value::Items items;
  items.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) {
    REPRISE_ASSIGN(Value item, Eval(*expr, frame));
    items.push_back(std::move(item));
  }
  return items;
}

Result<Value> Interpreter::EvalOptional(const ExprPtr& expr, const Ref<Frame>& frame) {
  return expr == nullptr ? Value() : Eval(*expr, frame);
}

Result<Value> Interpreter::EvalJunction(const ListExpr& expr, const Ref<Frame>& frame) {
  const bool stop_at = expr.kind == Expr::Kind::kOr;  // the truth that decides
  Value value;
  for (const ExprPtr& item : expr.items) {
    REPRISE_ASSIGN(value, Eval(*item, frame));
    if (Truth(value) == stop_at) break;
  }
  return value;
}

Result<Value> Interpreter::EvalDict(const DictExpr& expr, const Ref<Frame>& frame) {
  DictBuilder members;
  for (const auto& [key_expr, value_expr] : expr.pairs) {
    REPRISE_ASSIGN(Value key, Eval(*key_expr, frame));
    if (!key.is_hashable()) return TypeError("unhashable type: '" + TypeName(key) + "'");
    if (!key.is_string()) {
      REPRISE_TRY(runtime_.budget.AllocateProduct(members.size(), key.weight()));
    }
    REPRISE_ASSIGN(Value value, Eval(*value_expr, frame));
    members.Set(std::move(key), std::move(value));
  }
  Value dict = members.Build();
  REPRISE_TRY(runtime_.budget.Admit(dict));
  return dict;
}

Result<Value> Interpreter::EvalCompare(const CompareExpr& expr, const Ref<Frame>& frame) {
  REPRISE_ASSIGN(Value left, Eval(*expr.first, frame));
  for (const auto& [op, right_expr] : expr.rest) {
    REPRISE_ASSIGN(Value right, Eval(*right_expr, frame));
    REPRISE_ASSIGN(const bool holds, Compare(&runtime_.budget, op, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> Interpreter::EvalConcat(const ListExpr& expr, const Ref<Frame>& frame) {
  REPRISE_ASSIGN(Value::Items items, EvalAll(expr.items, frame));
  size_t bytes = 0;
  for (Value& item : items) {
    REPRISE_ASSIGN(item, SoftStr(&runtime_.budget, item));
    bytes += item.as_string().size();
  }
  REPRISE_TRY(runtime_.budget.Allocate(bytes));
  TracedText text;
  text.Reserve(bytes);
  for (const Value& item : items) item.AppendTo(&text);
  return Value::Traced(std::move(text));
}

Result<Value> Interpreter::EvalConditional(const ConditionalExpr& expr, const Ref<Frame>& frame) {
  REPRISE_ASSIGN(const Value test, Eval(*expr.test, frame));
  if (Truth(test)) return Eval(*expr.value, frame);
  if (expr.otherwise != nullptr) return Eval(*expr.otherwise, frame);
  return Value::Undefined(Value::Reason::kMessage,
                          "the inline if-expression on line " + std::to_string(expr.line) +
                              " evaluated to false and no else section was defined.");
}

Result<Value> Interpreter::EvalSlice(const SliceExpr& expr, const Ref<Frame>& frame) {
  REPRISE_ASSIGN(const Value object, Eval(*expr.object, frame));
  REPRISE_ASSIGN(const Value start, EvalOptional(expr.start, frame));
  REPRISE_ASSIGN(const Value stop, EvalOptional(expr.stop, frame));
  REPRISE_ASSIGN(const Value step, EvalOptional(expr.step, frame));
  return Slice(&runtime_.budget, object, start, stop, step);
}

Status Interpreter::EvalArguments(const CallArguments& exprs, const Ref<Frame>& frame,
                                  Arguments* arguments) {
  REPRISE_ASSIGN(arguments->positional, EvalAll(exprs.positional, frame));
  for (const auto& [name, expr] : exprs.named) {
    REPRISE_ASSIGN(Value value, Eval(*expr, frame));
    arguments->named.emplace_back(name, std::move(value));
  }
  if (exprs.star != nullptr) {
    REPRISE_ASSIGN(const Value spread, Eval(*exprs.star, frame));
    REPRISE_ASSIGN(Value::Items items, Iterate(&runtime_.budget, spread));
    for (Value& item : items) arguments->positional.push_back(std::move(item));
  }
  if (exprs.star_star != nullptr) {
    REPRISE_ASSIGN(arguments->spread, Eval(*exprs.star_star, frame));
    if (!arguments->spread.is_dict()) return TypeError("argument after ** must be a mapping");
    for (const auto& [name, value] : arguments->spread.dict().pairs()) {
      if (!name.is_string()) return TypeError("keywords must be strings");
      arguments->named.emplace_back(name.as_string(), value);
    }
    REPRISE_TRY(runtime_.budget.Allocate(arguments->named.size() * 2 * sizeof(Value)));
  }
  return OkStatus();
}

Result<Value> Interpreter::EvalCall(const CallExpr& expr, const Ref<Frame>& frame, Value caller) {
  Arguments arguments;
  Value callee;
  const Method* method = nullptr;
  if (expr.callee->kind == Expr::Kind::kAttribute) {
    // object.method(...): without making a value of the method.
    const auto& attribute = static_cast<const AttributeExpr&>(*expr.callee);
    REPRISE_ASSIGN(callee, Eval(*attribute.object, frame));
    method = FindMethod(callee, attribute.name);
    if (method != nullptr && method->function == nullptr) method = nullptr;
    if (method == nullptr) {
      REPRISE_ASSIGN(callee, GetAttribute(&runtime_, callee, attribute.name));
    }
  } else {
    REPRISE_ASSIGN(callee, Eval(*expr.callee, frame));
  }
  REPRISE_TRY(EvalArguments(expr.arguments, frame, &arguments));
  if (!caller.is_missing()) arguments.named.emplace_back("caller", std::move(caller));
  Result<Value> result = Value();
  if (method != nullptr) {
    result = method->function(&runtime_, callee, arguments);
  } else if (callee.is_object()) {
    result = callee.object()->Call(&runtime_, &arguments);
  } else if (callee.is_undefined()) {
    return UndefinedError(callee);
  } else {
    return TypeError("'" + TypeName(callee) + "' object is not callable");
  }
  if (result.ok()) REPRISE_TRY(runtime_.budget.Admit(*result));
  return result;
}

Result<Value> Interpreter::EvalFilter(const FilterExpr& expr, const Ref<Frame>& frame) {
  Value subject;
  if (expr.subject != nullptr) {
    REPRISE_ASSIGN(subject, Eval(*expr.subject, frame));
  } else {
    subject = block_ == nullptr ? Value::View("", Origin::kTemplate) : *block_;
  }
  if (expr.function == nullptr) {
    return Unimplemented("No filter named " + Repr(expr.name) + " found.");
  }
  Arguments arguments;
  REPRISE_TRY(EvalArguments(expr.arguments, frame, &arguments));
  REPRISE_ASSIGN(Value value, expr.function(&runtime_, subject, arguments));
  REPRISE_TRY(runtime_.budget.Admit(value));
  return value;
}

Result<Value> Interpreter::EvalTest(const TestExpr& expr, const Ref<Frame>& frame) {
  REPRISE_ASSIGN(const Value subject, Eval(*expr.subject, frame));
  if (expr.function == nullptr) {
    return Unimplemented("No test named " + Repr(expr.name) + " found.");
  }
  Arguments arguments;
  REPRISE_TRY(EvalArguments(expr.arguments, frame, &arguments));
  REPRISE_ASSIGN(const bool passes, expr.function(&runtime_, subject, arguments));
  return Value::Bool(passes);
}

}  // namespace reprise::jinja
