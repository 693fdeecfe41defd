// SPDX-License-Identifier: Apache-2.0
#include "text/template/jinja/expression_parser.h"

#include <algorithm>

#include "text/template/jinja/parser.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {
namespace {

constexpr uint16_t kHeightMax = 200;

ExprPtr MakeConst(uint32_t line, Value value) {
  return std::make_unique<ConstExpr>(line, std::move(value));
}

std::vector<ExprPtr> Pair(ExprPtr first, ExprPtr second) {
  std::vector<ExprPtr> items;
  items.push_back(std::move(first));
  if (second != nullptr) items.push_back(std::move(second));
  return items;
}

}  // namespace

Result<ExprPtr> ExpressionParser::Raise(ExprPtr expr, uint16_t height) {
  expr->height = static_cast<uint16_t>(height + 1);
  if (expr->height <= kHeightMax) return expr;
  return TokenStream::FailAt(expr->line, "the expression is too long or nested too deeply");
}

Result<ExprPtr> ExpressionParser::Grow(ExprPtr expr, std::initializer_list<const Expr*> children) {
  uint16_t height = 0;
  for (const Expr* child : children) {
    if (child != nullptr) height = std::max(height, child->height);
  }
  return Raise(std::move(expr), height);
}

Result<ExprPtr> ExpressionParser::Grow(ExprPtr expr, const std::vector<ExprPtr>& children) {
  uint16_t height = 0;
  for (const ExprPtr& child : children) height = std::max(height, child->height);
  return Raise(std::move(expr), height);
}

uint16_t ExpressionParser::HeightOf(const CallArguments& arguments) {
  uint16_t height = 0;
  const auto look = [&](const ExprPtr& e) {
    if (e != nullptr) height = std::max(height, e->height);
  };
  for (const ExprPtr& argument : arguments.positional) look(argument);
  for (const auto& [unused, argument] : arguments.named) look(argument);
  look(arguments.star);
  look(arguments.star_star);
  return height;
}

Result<ExprPtr> ExpressionParser::ParseExpression(bool with_condition) {
  if (depth_ >= kNestingMax) return tokens_.Fail("the expression is nested too deeply");
  ++depth_;
  Result<ExprPtr> expr = with_condition ? ParseCondition() : ParseOr();
  --depth_;
  return expr;
}

bool ExpressionParser::AtTupleEnd() const {
  const Token& token = tokens_.current();
  return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
         token.IsOperator(")") || token.IsName("recursive");
}

Result<ExprPtr> ExpressionParser::ParseTuple(bool with_condition, bool in_parentheses) {
  const uint32_t line = tokens_.line();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!AtTupleEnd()) {
    REPRISE_ASSIGN(ExprPtr item, ParseExpression(with_condition));
    items.push_back(std::move(item));
    if (!tokens_.SkipOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !in_parentheses) {
    return tokens_.Fail("expected an expression, got " + Describe(tokens_.current()));
  }
  auto tuple = std::make_unique<ListExpr>(Expr::Kind::kTuple, line, std::move(items));
  const std::vector<ExprPtr>& children = tuple->items;
  return Grow(std::move(tuple), children);
}

