// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/library/runtime.h"
#include "text/template/python/operators.h"
#include "text/template/python/value.h"

namespace reprise::jinja {

// The syntax tree of a template. The parser builds it, ResolveScopes (scope.h) fills in where the
// variables live, the interpreter walks it; after that it is immutable and shared by threads.

// Where a variable lives: slot `slot` of the frame `hops` functions out. Functions are the template
// itself, macros, call blocks and recursive loops; everything else shares its function's frame.
struct VariableRef {
  uint32_t hops = 0;
  uint32_t slot = 0;
};

// How a scope's variable begins its life each time the scope is entered.
struct SlotInit {
  enum class From : uint8_t {
    kNothing,  // it is set before it is read
    kContext,  // the template's variables, by name
    kOuter,    // a copy of the variable of the same name further out
  };
  uint32_t slot = 0;
  From from = From::kNothing;
  VariableRef outer;
  std::string name;
};

struct Scope {
  std::vector<SlotInit> inits;
};

struct Expr {
  enum class Kind : uint8_t {
    kConst,
    kName,
    kTuple,
    kList,
    kDict,
    kAnd,
    kOr,
    kNot,
    kNegate,
    kPositive,
    kBinary,
    kCompare,
    kConcat,
    kConditional,
    kAttribute,
    kItem,
    kSlice,
    kCall,
    kFilter,
    kTest,
  };
  Expr(Kind k, uint32_t l) : kind(k), line(l) {}
  virtual ~Expr() = default;

  const Kind kind;
  const uint32_t line;
  uint16_t height = 1;  // of the tree below; bounded by the parser
};
using ExprPtr = std::unique_ptr<Expr>;

struct ConstExpr final : Expr {
  ConstExpr(uint32_t at, Value v) : Expr(Kind::kConst, at), value(std::move(v)) {}
  const Value value;
};

struct NameExpr final : Expr {
  NameExpr(uint32_t at, std::string n) : Expr(Kind::kName, at), name(std::move(n)) {}
  const std::string name;
  VariableRef ref;
};

// A tuple, a list, a concatenation (a ~ b ~ c), `and`, `or`, and the operators with one operand.
struct ListExpr final : Expr {
  ListExpr(Kind k, uint32_t at, std::vector<ExprPtr> i) : Expr(k, at), items(std::move(i)) {}
  const std::vector<ExprPtr> items;
};

struct DictExpr final : Expr {
  explicit DictExpr(uint32_t at) : Expr(Kind::kDict, at) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> pairs;
};

struct BinaryExpr final : Expr {
  BinaryExpr(uint32_t at, BinaryOp o, ExprPtr l, ExprPtr r)
      : Expr(Kind::kBinary, at), op(o), left(std::move(l)), right(std::move(r)) {}
  const BinaryOp op;
  const ExprPtr left, right;
};

struct CompareExpr final : Expr {  // a < b <= c
  CompareExpr(uint32_t at, ExprPtr f) : Expr(Kind::kCompare, at), first(std::move(f)) {}
  const ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};

struct ConditionalExpr final : Expr {  // value if test else otherwise
  ConditionalExpr(uint32_t at, ExprPtr v, ExprPtr t, ExprPtr o)
      : Expr(Kind::kConditional, at),
        value(std::move(v)),
        test(std::move(t)),
        otherwise(std::move(o)) {}
  const ExprPtr value, test, otherwise;  // the last may be null
};

struct AttributeExpr final : Expr {
  AttributeExpr(uint32_t at, ExprPtr o, std::string n)
      : Expr(Kind::kAttribute, at), object(std::move(o)), name(std::move(n)) {}
  const ExprPtr object;
  const std::string name;
};

struct ItemExpr final : Expr {
  ItemExpr(uint32_t at, ExprPtr o, ExprPtr i)
      : Expr(Kind::kItem, at), object(std::move(o)), index(std::move(i)) {}
  const ExprPtr object, index;
};

struct SliceExpr final : Expr {  // object[start:stop:step]; each bound may be null
  explicit SliceExpr(uint32_t at) : Expr(Kind::kSlice, at) {}
  ExprPtr object, start, stop, step;
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *args and **kwargs, or null
};

struct CallExpr final : Expr {
  CallExpr(uint32_t at, ExprPtr c) : Expr(Kind::kCall, at), callee(std::move(c)) {}
  const ExprPtr callee;
  CallArguments arguments;
};

struct FilterExpr final : Expr {
  explicit FilterExpr(uint32_t at) : Expr(Kind::kFilter, at) {}
  ExprPtr subject;  // null in a filter block: what the block wrote
  std::string name;
  SubjectFunction function = nullptr;  // null if there is no such filter
  CallArguments arguments;
};

struct TestExpr final : Expr {
  explicit TestExpr(uint32_t at) : Expr(Kind::kTest, at) {}
  ExprPtr subject;
  std::string name;
  TestFunction function = nullptr;
  CallArguments arguments;
};

// What `set` and `for` assign to: a name, a namespace's attribute, or a tuple of targets.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  uint32_t line = 0;
  std::string name;
  std::string attribute;
  VariableRef ref;
  std::vector<Target> items;
};

