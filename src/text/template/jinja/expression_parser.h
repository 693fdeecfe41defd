// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "base/status.h"
#include "text/template/jinja/ast.h"
#include "text/template/jinja/token_stream.h"

namespace reprise::jinja {

// Recursive descent over Jinja's expressions, from the loosest binding to the tightest:
// if/else, or, and, not, comparisons, + -, ~, * / // %, **, unary, postfix and filters.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  // Told of every variable that is read.
  std::function<void(std::string_view)> on_read;

  Result<ExprPtr> ParseExpression(bool with_condition = true);
  // One expression, or several with commas: then a tuple.
  Result<ExprPtr> ParseTuple(bool with_condition, bool in_parentheses = false);
  // The filters after a filter tag or a set block: a chain whose innermost subject is null.
  Result<ExprPtr> ParseFilterChain(bool first_without_pipe);
  Result<Target> ParseTarget(bool with_attributes);

 private:
  using Rule = Result<ExprPtr> (ExpressionParser::*)();

  Result<ExprPtr> ParseCondition();
  Result<ExprPtr> ParseOr();
  Result<ExprPtr> ParseAnd();
  Result<ExprPtr> ParseNot();
  Result<ExprPtr> ParseCompare();
  Result<ExprPtr> ParseSum();
  Result<ExprPtr> ParseConcat();
  Result<ExprPtr> ParseProduct();
  Result<ExprPtr> ParsePower();
  Result<ExprPtr> ParseUnary(bool with_filters);
  Result<ExprPtr> ParsePrimary();
  Result<ExprPtr> ParseLiteral();
  Result<ExprPtr> ParseList();
  Result<ExprPtr> ParseDict();
  Result<ExprPtr> ParsePostfix(ExprPtr expr);
  Result<ExprPtr> ParseFilters(ExprPtr expr);
  Result<ExprPtr> ParseSubscript(ExprPtr object);
  Result<ExprPtr> ParseSlice(ExprPtr object, ExprPtr start, uint32_t line);
  Result<ExprPtr> ParseCall(ExprPtr callee);
  Result<ExprPtr> ParseFilter(ExprPtr subject);
  Result<ExprPtr> ParseTest(ExprPtr subject);
  Result<CallArguments> ParseArguments();
  Result<ExprPtr> ParseJunction(Expr::Kind kind, std::string_view word, Rule operand);
  bool AtTupleEnd() const;
  bool StartsTestArgument() const;

  // Sets the height of a new node, and refuses a tree that is too high.
  Result<ExprPtr> Grow(ExprPtr expr, std::initializer_list<const Expr*> children);
  Result<ExprPtr> Grow(ExprPtr expr, const std::vector<ExprPtr>& children);
  static uint16_t HeightOf(const CallArguments& arguments);
  Result<ExprPtr> Raise(ExprPtr expr, uint16_t height);

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace reprise::jinja
