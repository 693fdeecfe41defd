// SPDX-License-Identifier: Apache-2.0
#include "text/template/jinja/scope.h"

#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "text/template/python/repr.h"

namespace reprise::jinja {
namespace {

// A frame in the making.
struct FunctionLevel {
  uint32_t depth = 0;
  uint32_t slot_count = 0;
};

// A scope in the making.
class ScopeLevel {
 public:
  ScopeLevel(const ScopeLevel* parent, FunctionLevel* function, Scope* scope)
      : parent_(parent), function_(function), scope_(scope) {}

  FunctionLevel* function() const { return function_; }

  // Where `name` lives, seen from this scope.
  std::optional<VariableRef> Find(std::string_view name) const {
    for (const ScopeLevel* level = this; level != nullptr; level = level->parent_) {
      const auto found = level->slots_.find(name);
      if (found == level->slots_.end()) continue;
      return VariableRef{function_->depth - level->function_->depth, found->second};
    }
    return std::nullopt;
  }

  void Load(std::string_view name) {
    if (!Find(name)) Define(name, SlotInit::From::kContext);
  }

  // `conditional`: inside an `if` of this scope, so that it may be read without having been set.
  void Store(std::string_view name, bool conditional) {
    if (!stored_.insert(name).second || slots_.contains(name)) return;
    if (parent_ != nullptr) {
      if (const std::optional<VariableRef> outer = FindOutside(name)) {
        Define(name, SlotInit::From::kOuter, *outer);
        return;
      }
    }
    Define(name, conditional ? SlotInit::From::kContext : SlotInit::From::kNothing);
  }

  // A variable that the interpreter sets on entry.
  uint32_t Declare(std::string_view name) {
    stored_.insert(name);
    const auto found = slots_.find(name);
    if (found != slots_.end()) return found->second;
    const uint32_t slot = function_->slot_count++;
    slots_.emplace(name, slot);
    return slot;
  }

 private:
  std::optional<VariableRef> FindOutside(std::string_view name) const {
    std::optional<VariableRef> found = parent_->Find(name);
    if (found) found->hops += function_->depth - parent_->function_->depth;
    return found;
  }

  void Define(std::string_view name, SlotInit::From from, VariableRef outer = {}) {
    SlotInit init;
    init.slot = function_->slot_count++;
    init.from = from;
    init.outer = outer;
    init.name = name;
    slots_.emplace(name, init.slot);
    scope_->inits.push_back(std::move(init));
  }

