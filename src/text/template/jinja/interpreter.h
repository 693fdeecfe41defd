// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/template/jinja/ast.h"
#include "text/template/library/runtime.h"
#include "text/template/python/value.h"

namespace reprise::jinja {

// The variables a template is rendered with.
using Variables = std::unordered_map<std::string, Value>;

// The variables of one activation of a function. Macros hold the frame they were defined in.
class Frame final : public Object {
 public:
  Frame(Ref<Frame> outer, uint32_t slot_count)
      : Object(Type::kOther), outer_(std::move(outer)), slots_(slot_count) {}
  std::string type_name() const override { return "frame"; }
  void Clear() override { slots_.assign(slots_.size(), Value()); }
  Value& At(VariableRef ref) {
    Frame* frame = this;
    for (uint32_t i = 0; i < ref.hops; ++i) frame = frame->outer_.get();
    return frame->slots_[ref.slot];
  }
  Value& At(uint32_t slot) { return slots_[slot]; }

  bool kept = false;  // in the render's care, because a macro holds it

 private:
  const Ref<Frame> outer_;
  std::vector<Value> slots_;
};

// Walks the tree of a template once. Errors carry the line they happened on.
//
// The recursion of Eval and Exec follows the tree, and the calls of macros; its depth is bounded by
// the budget. Files: interpreter.cc has statements and calls, evaluate.cc expressions.
class Interpreter {
 public:
  // REQUIRES: all three outlive it.
  Interpreter(const Template& tree, const Variables& variables, Runtime* runtime)
      : template_(tree), variables_(variables), runtime_(*runtime) {}

  // The text, and which of it is data.
  Result<TracedText> Run();

  // Called by the values that stand for macros and recursive loops.
  Result<Value> CallFunction(const Function& function, const Ref<Frame>& closure,
                             Arguments* arguments);
  Result<Value> CallLoop(const ForStmt& loop, const Ref<Frame>& closure, const Value& iterable,
                         int depth);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // Statements, in interpreter.cc. `flow` says whether a break or continue is under way.
  Status Exec(const Body& body, const Ref<Frame>& frame, Flow* flow);
  Status Exec(const Stmt& statement, const Ref<Frame>& frame, Flow* flow);
  Status ExecNode(const Stmt& statement, const Ref<Frame>& frame, Flow* flow);
  Status ExecIf(const IfStmt& statement, const Ref<Frame>& frame, Flow* flow);
  Status ExecFor(const ForStmt& statement, const Ref<Frame>& frame, Flow* flow);
  Status ExecCallBlock(const CallBlockStmt& statement, const Ref<Frame>& frame);
  Status ExecSet(const SetStmt& statement, const Ref<Frame>& frame);
  Result<Value> EvalBlock(const Scope& scope, const Body& body, const Expr* filter,
                          const Ref<Frame>& frame, Flow* flow);
  Status ExecSetBlock(const SetBlockStmt& statement, const Ref<Frame>& frame, Flow* flow);
  Status ExecFilterBlock(const FilterBlockStmt& statement, const Ref<Frame>& frame, Flow* flow);
  Status ExecWith(const WithStmt& statement, const Ref<Frame>& frame, Flow* flow);
  Status RunLoop(const ForStmt& statement, const Ref<Frame>& closure, const Ref<Frame>& frame,
                 const Value& iterable, int depth, Flow* flow);
  Result<bool> PassesTest(const ForStmt& statement, const Ref<Frame>& frame, const Value& item);
  Status Bind(const Function& function, const Ref<Frame>& frame, Arguments* arguments);
  Status EnterScope(const Scope& scope, const Ref<Frame>& frame);
  Status CheckAssignable(const Target& target, const Ref<Frame>& frame);
  Status Assign(const Target& target, Value value, const Ref<Frame>& frame);
  Result<Value> MakeMacro(const Function& function, const Ref<Frame>& frame);
  Result<Ref<Frame>> NewFrame(const Ref<Frame>& outer, uint32_t slot_count);
  Value Resolve(const std::string& name) const;
  Status PayForOutput(size_t bytes);
  Status Print(const Value& value);

  // Expressions, in evaluate.cc.
  Result<Value> Eval(const Expr& expr, const Ref<Frame>& frame);
  Result<Value> EvalNode(const Expr& expr, const Ref<Frame>& frame);
  Result<Value::Items> EvalAll(const std::vector<ExprPtr>& exprs, const Ref<Frame>& frame);
  Result<Value> EvalOptional(const ExprPtr& expr, const Ref<Frame>& frame);
  Result<Value> EvalJunction(const ListExpr& expr, const Ref<Frame>& frame);
  Result<Value> EvalDict(const DictExpr& expr, const Ref<Frame>& frame);
  Result<Value> EvalCompare(const CompareExpr& expr, const Ref<Frame>& frame);
  Result<Value> EvalConcat(const ListExpr& expr, const Ref<Frame>& frame);
  Result<Value> EvalConditional(const ConditionalExpr& expr, const Ref<Frame>& frame);
  Result<Value> EvalSlice(const SliceExpr& expr, const Ref<Frame>& frame);
  Result<Value> EvalCall(const CallExpr& expr, const Ref<Frame>& frame, Value caller);
  Result<Value> EvalFilter(const FilterExpr& expr, const Ref<Frame>& frame);
  Result<Value> EvalTest(const TestExpr& expr, const Ref<Frame>& frame);
  Status EvalArguments(const CallArguments& exprs, const Ref<Frame>& frame, Arguments* arguments);

  const Template& template_;
  const Variables& variables_;
  Runtime& runtime_;
  TracedText* out_ = nullptr;     // where text goes: the result, or what a block captures
  const Value* block_ = nullptr;  // what a filter block wrote
  int depth_ = 0;
  uint32_t error_line_ = 0;  // of the innermost node that failed
};

}  // namespace reprise::jinja
