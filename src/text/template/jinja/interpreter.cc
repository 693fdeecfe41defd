// SPDX-License-Identifier: Apache-2.0
#include "text/template/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "text/template/jinja/depth_guard.h"
#include "text/template/jinja/loop.h"
#include "text/template/library/attributes.h"
#include "text/template/python/iterator.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {
namespace {

// A macro as a value. It holds the frame it was defined in.
class Macro final : public Object {
 public:
  Macro(Interpreter* interpreter, const Function* function, Ref<Frame> closure)
      : Object(Type::kMacro),
        interpreter_(interpreter),
        function_(function),
        closure_(std::move(closure)) {}
  std::string type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Value Attribute(std::string_view name) const override {
    return name == "name" ? Value::View(function_->name, Origin::kTemplate) : Value();
  }
  Result<Value> Call(Runtime*, Arguments* arguments) override {
    return interpreter_->CallFunction(*function_, closure_, arguments);
  }

 private:
  Interpreter* const interpreter_;
  const Function* const function_;
  const Ref<Frame> closure_;
};

// Redirects the output of a block into a text of its own.
class Capture {
 public:
  explicit Capture(TracedText** out) : out_(out), before_(std::exchange(*out, &text_)) {}
  ~Capture() { *out_ = before_; }
  TracedText Take() { return std::move(text_); }

 private:
  TracedText text_;
  TracedText** const out_;
  TracedText* const before_;
};

// A template may raise a message that quotes the conversation: it need not be as long as that.
Status Shortened(const Status& status) {
  constexpr size_t kMessageBytesMax = 1000;
  if (status.message().size() <= kMessageBytesMax) return status;
  size_t end = kMessageBytesMax;
  while (end > 0 && (static_cast<unsigned char>(status.message()[end]) & 0xC0) == 0x80) --end;
  return Status(status.code(), status.message().substr(0, end) + "...");
}

}  // namespace

Result<TracedText> Interpreter::Run() {
  Capture result(&out_);
  Flow flow = Flow::kNormal;
  Result<Ref<Frame>> frame = NewFrame(Ref<Frame>(), template_.slot_count);
  Status status = frame.status();
  if (frame.ok()) status = EnterScope(template_.scope, *frame);
  if (status.ok()) status = Exec(template_.body, *frame, &flow);
  if (status.ok()) return result.Take();
  status = Shortened(status);
  return error_line_ == 0 ? status : status.Annotate("line " + std::to_string(error_line_));
}

Result<Ref<Frame>> Interpreter::NewFrame(const Ref<Frame>& outer, uint32_t slot_count) {
  // A frame is soon gone again, so it costs time rather than memory.
  REPRISE_TRY(runtime_.budget.Spend(1 + slot_count / 4));
  return Ref<Frame>(new Frame(outer, slot_count));
}

Value Interpreter::Resolve(const std::string& name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? FindGlobal(name) : found->second;
}

Status Interpreter::EnterScope(const Scope& scope, const Ref<Frame>& frame) {
  REPRISE_TRY(runtime_.budget.Spend(scope.inits.size()));
  for (const SlotInit& init : scope.inits) {
    Value value;
    if (init.from == SlotInit::From::kContext) value = Resolve(init.name);
    if (init.from == SlotInit::From::kOuter) value = frame->At(init.outer);
    frame->At(init.slot) = std::move(value);
  }
  return OkStatus();
}

Status Interpreter::PayForOutput(size_t bytes) {
  REPRISE_TRY(runtime_.budget.CheckOutput(out_->size() + bytes));
  return runtime_.budget.Allocate(bytes + sizeof(TextRange));
}

Status Interpreter::Print(const Value& value) {
  if (value.is_string()) {
    REPRISE_TRY(PayForOutput(value.as_string().size()));
    value.AppendTo(out_);
    return OkStatus();
  }
  REPRISE_ASSIGN(const TracedText text, Str(&runtime_.budget, value));
  REPRISE_TRY(PayForOutput(text.size()));
  out_->Append(text);
  return OkStatus();
}

Status Interpreter::Exec(const Body& body, const Ref<Frame>& frame, Flow* flow) {
  for (const StmtPtr& statement : body) {
    REPRISE_TRY(Exec(*statement, frame, flow));
    if (*flow != Flow::kNormal) break;
  }
  return OkStatus();
}

Status Interpreter::Exec(const Stmt& statement, const Ref<Frame>& frame, Flow* flow) {
  const DepthGuard guard(&depth_);
  Status status = guard.Enter(&runtime_.budget);
  if (status.ok()) status = ExecNode(statement, frame, flow);
  if (!status.ok() && error_line_ == 0) error_line_ = statement.line;
  return status;
}