  const ScopeLevel* const parent_;
  FunctionLevel* const function_;
  Scope* const scope_;
  std::unordered_map<std::string_view, uint32_t> slots_;
  std::unordered_set<std::string_view> stored_;
};

template <typename Visit>
void ForEachArgument(CallArguments* arguments, const Visit& visit) {
  for (ExprPtr& e : arguments->positional) visit(e.get());
  for (auto& [unused, e] : arguments->named) visit(e.get());
  visit(arguments->star.get());
  visit(arguments->star_star.get());
}

// Calls visit(child) for each direct child; a child may be null.
template <typename Visit>
void ForEachChild(Expr* expr, const Visit& visit) {
  switch (expr->kind) {
    case Expr::Kind::kConst:
    case Expr::Kind::kName:
      return;
    case Expr::Kind::kTuple:
    case Expr::Kind::kList:
    case Expr::Kind::kConcat:
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
    case Expr::Kind::kNot:
    case Expr::Kind::kNegate:
    case Expr::Kind::kPositive:
      for (const ExprPtr& e : static_cast<ListExpr*>(expr)->items) visit(e.get());
      return;
    case Expr::Kind::kDict:
      for (auto& [key, value] : static_cast<DictExpr*>(expr)->pairs) {
        visit(key.get());
        visit(value.get());
      }
      return;
    case Expr::Kind::kBinary:
      visit(static_cast<BinaryExpr*>(expr)->left.get());
      visit(static_cast<BinaryExpr*>(expr)->right.get());
      return;
    case Expr::Kind::kCompare:
      visit(static_cast<CompareExpr*>(expr)->first.get());
      for (auto& [unused, e] : static_cast<CompareExpr*>(expr)->rest) visit(e.get());
      return;
    case Expr::Kind::kConditional: {
      auto* condition = static_cast<ConditionalExpr*>(expr);
      visit(condition->test.get());
      visit(condition->value.get());
      visit(condition->otherwise.get());
      return;
    }
    case Expr::Kind::kAttribute:
      visit(static_cast<AttributeExpr*>(expr)->object.get());
      return;
    case Expr::Kind::kItem:
      visit(static_cast<ItemExpr*>(expr)->object.get());
      visit(static_cast<ItemExpr*>(expr)->index.get());
      return;
    case Expr::Kind::kSlice: {
      auto* slice = static_cast<SliceExpr*>(expr);
      for (const ExprPtr* e : {&slice->object, &slice->start, &slice->stop, &slice->step}) {
        visit(e->get());
      }
      return;
    }
    case Expr::Kind::kCall:
      visit(static_cast<CallExpr*>(expr)->callee.get());
      ForEachArgument(&static_cast<CallExpr*>(expr)->arguments, visit);
      return;
    case Expr::Kind::kFilter:
      visit(static_cast<FilterExpr*>(expr)->subject.get());
      ForEachArgument(&static_cast<FilterExpr*>(expr)->arguments, visit);
      return;
    case Expr::Kind::kTest:
      visit(static_cast<TestExpr*>(expr)->subject.get());
      ForEachArgument(&static_cast<TestExpr*>(expr)->arguments, visit);
      return;
  }
}

// First pass over a scope: what it reads and sets. Bodies that are scopes of their own are left
// out.
class Collector {
 public:
  explicit Collector(ScopeLevel* level) : level_(*level) {}

  void Visit(const Expr* expr) {
    if (expr == nullptr) return;
    if (expr->kind == Expr::Kind::kName) level_.Load(static_cast<const NameExpr*>(expr)->name);
    ForEachChild(const_cast<Expr*>(expr), [this](Expr* child) { Visit(child); });
  }

  void Visit(const Target& target) {
    if (target.kind == Target::Kind::kName) level_.Store(target.name, conditional_);
    if (target.kind == Target::Kind::kAttribute) level_.Load(target.name);
    for (const Target& item : target.items) Visit(item);
  }

  void Visit(const Body& body) {
    for (const StmtPtr& statement : body) Visit(*statement);
  }

 private:
  void Visit(const Stmt& statement) {
    switch (statement.kind) {
      case Stmt::Kind::kText:
      case Stmt::Kind::kBreak:
      case Stmt::Kind::kContinue:
        return;
      case Stmt::Kind::kPrint:
        return Visit(static_cast<const PrintStmt&>(statement).value.get());
      case Stmt::Kind::kFor:
        return Visit(static_cast<const ForStmt&>(statement).iterable.get());
      case Stmt::Kind::kIf:
        return VisitIf(static_cast<const IfStmt&>(statement));
      case Stmt::Kind::kMacro:
        return level_.Store(static_cast<const MacroStmt&>(statement).function.name, conditional_);
      case Stmt::Kind::kCallBlock:
        return Visit(static_cast<const CallBlockStmt&>(statement).call.get());
      case Stmt::Kind::kFilterBlock:
        return Visit(static_cast<const FilterBlockStmt&>(statement).filter.get());
      case Stmt::Kind::kSet:
        Visit(static_cast<const SetStmt&>(statement).value.get());
        return Visit(static_cast<const SetStmt&>(statement).target);
      case Stmt::Kind::kSetBlock:
        return Visit(static_cast<const SetBlockStmt&>(statement).target);
      case Stmt::Kind::kWith:
        for (const auto& [unused, value] : static_cast<const WithStmt&>(statement).bindings) {
          Visit(value.get());
        }
        return;
    }
  }

