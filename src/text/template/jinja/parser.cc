// SPDX-License-Identifier: Apache-2.0
#include "text/template/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "base/utf8.h"
#include "text/template/jinja/expression_parser.h"
#include "text/template/jinja/scope.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {
namespace {

// Parses the tags; expressions are left to ExpressionParser.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(&tokens_) {
    expressions_.on_read = [this](std::string_view name) { NoteRead(name); };
  }

  Result<std::unique_ptr<Template>> Run() {
    auto parsed = std::make_unique<Template>();
    REPRISE_TRY(ParseBody({}, &parsed->body));
    return parsed;
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  // Some names exist only if a body mentions them: `loop` in the innermost loop around, and
  // caller, varargs and kwargs in the macro around.
  void NoteRead(std::string_view name) {
    if (name == "loop") {
      const auto loop = std::find_if(loops_.rbegin(), loops_.rend(),
                                     [](const ForStmt* around) { return around != nullptr; });
      if (loop != loops_.rend()) (*loop)->uses_loop = true;
    }
    for (Function* function : functions_) {
      if (name == "caller") function->uses_caller = true;
      if (name == "varargs") function->uses_varargs = true;
      if (name == "kwargs") function->uses_kwargs = true;
    }
  }

  bool AtWord(const Words& words) const {
    return tokens_.current().kind == TokenKind::kName &&
           std::find(words.begin(), words.end(), tokens_.current().text) != words.end();
  }

  // Text and tags up to a tag that begins with one of `end`, whose word is then current; without
  // `end`, up to the end of the template.
  Status ParseBody(const Words& end, Body* body) {
    if (nesting_ >= kNestingMax) return tokens_.Fail("tags are nested too deeply");
    ++nesting_;
    while (tokens_.current().kind != TokenKind::kEnd) {
      const Token& token = tokens_.Next();
      switch (token.kind) {
        case TokenKind::kText:
          body->push_back(std::make_unique<TextStmt>(token.line, token.text));
          break;
        case TokenKind::kVariableBegin: {
          REPRISE_ASSIGN(ExprPtr value, expressions_.ParseTuple(true));
          body->push_back(std::make_unique<PrintStmt>(token.line, std::move(value)));
          REPRISE_TRY(tokens_.Expect(TokenKind::kVariableEnd, "'}}'"));
          break;
        }
        default:
          if (AtWord(end)) {
            --nesting_;
            return OkStatus();
          }
          REPRISE_TRY(ParseTag(body));
          REPRISE_TRY(tokens_.Expect(TokenKind::kBlockEnd, "'%}'"));
      }
    }
    --nesting_;
    if (end.size() == 0) return OkStatus();
    return tokens_.Fail("unexpected end of template, expected '" + std::string(*std::rbegin(end)) +
                        "'");
  }

  // The rest of an opening tag, then its body.
  Status ParseTagBody(const Words& end, Body* body) {
    tokens_.SkipOperator(":");
    REPRISE_TRY(tokens_.Expect(TokenKind::kBlockEnd, "'%}'"));
    return ParseBody(end, body);
  }

  // A body and the word that ends it.
  Status ParseClosedBody(std::string_view end, Body* body) {
    REPRISE_TRY(ParseTagBody({end}, body));
    tokens_.Next();
    return OkStatus();
  }

  Status ParseTag(Body* body) {
    const Token& word = tokens_.current();
    if (word.kind != TokenKind::kName) return tokens_.Fail("tag name expected");
    if (word.text == "for") return ParseFor(body);
    if (word.text == "if") return ParseIf(body);
    if (word.text == "set") return ParseSet(body);
    if (word.text == "macro") return ParseMacro(body);
    if (word.text == "call") return ParseCallBlock(body);
    if (word.text == "generation") return ParseGeneration(body);
    if (word.text == "filter") return ParseFilterBlock(body);
    if (word.text == "with") return ParseWith(body);
    if (word.text == "print") return ParsePrint(body);
    if (word.text == "break" || word.text == "continue") {
      if (loops_.empty() || loops_.back() == nullptr) {
        return tokens_.Fail("'" + word.text + "' outside loop");
      }
      const auto kind = word.text == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue;
      body->push_back(std::make_unique<BareStmt>(kind, word.line));
      tokens_.Next();
      return OkStatus();
    }
    for (const char* known : {"include", "import", "from", "extends", "block", "autoescape"}) {
      if (word.text != known) continue;
      return Unimplemented("line " + std::to_string(word.line) + ": the tag '" + word.text +
                           "' is not supported in chat templates");
    }
    return tokens_.Fail("Encountered unknown tag '" + word.text + "'.");
  }

  Status ParseIf(Body* body) {
    auto statement = std::make_unique<IfStmt>(tokens_.line());
    do {
      tokens_.Next();  // if, elif
      ExprPtr test;
      REPRISE_ASSIGN(test, expressions_.ParseTuple(false));
      statement->branches.emplace_back(std::move(test), Body());
      REPRISE_TRY(ParseTagBody({"elif", "else", "endif"}, &statement->branches.back().second));
    } while (tokens_.current().IsName("elif"));
    if (tokens_.Next().text == "else") REPRISE_TRY(ParseClosedBody("endif", &statement->otherwise));
    body->push_back(std::move(statement));
    return OkStatus();
  }

  Status ParseFor(Body* body) {
    auto statement = std::make_unique<ForStmt>(tokens_.Next().line);
    REPRISE_ASSIGN(statement->target, expressions_.ParseTarget(false));
    if (Mentions(statement->target, "loop")) {
      return tokens_.Fail("Can't assign to special loop variable in for-loop target");
    }
    statement->test_target = statement->target;
    if (!tokens_.SkipName("in")) return tokens_.Fail("expected 'in'");
    REPRISE_ASSIGN(statement->iterable, expressions_.ParseTuple(false));
    if (tokens_.SkipName("if")) {
      REPRISE_ASSIGN(statement->test, expressions_.ParseExpression());
    }
    statement->recursive = tokens_.SkipName("recursive");
    if (statement->recursive) statement->uses_loop = true;
    loops_.push_back(statement.get());
    REPRISE_TRY(ParseTagBody({"else", "endfor"}, &statement->body));
    loops_.pop_back();
    if (tokens_.Next().text == "else") {
      REPRISE_TRY(ParseClosedBody("endfor", &statement->otherwise));
    }
    body->push_back(std::move(statement));
    return OkStatus();
  }

  static bool Mentions(const Target& target, std::string_view name) {
    if (target.kind != Target::Kind::kTuple) return target.name == name;
    return std::any_of(target.items.begin(), target.items.end(),
                       [&](const Target& item) { return Mentions(item, name); });
  }

  Status ParseSet(Body* body) {
    const uint32_t line = tokens_.Next().line;
    REPRISE_ASSIGN(Target target, expressions_.ParseTarget(true));
    if (tokens_.SkipOperator("=")) {
      auto statement = std::make_unique<SetStmt>(line);
      statement->target = std::move(target);
      REPRISE_ASSIGN(statement->value, expressions_.ParseTuple(true));
      body->push_back(std::move(statement));
      return OkStatus();
    }
    auto statement = std::make_unique<SetBlockStmt>(line);
    statement->target = std::move(target);
    REPRISE_ASSIGN(statement->filter, expressions_.ParseFilterChain(false));
    REPRISE_TRY(ParseClosedBody("endset", &statement->body));
    body->push_back(std::move(statement));
    return OkStatus();
  }

  Status ParseParameters(Function* function) {
    REPRISE_TRY(tokens_.ExpectOperator("("));
    while (!tokens_.current().IsOperator(")")) {
      Function::Parameter parameter;
      REPRISE_ASSIGN(parameter.name, tokens_.ExpectIdentifier());
      if (tokens_.SkipOperator("=")) {
        REPRISE_ASSIGN(parameter.fallback, expressions_.ParseExpression());
      } else if (!function->parameters.empty() && function->parameters.back().fallback != nullptr) {
        return tokens_.Fail("non-default argument follows default argument");
      }
      function->parameters.push_back(std::move(parameter));
      if (!tokens_.SkipOperator(",")) break;
    }
    return tokens_.ExpectOperator(")");
  }

  // The body of a macro or call block: a function, so loops outside it cannot be left from inside.
  Status ParseFunctionBody(std::string_view end, Function* function) {
    functions_.push_back(function);
    loops_.push_back(nullptr);
    REPRISE_TRY(ParseClosedBody(end, &function->body));
    loops_.pop_back();
    functions_.pop_back();
    // A parameter of that name takes the place of the special one.
    for (const Function::Parameter& parameter : function->parameters) {
      if (parameter.name == "caller") function->uses_caller = false;
      if (parameter.name == "varargs") function->uses_varargs = false;
      if (parameter.name == "kwargs") function->uses_kwargs = false;
    }
    return OkStatus();
  }

  Status ParseMacro(Body* body) {
    auto statement = std::make_unique<MacroStmt>(tokens_.Next().line);
    REPRISE_ASSIGN(statement->function.name, tokens_.ExpectIdentifier());
    REPRISE_TRY(ParseParameters(&statement->function));
    REPRISE_TRY(ParseFunctionBody("endmacro", &statement->function));
    body->push_back(std::move(statement));
    return OkStatus();
  }

  Status ParseCallBlock(Body* body) {
    auto statement = std::make_unique<CallBlockStmt>(tokens_.Next().line);
    statement->function.name = "caller";
    if (tokens_.current().IsOperator("(")) REPRISE_TRY(ParseParameters(&statement->function));
    REPRISE_ASSIGN(statement->call, expressions_.ParseExpression());
    if (statement->call->kind != Expr::Kind::kCall) return tokens_.Fail("expected call");
    REPRISE_TRY(ParseFunctionBody("endcall", &statement->function));
    body->push_back(std::move(statement));
    return OkStatus();
  }

  Status ParseGeneration(Body* body) {
    auto statement = std::make_unique<CallBlockStmt>(tokens_.Next().line);
    statement->function.name = "generation";
    REPRISE_TRY(ParseFunctionBody("endgeneration", &statement->function));
    body->push_back(std::move(statement));
    return OkStatus();
  }

  Status ParseFilterBlock(Body* body) {
    auto statement = std::make_unique<FilterBlockStmt>(tokens_.Next().line);
    REPRISE_ASSIGN(statement->filter, expressions_.ParseFilterChain(true));
    REPRISE_TRY(ParseClosedBody("endfilter", &statement->body));
    body->push_back(std::move(statement));
    return OkStatus();
  }

  Status ParseWith(Body* body) {
    auto statement = std::make_unique<WithStmt>(tokens_.Next().line);
    while (tokens_.current().kind != TokenKind::kBlockEnd) {
      if (!statement->bindings.empty()) REPRISE_TRY(tokens_.ExpectOperator(","));
      REPRISE_ASSIGN(Target target, expressions_.ParseTarget(false));
      REPRISE_TRY(tokens_.ExpectOperator("="));
      REPRISE_ASSIGN(ExprPtr value, expressions_.ParseExpression());
      statement->bindings.emplace_back(std::move(target), std::move(value));
    }
    REPRISE_TRY(ParseClosedBody("endwith", &statement->body));
    body->push_back(std::move(statement));
    return OkStatus();
  }

  Status ParsePrint(Body* body) {
    const uint32_t line = tokens_.Next().line;
    do {
      REPRISE_ASSIGN(ExprPtr value, expressions_.ParseExpression());
      body->push_back(std::make_unique<PrintStmt>(line, std::move(value)));
    } while (tokens_.SkipOperator(","));
    return OkStatus();
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  std::vector<ForStmt*> loops_;  // around the current place; null where a function begins
  std::vector<Function*> functions_;
  int nesting_ = 0;
};

}  // namespace

Result<std::unique_ptr<const Template>> ParseTemplate(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return InvalidArgument("the template has " + std::to_string(source.size()) +
                           " bytes; at most " + std::to_string(kSourceBytesMax) + " are supported");
  }
  if (!IsValidUtf8(source)) return InvalidArgument("the template is not valid UTF-8");
  REPRISE_ASSIGN(std::vector<Token> tokens, Tokenize(source));
  REPRISE_ASSIGN(std::unique_ptr<Template> parsed, Parser(std::move(tokens)).Run());
  REPRISE_TRY(ResolveScopes(parsed.get()));
  return std::unique_ptr<const Template>(std::move(parsed));
}

}  // namespace reprise::jinja