Status Interpreter::ExecNode(const Stmt& statement, const Ref<Frame>& frame, Flow* flow) {
  switch (statement.kind) {
    case Stmt::Kind::kText: {
      const std::string_view text = static_cast<const TextStmt&>(statement).text;
      REPRISE_TRY(PayForOutput(text.size()));
      out_->Append(text, Origin::kTemplate);
      return OkStatus();
    }
    case Stmt::Kind::kPrint: {
      REPRISE_ASSIGN(const Value value,
                     Eval(*static_cast<const PrintStmt&>(statement).value, frame));
      return Print(value);
    }
    case Stmt::Kind::kFor:
      return ExecFor(static_cast<const ForStmt&>(statement), frame, flow);
    case Stmt::Kind::kIf:
      return ExecIf(static_cast<const IfStmt&>(statement), frame, flow);
    case Stmt::Kind::kMacro: {
      const auto& macro = static_cast<const MacroStmt&>(statement);
      REPRISE_ASSIGN(Value value, MakeMacro(macro.function, frame));
      frame->At(macro.ref) = std::move(value);
      return OkStatus();
    }
    case Stmt::Kind::kCallBlock:
      return ExecCallBlock(static_cast<const CallBlockStmt&>(statement), frame);
    case Stmt::Kind::kFilterBlock:
      return ExecFilterBlock(static_cast<const FilterBlockStmt&>(statement), frame, flow);
    case Stmt::Kind::kSet:
      return ExecSet(static_cast<const SetStmt&>(statement), frame);
    case Stmt::Kind::kSetBlock:
      return ExecSetBlock(static_cast<const SetBlockStmt&>(statement), frame, flow);
    case Stmt::Kind::kWith:
      return ExecWith(static_cast<const WithStmt&>(statement), frame, flow);
    case Stmt::Kind::kBreak:
      *flow = Flow::kBreak;
      return OkStatus();
    case Stmt::Kind::kContinue:
      *flow = Flow::kContinue;
      return OkStatus();
  }
  return OkStatus();
}

Status Interpreter::ExecIf(const IfStmt& statement, const Ref<Frame>& frame, Flow* flow) {
  for (const auto& [test, body] : statement.branches) {
    REPRISE_ASSIGN(const Value passed, Eval(*test, frame));
    if (Truth(passed)) return Exec(body, frame, flow);
  }
  return Exec(statement.otherwise, frame, flow);
}

Status Interpreter::ExecFor(const ForStmt& statement, const Ref<Frame>& frame, Flow* flow) {
  REPRISE_ASSIGN(const Value iterable, Eval(*statement.iterable, frame));
  if (statement.recursive) {
    REPRISE_ASSIGN(const Value text, CallLoop(statement, frame, iterable, 0));
    return Print(text);
  }
  return RunLoop(statement, Ref<Frame>(), frame, iterable, 0, flow);
}

Result<Value> Interpreter::CallLoop(const ForStmt& loop, const Ref<Frame>& closure,
                                    const Value& iterable, int depth) {
  REPRISE_ASSIGN(const Ref<Frame> frame, NewFrame(closure, loop.slot_count));
  Capture capture(&out_);
  Flow flow = Flow::kNormal;
  REPRISE_TRY(RunLoop(loop, closure, frame, iterable, depth, &flow));
  return Value::Traced(capture.Take());
}

Result<bool> Interpreter::PassesTest(const ForStmt& statement, const Ref<Frame>& frame,
                                     const Value& item) {
  if (statement.test == nullptr) return true;
  REPRISE_TRY(Assign(statement.test_target, item, frame));
  REPRISE_ASSIGN(const Value passed, Eval(*statement.test, frame));
  return Truth(passed);
}

// Items are taken, and the test of `for x in y if test` is asked, before each round, so they see
// what the rounds before did. Only where the body uses `loop`, which must know what comes, all are
// taken at the start.
Status Interpreter::RunLoop(const ForStmt& statement, const Ref<Frame>& closure,
                            const Ref<Frame>& frame, const Value& iterable, int depth, Flow* flow) {
  REPRISE_ASSIGN(Ref<Iterator> items, MakeIterator(&runtime_.budget, iterable));
  if (statement.test != nullptr) REPRISE_TRY(EnterScope(statement.test_scope, frame));
  Ref<Loop> loop;
  if (statement.uses_loop) {
    REPRISE_ASSIGN(const Value::Items all, Drain(&runtime_.budget, items.get()));
    Value::Items passed;
    for (const Value& item : all) {
      REPRISE_ASSIGN(const bool passes, PassesTest(statement, frame, item));
      if (passes) passed.push_back(item);
    }
    REPRISE_TRY(runtime_.budget.Allocate(128));
    loop = Ref<Loop>(new Loop(this, &statement, closure, std::move(passed), depth));
  }
  bool completed_any = false;
  Value item;
  for (size_t round = 0;; ++round) {
    REPRISE_TRY(runtime_.budget.Spend(1));
    if (loop) {
      if (round == loop->items().size()) break;
      item = loop->items()[round];
    } else {
      REPRISE_ASSIGN(const bool more, items->Next(&item));
      if (!more) break;
      REPRISE_ASSIGN(const bool passes, PassesTest(statement, frame, item));
      if (!passes) continue;
    }
    REPRISE_TRY(EnterScope(statement.scope, frame));
    if (loop) {
      loop->set_index(round);
      frame->At(statement.loop_slot) = Value::OfObject(Ref<Object>(loop.get()));
    }
    REPRISE_TRY(Assign(statement.target, std::move(item), frame));
    Flow inner = Flow::kNormal;
    REPRISE_TRY(Exec(statement.body, frame, &inner));
    // As in Jinja: a round that was left early does not count for `else`.
    if (inner == Flow::kNormal) completed_any = true;
    if (inner == Flow::kBreak) break;
  }
  if (loop) frame->At(statement.loop_slot) = Value();
  if (completed_any || statement.otherwise.empty()) return OkStatus();
  REPRISE_TRY(EnterScope(statement.otherwise_scope, frame));
  return Exec(statement.otherwise, frame, flow);
}