  void VisitIf(const IfStmt& statement) {
    Visit(statement.branches.front().first.get());
    const bool before = std::exchange(conditional_, true);
    for (const auto& [test, body] : statement.branches) {
      Visit(test.get());
      Visit(body);
    }
    Visit(statement.otherwise);
    conditional_ = before;
  }

  ScopeLevel& level_;
  bool conditional_ = false;
};

// Second pass: writes down where each variable lives, and opens the scopes inside.
class Resolver {
 public:
  Status ResolveBody(const Body& body, const ScopeLevel& level, bool soft) {
    for (const StmtPtr& statement : body) REPRISE_TRY(Resolve(statement.get(), level, soft));
    return OkStatus();
  }

 private:
  // `soft`: an unknown filter fails only when it is reached.
  Status Resolve(Expr* expr, const ScopeLevel& level, bool soft) {
    if (expr == nullptr) return OkStatus();
    if (expr->kind == Expr::Kind::kName) {
      auto* name = static_cast<NameExpr*>(expr);
      name->ref = level.Find(name->name).value_or(VariableRef());
    }
    if (expr->kind == Expr::Kind::kConditional) soft = true;
    if (!soft && expr->kind == Expr::Kind::kFilter) {
      const auto* filter = static_cast<FilterExpr*>(expr);
      if (filter->function == nullptr) return Unknown("filter", filter->name, filter->line);
    }
    if (!soft && expr->kind == Expr::Kind::kTest) {
      const auto* test = static_cast<TestExpr*>(expr);
      if (test->function == nullptr) return Unknown("test", test->name, test->line);
    }
    Status status;
    ForEachChild(expr, [&](Expr* child) {
      if (status.ok()) status = Resolve(child, level, soft);
    });
    return status;
  }

  static Status Unknown(const char* what, const std::string& name, uint32_t line) {
    return Unimplemented("line " + std::to_string(line) + ": No " + what + " named " + Repr(name) +
                         ".");
  }

  void Resolve(Target* target, const ScopeLevel& level) {
    if (target->kind != Target::Kind::kTuple) {
      target->ref = level.Find(target->name).value_or(VariableRef());
    }
    for (Target& item : target->items) Resolve(&item, level);
  }

  // Names that a loop or a `with` sets on entry.
  void Declare(Target* target, ScopeLevel* level) {
    if (target->kind == Target::Kind::kName) {
      target->ref = VariableRef{0, level->Declare(target->name)};
    }
    for (Target& item : target->items) Declare(&item, level);
  }

  Status Resolve(Stmt* statement, const ScopeLevel& level, bool soft) {
    switch (statement->kind) {
      case Stmt::Kind::kText:
      case Stmt::Kind::kBreak:
      case Stmt::Kind::kContinue:
        return OkStatus();
      case Stmt::Kind::kPrint:
        return Resolve(static_cast<PrintStmt*>(statement)->value.get(), level, soft);
      case Stmt::Kind::kFor:
        return ResolveFor(static_cast<ForStmt*>(statement), level, soft);
      case Stmt::Kind::kIf: {
        auto* branch = static_cast<IfStmt*>(statement);
        for (auto& [test, body] : branch->branches) {
          REPRISE_TRY(Resolve(test.get(), level, true));
          REPRISE_TRY(ResolveBody(body, level, true));
        }
        return ResolveBody(branch->otherwise, level, true);
      }
      case Stmt::Kind::kMacro: {
        auto* macro = static_cast<MacroStmt*>(statement);
        macro->ref = level.Find(macro->function.name).value_or(VariableRef());
        return ResolveFunction(&macro->function, level);
      }
      case Stmt::Kind::kCallBlock: {
        auto* call = static_cast<CallBlockStmt*>(statement);
        REPRISE_TRY(Resolve(call->call.get(), level, soft));
        return ResolveFunction(&call->function, level);
      }
      case Stmt::Kind::kSet: {
        auto* set = static_cast<SetStmt*>(statement);
        Resolve(&set->target, level);
        return Resolve(set->value.get(), level, soft);
      }
      case Stmt::Kind::kSetBlock: {
        auto* set = static_cast<SetBlockStmt*>(statement);
        Resolve(&set->target, level);
        return ResolveBlock(set->filter.get(), set->body, &set->scope, level);
      }
      case Stmt::Kind::kFilterBlock: {
        auto* block = static_cast<FilterBlockStmt*>(statement);
        return ResolveBlock(block->filter.get(), block->body, &block->scope, level);
      }
      case Stmt::Kind::kWith:
        return ResolveWith(static_cast<WithStmt*>(statement), level, soft);
    }
    return OkStatus();
  }