struct Stmt {
  enum class Kind : uint8_t {
    kText,
    kPrint,
    kFor,
    kIf,
    kMacro,
    kCallBlock,
    kFilterBlock,
    kSet,
    kSetBlock,
    kWith,
    kBreak,
    kContinue,
  };
  Stmt(Kind k, uint32_t l) : kind(k), line(l) {}
  virtual ~Stmt() = default;

  const Kind kind;
  const uint32_t line;
};
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct TextStmt final : Stmt {
  TextStmt(uint32_t at, std::string t) : Stmt(Kind::kText, at), text(std::move(t)) {}
  const std::string text;
};

struct PrintStmt final : Stmt {
  PrintStmt(uint32_t at, ExprPtr v) : Stmt(Kind::kPrint, at), value(std::move(v)) {}
  const ExprPtr value;
};

struct BareStmt final : Stmt {  // break, continue
  using Stmt::Stmt;
};

struct IfStmt final : Stmt {
  explicit IfStmt(uint32_t at) : Stmt(Kind::kIf, at) {}
  std::vector<std::pair<ExprPtr, Body>> branches;  // if, elif...
  Body otherwise;
};

// The parameters and body of a macro or a call block: a function with a frame of its own.
struct Function {
  struct Parameter {
    std::string name;
    ExprPtr fallback;  // or null
    uint32_t slot = 0;
  };
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  Scope scope;
  uint32_t slot_count = 0;
  // The names that are there if the body uses them, and their slots.
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  uint32_t caller_slot = 0, varargs_slot = 0, kwargs_slot = 0;
};

struct MacroStmt final : Stmt {
  explicit MacroStmt(uint32_t at) : Stmt(Kind::kMacro, at) {}
  Function function;
  VariableRef ref;  // the variable that holds the macro
};

struct CallBlockStmt final : Stmt {  // also {% generation %}, which has no call
  explicit CallBlockStmt(uint32_t at) : Stmt(Kind::kCallBlock, at) {}
  Function function;
  ExprPtr call;  // a CallExpr, or null
};

struct ForStmt final : Stmt {
  explicit ForStmt(uint32_t at) : Stmt(Kind::kFor, at) {}
  Target target;
  ExprPtr iterable;
  ExprPtr test;  // or null
  bool recursive = false;
  bool uses_loop = false;  // the body mentions `loop`
  Body body, otherwise;
  Scope scope, otherwise_scope, test_scope;
  Target test_target;  // the target once more, as the test sees it
  uint32_t loop_slot = 0;
  uint32_t slot_count = 0;  // of its own frame, if recursive
};

struct FilterBlockStmt final : Stmt {
  explicit FilterBlockStmt(uint32_t at) : Stmt(Kind::kFilterBlock, at) {}
  ExprPtr filter;  // a chain of FilterExpr; the innermost has no subject
  Body body;
  Scope scope;
};

struct SetStmt final : Stmt {
  explicit SetStmt(uint32_t at) : Stmt(Kind::kSet, at) {}
  Target target;
  ExprPtr value;
};

struct SetBlockStmt final : Stmt {
  explicit SetBlockStmt(uint32_t at) : Stmt(Kind::kSetBlock, at) {}
  Target target;
  ExprPtr filter;  // or null
  Body body;
  Scope scope;
};

struct WithStmt final : Stmt {
  explicit WithStmt(uint32_t at) : Stmt(Kind::kWith, at) {}
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Body body;
  Scope scope;
};

struct Template {
  Body body;
  Scope scope;
  uint32_t slot_count = 0;
};

}  // namespace reprise::jinja