Result<ExprPtr> ExpressionParser::ParseCondition() {
  uint32_t line = tokens_.line();
  REPRISE_ASSIGN(ExprPtr expr, ParseOr());
  while (tokens_.SkipName("if")) {
    REPRISE_ASSIGN(ExprPtr test, ParseOr());
    ExprPtr otherwise;
    if (tokens_.SkipName("else")) {
      REPRISE_ASSIGN(otherwise, ParseExpression());
    }
    const std::initializer_list<const Expr*> children = {expr.get(), test.get(), otherwise.get()};
    REPRISE_ASSIGN(expr, Grow(std::make_unique<ConditionalExpr>(
                                  line, std::move(expr), std::move(test), std::move(otherwise)),
                              children));
    line = tokens_.line();
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::ParseJunction(Expr::Kind kind, std::string_view word,
                                                Rule operand) {
  const uint32_t line = tokens_.line();
  REPRISE_ASSIGN(ExprPtr first, (this->*operand)());
  if (!tokens_.current().IsName(word)) return first;
  std::vector<ExprPtr> items;
  items.push_back(std::move(first));
  while (tokens_.SkipName(word)) {
    REPRISE_ASSIGN(ExprPtr next, (this->*operand)());
    items.push_back(std::move(next));
  }
  auto junction = std::make_unique<ListExpr>(kind, line, std::move(items));
  const std::vector<ExprPtr>& children = junction->items;
  return Grow(std::move(junction), children);
}

Result<ExprPtr> ExpressionParser::ParseOr() {
  return ParseJunction(Expr::Kind::kOr, "or", &ExpressionParser::ParseAnd);
}

Result<ExprPtr> ExpressionParser::ParseAnd() {
  return ParseJunction(Expr::Kind::kAnd, "and", &ExpressionParser::ParseNot);
}

Result<ExprPtr> ExpressionParser::ParseNot() {
  const uint32_t line = tokens_.line();
  if (!tokens_.SkipName("not")) return ParseCompare();
  if (depth_ >= kNestingMax) return tokens_.Fail("the expression is nested too deeply");
  ++depth_;
  Result<ExprPtr> operand = ParseNot();
  --depth_;
  if (!operand.ok()) return operand;
  const Expr* child = operand->get();
  return Grow(
      std::make_unique<ListExpr>(Expr::Kind::kNot, line, Pair(std::move(*operand), nullptr)),
      {child});
}

Result<ExprPtr> ExpressionParser::ParseCompare() {
  REPRISE_ASSIGN(ExprPtr first, ParseSum());
  constexpr std::pair<std::string_view, CompareOp> kOperators[] = {
      {"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
      {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
      {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
  std::unique_ptr<CompareExpr> compare;
  uint16_t height = first->height;
  while (true) {
    CompareOp op = CompareOp::kIn;
    bool found = false;
    for (const auto& [text, candidate] : kOperators) {
      if (!tokens_.SkipOperator(text)) continue;
      op = candidate;
      found = true;
      break;
    }
    if (!found && tokens_.current().IsName("not") && tokens_.ahead().IsName("in")) {
      tokens_.Next();
      tokens_.Next();
      op = CompareOp::kNotIn;
      found = true;
    }
    if (!found && !tokens_.SkipName("in")) break;
    const uint32_t line = tokens_.line();
    REPRISE_ASSIGN(ExprPtr next, ParseSum());
    height = std::max(height, next->height);
    if (compare == nullptr) compare = std::make_unique<CompareExpr>(line, std::move(first));
    compare->rest.emplace_back(op, std::move(next));
  }
  if (compare == nullptr) return first;
  return Raise(std::move(compare), height);
}

Result<ExprPtr> ExpressionParser::ParseSum() {
  REPRISE_ASSIGN(ExprPtr left, ParseConcat());
  while (tokens_.current().IsOperator("+") || tokens_.current().IsOperator("-")) {
    const Token& op = tokens_.Next();
    const uint32_t line = op.line;
    const BinaryOp which = op.text == "+" ? BinaryOp::kAdd : BinaryOp::kSub;
    REPRISE_ASSIGN(ExprPtr right, ParseConcat());
    const std::initializer_list<const Expr*> children = {left.get(), right.get()};
    REPRISE_ASSIGN(
        left, Grow(std::make_unique<BinaryExpr>(line, which, std::move(left), std::move(right)),
                   children));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::ParseConcat() {
  const uint32_t line = tokens_.line();
  REPRISE_ASSIGN(ExprPtr first, ParseProduct());
  if (!tokens_.current().IsOperator("~")) return first;
  std::vector<ExprPtr> items;
  items.push_back(std::move(first));
  while (tokens_.SkipOperator("~")) {
    REPRISE_ASSIGN(ExprPtr next, ParseProduct());
    items.push_back(std::move(next));
  }
  auto concat = std::make_unique<ListExpr>(Expr::Kind::kConcat, line, std::move(items));
  const std::vector<ExprPtr>& children = concat->items;
  return Grow(std::move(concat), children);
}

Result<ExprPtr> ExpressionParser::ParseProduct() {
  constexpr std::pair<std::string_view, BinaryOp> kOperators[] = {{"*", BinaryOp::kMul},
                                                                  {"/", BinaryOp::kDiv},
                                                                  {"//", BinaryOp::kFloorDiv},
                                                                  {"%", BinaryOp::kMod}};
  REPRISE_ASSIGN(ExprPtr left, ParsePower());
  while (true) {
    const uint32_t line = tokens_.line();
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators), [&](const auto& o) {
      return tokens_.current().IsOperator(o.first);
    });
    if (op == std::end(kOperators)) return left;
    tokens_.Next();
    REPRISE_ASSIGN(ExprPtr right, ParsePower());
    const std::initializer_list<const Expr*> children = {left.get(), right.get()};
    REPRISE_ASSIGN(left, Grow(std::make_unique<BinaryExpr>(line, op->second, std::move(left),
                                                           std::move(right)),
                              children));
  }
}

Result<ExprPtr> ExpressionParser::ParsePower() {
  REPRISE_ASSIGN(ExprPtr left, ParseUnary(true));
  while (tokens_.current().IsOperator("**")) {
    const uint32_t line = tokens_.Next().line;
    REPRISE_ASSIGN(ExprPtr right, ParseUnary(true));
    const std::initializer_list<const Expr*> children = {left.get(), right.get()};
    REPRISE_ASSIGN(left, Grow(std::make_unique<BinaryExpr>(line, BinaryOp::kPow, std::move(left),
                                                           std::move(right)),
                              children));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::ParseUnary(bool with_filters) {
  const uint32_t line = tokens_.line();
  ExprPtr expr;
  if (tokens_.current().IsOperator("-") || tokens_.current().IsOperator("+")) {
    const Expr::Kind kind =
        tokens_.Next().text == "-" ? Expr::Kind::kNegate : Expr::Kind::kPositive;
    if (depth_ >= kNestingMax) return tokens_.Fail("the expression is nested too deeply");
    ++depth_;
    Result<ExprPtr> operand = ParseUnary(false);
    --depth_;
    if (!operand.ok()) return operand;
    const Expr* child = operand->get();
    REPRISE_ASSIGN(
        expr,
        Grow(std::make_unique<ListExpr>(kind, line, Pair(std::move(*operand), nullptr)), {child}));
  } else {
    REPRISE_ASSIGN(expr, ParsePrimary());
  }
  REPRISE_ASSIGN(expr, ParsePostfix(std::move(expr)));
  return with_filters ? ParseFilters(std::move(expr)) : Result<ExprPtr>(std::move(expr));
}

Result<ExprPtr> ExpressionParser::ParsePrimary() {
  const Token& token = tokens_.current();
  if (token.kind != TokenKind::kName) return ParseLiteral();
  tokens_.Next();
  if (token.text == "true" || token.text == "True") return MakeConst(token.line, Value::Bool(true));
  if (token.text == "false" || token.text == "False") {
    return MakeConst(token.line, Value::Bool(false));
  }
  if (token.text == "none" || token.text == "None") return MakeConst(token.line, Value::None());
  if (on_read) on_read(token.text);
  return ExprPtr(std::make_unique<NameExpr>(token.line, token.text));
}

Result<ExprPtr> ExpressionParser::ParseLiteral() {
  const Token& token = tokens_.current();
  switch (token.kind) {
    case TokenKind::kString: {
      std::string text;
      while (tokens_.current().kind == TokenKind::kString) text += tokens_.Next().text;
      return MakeConst(token.line, Value::String(std::move(text), Origin::kTemplate));
    }
    case TokenKind::kInteger:
      tokens_.Next();
      return MakeConst(token.line, Value::Int(token.integer));
    case TokenKind::kFloat:
      tokens_.Next();
      return MakeConst(token.line, Value::Float(token.number));
    default:
      break;
  }
  if (tokens_.SkipOperator("(")) {
    REPRISE_ASSIGN(ExprPtr tuple, ParseTuple(true, true));
    REPRISE_TRY(tokens_.ExpectOperator(")"));
    return tuple;
  }
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  return tokens_.Fail("unexpected " + Describe(token));
}

Result<ExprPtr> ExpressionParser::ParseList() {
  const uint32_t line = tokens_.Next().line;
  std::vector<ExprPtr> items;
  while (!tokens_.current().IsOperator("]")) {
    REPRISE_ASSIGN(ExprPtr item, ParseExpression());
    items.push_back(std::move(item));
    if (!tokens_.SkipOperator(",")) break;
  }
  REPRISE_TRY(tokens_.ExpectOperator("]"));
  auto list = std::make_unique<ListExpr>(Expr::Kind::kList, line, std::move(items));
  const std::vector<ExprPtr>& children = list->items;
  return Grow(std::move(list), children);
}

Result<ExprPtr> ExpressionParser::ParseDict() {
  auto dict = std::make_unique<DictExpr>(tokens_.Next().line);
  uint16_t height = 0;
  while (!tokens_.current().IsOperator("}")) {
    REPRISE_ASSIGN(ExprPtr key, ParseExpression());
    REPRISE_TRY(tokens_.ExpectOperator(":"));
    REPRISE_ASSIGN(ExprPtr value, ParseExpression());
    height = std::max({height, key->height, value->height});
    dict->pairs.emplace_back(std::move(key), std::move(value));
    if (!tokens_.SkipOperator(",")) break;
  }
  REPRISE_TRY(tokens_.ExpectOperator("}"));
  return Raise(std::move(dict), height);
}

Result<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr expr) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.IsOperator(".") || token.IsOperator("[")) {
      REPRISE_ASSIGN(expr, ParseSubscript(std::move(expr)));
    } else if (token.IsOperator("(")) {
      REPRISE_ASSIGN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExpressionParser::ParseFilters(ExprPtr expr) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.IsOperator("|")) {
      REPRISE_ASSIGN(expr, ParseFilter(std::move(expr)));
    } else if (token.IsName("is")) {
      REPRISE_ASSIGN(expr, ParseTest(std::move(expr)));
    } else if (token.IsOperator("(")) {
      REPRISE_ASSIGN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr object) {
  const Expr* child = object.get();
  const uint32_t line = tokens_.line();
  if (tokens_.Next().text == ".") {
    const Token& name = tokens_.Next();
    if (name.kind == TokenKind::kName) {
      return Grow(std::make_unique<AttributeExpr>(line, std::move(object), name.text), {child});
    }
    if (name.kind != TokenKind::kInteger) {
      return TokenStream::FailAt(name.line, "expected name or number");
    }
    return Grow(std::make_unique<ItemExpr>(line, std::move(object),
                                           MakeConst(name.line, Value::Int(name.integer))),
                {child});
  }
  std::vector<ExprPtr> indices;
  while (!tokens_.current().IsOperator("]")) {
    ExprPtr index;
    if (!tokens_.current().IsOperator(":")) {
      REPRISE_ASSIGN(index, ParseExpression());
    }
    if (tokens_.current().IsOperator(":")) {
      if (!indices.empty()) return tokens_.Fail("a slice among several indices is not supported");
      return ParseSlice(std::move(object), std::move(index), line);
    }
    indices.push_back(std::move(index));
    if (!tokens_.SkipOperator(",")) break;
  }
  REPRISE_TRY(tokens_.ExpectOperator("]"));
  ExprPtr index;
  if (indices.size() == 1) {
    index = std::move(indices[0]);
  } else {
    auto tuple = std::make_unique<ListExpr>(Expr::Kind::kTuple, line, std::move(indices));
    const std::vector<ExprPtr>& children = tuple->items;
    REPRISE_ASSIGN(index, Grow(std::move(tuple), children));
  }
  const std::initializer_list<const Expr*> children = {child, index.get()};
  return Grow(std::make_unique<ItemExpr>(line, std::move(object), std::move(index)), children);
}

Result<ExprPtr> ExpressionParser::ParseSlice(ExprPtr object, ExprPtr start, uint32_t line) {
  auto slice = std::make_unique<SliceExpr>(line);
  slice->object = std::move(object);
  slice->start = std::move(start);
  const auto at_end = [&] {
    return tokens_.current().IsOperator("]") || tokens_.current().IsOperator(":");
  };
  REPRISE_TRY(tokens_.ExpectOperator(":"));
  if (!at_end()) {
    REPRISE_ASSIGN(slice->stop, ParseExpression());
  }
  if (tokens_.SkipOperator(":") && !at_end()) {
    REPRISE_ASSIGN(slice->step, ParseExpression());
  }
  REPRISE_TRY(tokens_.ExpectOperator("]"));
  const std::initializer_list<const Expr*> children = {slice->object.get(), slice->start.get(),
                                                       slice->stop.get(), slice->step.get()};
  return Grow(std::move(slice), children);
}

Result<ExprPtr> ExpressionParser::ParseCall(ExprPtr callee) {
  const uint16_t callee_height = callee->height;
  auto call = std::make_unique<CallExpr>(tokens_.line(), std::move(callee));
  REPRISE_ASSIGN(call->arguments, ParseArguments());
  const uint16_t height = std::max(callee_height, HeightOf(call->arguments));
  return Raise(std::move(call), height);
}

Result<CallArguments> ExpressionParser::ParseArguments() {
  CallArguments arguments;
  const uint32_t line = tokens_.line();
  const auto bad = [&] {
    return TokenStream::FailAt(line, "invalid syntax for function call expression");
  };
  REPRISE_TRY(tokens_.ExpectOperator("("));
  while (!tokens_.current().IsOperator(")")) {
    const bool no_stars = arguments.star == nullptr && arguments.star_star == nullptr;
    if (tokens_.SkipOperator("*")) {
      if (!no_stars) return bad();
      REPRISE_ASSIGN(arguments.star, ParseExpression());
    } else if (tokens_.SkipOperator("**")) {
      if (arguments.star_star != nullptr) return bad();
      REPRISE_ASSIGN(arguments.star_star, ParseExpression());
    } else if (tokens_.current().kind == TokenKind::kName && tokens_.ahead().IsOperator("=")) {
      if (arguments.star_star != nullptr) return bad();
      std::string name = tokens_.Next().text;
      tokens_.Next();
      REPRISE_ASSIGN(ExprPtr value, ParseExpression());
      arguments.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!no_stars || !arguments.named.empty()) return bad();
      REPRISE_ASSIGN(ExprPtr value, ParseExpression());
      arguments.positional.push_back(std::move(value));
    }
    if (!tokens_.SkipOperator(",")) break;
  }
  REPRISE_TRY(tokens_.ExpectOperator(")"));
  return arguments;
}

Result<ExprPtr> ExpressionParser::ParseFilter(ExprPtr subject) {
  REPRISE_TRY(tokens_.ExpectOperator("|"));
  auto filter = std::make_unique<FilterExpr>(tokens_.line());
  REPRISE_ASSIGN(filter->name, tokens_.ExpectIdentifier());
  while (tokens_.SkipOperator(".")) {
    REPRISE_ASSIGN(const std::string part, tokens_.ExpectIdentifier());
    filter->name += "." + part;
  }
  filter->function = FindFilter(filter->name);
  if (tokens_.current().IsOperator("(")) {
    REPRISE_ASSIGN(filter->arguments, ParseArguments());
  }
  const uint16_t height =
      std::max<uint16_t>(subject == nullptr ? 0 : subject->height, HeightOf(filter->arguments));
  filter->subject = std::move(subject);
  return Raise(std::move(filter), height);
}

Result<ExprPtr> ExpressionParser::ParseFilterChain(bool first_without_pipe) {
  ExprPtr chain;
  if (first_without_pipe) {
    // {% filter upper %}: as if a pipe stood before it.
    auto filter = std::make_unique<FilterExpr>(tokens_.line());
    REPRISE_ASSIGN(filter->name, tokens_.ExpectIdentifier());
    filter->function = FindFilter(filter->name);
    if (tokens_.current().IsOperator("(")) {
      REPRISE_ASSIGN(filter->arguments, ParseArguments());
    }
    const uint16_t height = HeightOf(filter->arguments);
    REPRISE_ASSIGN(chain, Raise(std::move(filter), height));
  }
  while (tokens_.current().IsOperator("|")) {
    REPRISE_ASSIGN(chain, ParseFilter(std::move(chain)));
  }
  return chain;
}

bool ExpressionParser::StartsTestArgument() const {
  const Token& token = tokens_.current();
  switch (token.kind) {
    case TokenKind::kName:
      return token.text != "else" && token.text != "or" && token.text != "and";
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return token.IsOperator("[") || token.IsOperator("{");
  }
}

Result<ExprPtr> ExpressionParser::ParseTest(ExprPtr subject) {
  auto test = std::make_unique<TestExpr>(tokens_.Next().line);
  const uint32_t line = test->line;
  const bool negated = tokens_.SkipName("not");
  uint16_t height = subject->height;
  test->subject = std::move(subject);
  REPRISE_ASSIGN(test->name, tokens_.ExpectIdentifier());
  test->function = FindTest(test->name);
  if (tokens_.current().IsOperator("(")) {
    REPRISE_ASSIGN(test->arguments, ParseArguments());
  } else if (StartsTestArgument()) {
    if (tokens_.current().IsName("is")) {
      return tokens_.Fail("You cannot chain multiple tests with is");
    }
    REPRISE_ASSIGN(ExprPtr argument, ParsePrimary());
    REPRISE_ASSIGN(argument, ParsePostfix(std::move(argument)));
    test->arguments.positional.push_back(std::move(argument));
  }
  height = std::max(height, HeightOf(test->arguments));
  REPRISE_ASSIGN(ExprPtr expr, Raise(std::move(test), height));
  if (!negated) return expr;
  const Expr* child = expr.get();
  return Grow(std::make_unique<ListExpr>(Expr::Kind::kNot, line, Pair(std::move(expr), nullptr)),
              {child});
}

Result<Target> ExpressionParser::ParseTarget(bool with_attributes) {
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.line = tokens_.line();
  bool is_tuple = false;
  if (depth_ >= kNestingMax) return tokens_.Fail("the assignment is nested too deeply");
  while (true) {
    Target item;
    item.line = tokens_.line();
    if (tokens_.SkipOperator("(")) {
      ++depth_;
      Result<Target> inner = ParseTarget(with_attributes);
      --depth_;
      if (!inner.ok()) return inner;
      item = std::move(*inner);
      REPRISE_TRY(tokens_.ExpectOperator(")"));
    } else {
      REPRISE_ASSIGN(item.name, tokens_.ExpectIdentifier());
      for (const char* word : {"true", "false", "none", "True", "False", "None"}) {
        if (item.name == word) return tokens_.Fail("can't assign to " + Repr(item.name));
      }
      if (with_attributes && tokens_.SkipOperator(".")) {
        item.kind = Target::Kind::kAttribute;
        REPRISE_ASSIGN(item.attribute, tokens_.ExpectIdentifier());
      }
    }
    tuple.items.push_back(std::move(item));
    if (!tokens_.SkipOperator(",")) break;
    is_tuple = true;
    const Token& token = tokens_.current();
    if (token.IsName("in") || token.IsOperator("=") || AtTupleEnd()) break;
  }
  if (is_tuple) return tuple;
  return std::move(tuple.items[0]);
}

}  // namespace reprise::jinja