  Status ResolveBlock(Expr* filter, const Body& body, Scope* scope, const ScopeLevel& level) {
    ScopeLevel inner(&level, level.function(), scope);
    Collector collector(&inner);
    collector.Visit(filter);
    collector.Visit(body);
    REPRISE_TRY(Resolve(filter, inner, false));
    return ResolveBody(body, inner, false);
  }

  Status ResolveWith(WithStmt* with, const ScopeLevel& level, bool soft) {
    ScopeLevel inner(&level, level.function(), &with->scope);
    for (auto& [target, value] : with->bindings) {
      REPRISE_TRY(Resolve(value.get(), level, soft));
      Declare(&target, &inner);
    }
    Collector(&inner).Visit(with->body);
    return ResolveBody(with->body, inner, false);
  }

  Status ResolveFor(ForStmt* loop, const ScopeLevel& level, bool soft) {
    REPRISE_TRY(Resolve(loop->iterable.get(), level, soft));
    FunctionLevel own{level.function()->depth + 1, 0};
    FunctionLevel* const function = loop->recursive ? &own : level.function();

    ScopeLevel test(&level, function, &loop->test_scope);
    Declare(&loop->test_target, &test);
    Collector(&test).Visit(loop->test.get());
    REPRISE_TRY(Resolve(loop->test.get(), test, false));

    ScopeLevel inner(&level, function, &loop->scope);
    if (loop->uses_loop) loop->loop_slot = inner.Declare("loop");
    Declare(&loop->target, &inner);
    Collector(&inner).Visit(loop->body);
    REPRISE_TRY(ResolveBody(loop->body, inner, false));

    ScopeLevel otherwise(&level, function, &loop->otherwise_scope);
    Collector(&otherwise).Visit(loop->otherwise);
    REPRISE_TRY(ResolveBody(loop->otherwise, otherwise, false));
    loop->slot_count = own.slot_count;
    return OkStatus();
  }

  Status ResolveFunction(Function* function, const ScopeLevel& level) {
    FunctionLevel own{level.function()->depth + 1, 0};
    ScopeLevel inner(&level, &own, &function->scope);
    for (Function::Parameter& parameter : function->parameters) {
      parameter.slot = inner.Declare(parameter.name);
    }
    if (function->uses_caller) function->caller_slot = inner.Declare("caller");
    if (function->uses_kwargs) function->kwargs_slot = inner.Declare("kwargs");
    if (function->uses_varargs) function->varargs_slot = inner.Declare("varargs");
    Collector collector(&inner);
    for (const auto& parameter : function->parameters) collector.Visit(parameter.fallback.get());
    collector.Visit(function->body);
    for (const auto& parameter : function->parameters) {
      REPRISE_TRY(Resolve(parameter.fallback.get(), inner, false));
    }
    REPRISE_TRY(ResolveBody(function->body, inner, false));
    function->slot_count = own.slot_count;
    return OkStatus();
  }
};

}  // namespace

Status ResolveScopes(Template* tree) {
  FunctionLevel function;
  ScopeLevel level(nullptr, &function, &tree->scope);
  Collector(&level).Visit(tree->body);
  REPRISE_TRY(Resolver().ResolveBody(tree->body, level, false));
  tree->slot_count = function.slot_count;
  return OkStatus();
}

}  // namespace reprise::jinja