Result<Value> Interpreter::MakeMacro(const Function& function, const Ref<Frame>& frame) {
  if (!frame->kept) {
    // The frame may come to hold the macro that holds it: the render undoes that at its end.
    REPRISE_ASSIGN(const Value unused, runtime_.Keep(Ref<Object>(frame.get())));
    frame->kept = true;
  }
  REPRISE_TRY(runtime_.budget.Allocate(128));
  return Value::OfObject(Ref<Object>(new Macro(this, &function, frame)));
}

Status Interpreter::ExecCallBlock(const CallBlockStmt& statement, const Ref<Frame>& frame) {
  if (statement.call == nullptr) {  // a generation block: its body, as a function without arguments
    Arguments none;
    REPRISE_ASSIGN(const Value text, CallFunction(statement.function, frame, &none));
    return Print(text);
  }
  REPRISE_ASSIGN(Value caller, MakeMacro(statement.function, frame));
  REPRISE_ASSIGN(const Value text,
                 EvalCall(static_cast<const CallExpr&>(*statement.call), frame, std::move(caller)));
  return Print(text);
}

Status Interpreter::ExecSet(const SetStmt& statement, const Ref<Frame>& frame) {
  REPRISE_TRY(CheckAssignable(statement.target, frame));
  REPRISE_ASSIGN(Value value, Eval(*statement.value, frame));
  return Assign(statement.target, std::move(value), frame);
}

// What a block writes, through its filter if it has one; nothing if it was left early.
Result<Value> Interpreter::EvalBlock(const Scope& scope, const Body& body, const Expr* filter,
                                     const Ref<Frame>& frame, Flow* flow) {
  REPRISE_TRY(EnterScope(scope, frame));
  Value text;
  {
    Capture capture(&out_);
    REPRISE_TRY(Exec(body, frame, flow));
    text = Value::Traced(capture.Take());
  }
  if (*flow != Flow::kNormal) return Value();
  if (filter == nullptr) return text;
  const Value* before = std::exchange(block_, &text);
  Result<Value> filtered = Eval(*filter, frame);
  block_ = before;
  return filtered;
}

Status Interpreter::ExecSetBlock(const SetBlockStmt& statement, const Ref<Frame>& frame,
                                 Flow* flow) {
  REPRISE_ASSIGN(Value value,
                 EvalBlock(statement.scope, statement.body, statement.filter.get(), frame, flow));
  if (*flow != Flow::kNormal) return OkStatus();
  REPRISE_TRY(CheckAssignable(statement.target, frame));
  return Assign(statement.target, std::move(value), frame);
}

Status Interpreter::ExecFilterBlock(const FilterBlockStmt& statement, const Ref<Frame>& frame,
                                    Flow* flow) {
  REPRISE_ASSIGN(const Value value,
                 EvalBlock(statement.scope, statement.body, statement.filter.get(), frame, flow));
  return *flow == Flow::kNormal ? Print(value) : OkStatus();
}

Status Interpreter::ExecWith(const WithStmt& statement, const Ref<Frame>& frame, Flow* flow) {
  REPRISE_TRY(EnterScope(statement.scope, frame));
  for (const auto& [target, expr] : statement.bindings) {
    REPRISE_ASSIGN(Value value, Eval(*expr, frame));
    REPRISE_TRY(Assign(target, std::move(value), frame));
  }
  return Exec(statement.body, frame, flow);
}

Status Interpreter::CheckAssignable(const Target& target, const Ref<Frame>& frame) {
  if (target.kind == Target::Kind::kAttribute) {
    const Value& object = frame->At(target.ref);
    if (!object.is_object() || object.object()->type() != Object::Type::kNamespace) {
      return TypeError("cannot assign attribute on non-namespace object");
    }
  }
  for (const Target& item : target.items) REPRISE_TRY(CheckAssignable(item, frame));
  return OkStatus();
}

Status Interpreter::Assign(const Target& target, Value value, const Ref<Frame>& frame) {
  switch (target.kind) {
    case Target::Kind::kName:
      frame->At(target.ref) = std::move(value);
      return OkStatus();
    case Target::Kind::kAttribute:
      REPRISE_TRY(
          CheckAssignable(target, frame));  // an earlier item of a tuple may have changed it
      REPRISE_TRY(runtime_.budget.Allocate(64));
      static_cast<Namespace*>(frame->At(target.ref).object())
          ->Set(target.attribute, std::move(value));
      return OkStatus();
    case Target::Kind::kTuple:
      break;
  }
  REPRISE_ASSIGN(Value::Items items, Iterate(&runtime_.budget, value));
  const size_t expected = target.items.size();
  if (items.size() > expected) {
    return InvalidArgument("too many values to unpack (expected " + std::to_string(expected) + ")");
  }
  if (items.size() < expected) {
    return InvalidArgument("not enough values to unpack (expected " + std::to_string(expected) +
                           ", got " + std::to_string(items.size()) + ")");
  }
  for (size_t i = 0; i < expected; ++i) {
    REPRISE_TRY(Assign(target.items[i], std::move(items[i]), frame));
  }
  return OkStatus();
}

Result<Value> Interpreter::CallFunction(const Function& function, const Ref<Frame>& closure,
                                        Arguments* arguments) {
  REPRISE_ASSIGN(const Ref<Frame> frame, NewFrame(closure, function.slot_count));
  REPRISE_TRY(EnterScope(function.scope, frame));
  REPRISE_TRY(Bind(function, frame, arguments));
  Capture capture(&out_);
  Flow flow = Flow::kNormal;
  REPRISE_TRY(Exec(function.body, frame, &flow));
  return Value::Traced(capture.Take());
}

// Binds arguments as Jinja's macros do: what is left out is undefined, what is too much an error
// unless the body uses varargs or kwargs.
Status Interpreter::Bind(const Function& function, const Ref<Frame>& frame, Arguments* arguments) {
  std::vector<Value>& given = arguments->positional;
  auto& named = arguments->named;
  REPRISE_TRY(runtime_.budget.Spend(function.parameters.size() * (1 + named.size())));
  const auto take = [&](std::string_view name) {
    Value value;
    const auto found =
        std::find_if(named.begin(), named.end(), [&](const auto& n) { return n.first == name; });
    if (found != named.end()) {
      value = std::move(found->second);
      named.erase(found);
    }
    return value;
  };
  const size_t count = std::min(given.size(), function.parameters.size());
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const Function::Parameter& parameter = function.parameters[i];
    frame->At(parameter.slot) = i < count ? std::move(given[i]) : take(parameter.name);
  }
  for (const Function::Parameter& parameter : function.parameters) {
    Value& slot = frame->At(parameter.slot);
    if (!slot.is_missing()) continue;
    if (parameter.fallback == nullptr) {
      slot = Value::Undefined(Value::Reason::kMessage,
                              "parameter " + Repr(parameter.name) + " was not provided");
      continue;
    }
    REPRISE_ASSIGN(Value fallback, Eval(*parameter.fallback, frame));
    frame->At(parameter.slot) = std::move(fallback);
  }
  if (function.uses_caller) {
    Value caller = take("caller");
    if (caller.is_missing()) {
      caller = Value::UndefinedView(Value::Reason::kMessage, "No caller defined");
    }
    frame->At(function.caller_slot) = std::move(caller);
  }
  if (function.uses_kwargs) {
    DictBuilder rest;
    for (auto& [name, value] : named)
      rest.Set(Value::String(std::string(name), Origin::kData), std::move(value));
    frame->At(function.kwargs_slot) = rest.Build();
    REPRISE_TRY(runtime_.budget.Admit(frame->At(function.kwargs_slot)));
  } else if (!named.empty()) {
    return TypeError("macro " + Repr(function.name) + " takes no keyword argument " +
                     Repr(named.front().first));
  }
  if (function.uses_varargs) {
    Value::Items rest(given.begin() + static_cast<ptrdiff_t>(count), given.end());
    frame->At(function.varargs_slot) = Value::Tuple(std::move(rest));
    REPRISE_TRY(runtime_.budget.Admit(frame->At(function.varargs_slot)));
  } else if (given.size() > count) {
    return TypeError("macro " + Repr(function.name) + " takes not more than " +
                     std::to_string(function.parameters.size()) + " argument(s)");
  }
  return OkStatus();
}

}  // namespace reprise::jinja
