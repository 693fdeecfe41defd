// SPDX-License-Identifier: Apache-2.0
#include "text/template/jinja/loop.h"

#include <utility>

#include "text/template/python/operators.h"

namespace reprise::jinja {
namespace {

Value Count(size_t number) { return Value::Int(static_cast<int64_t>(number)); }

}  // namespace

Loop::Loop(Interpreter* interpreter, const ForStmt* statement, Ref<Frame> closure,
           Value::Items items, int depth)
    : Object(Type::kLoop, DepthAround(items)),
      interpreter_(interpreter),
      statement_(statement),
      closure_(std::move(closure)),
      items_(std::move(items)),
      depth_(depth) {}

Value Loop::Attribute(std::string_view name) const {
  const size_t length = items_.size();
  if (name == "index") return Count(index_ + 1);
  if (name == "index0") return Count(index_);
  if (name == "first") return Value::Bool(index_ == 0);
  if (name == "last") return Value::Bool(index_ + 1 >= length);
  if (name == "length") return Count(length);
  if (name == "revindex") return Count(length - index_);
  if (name == "revindex0") return Count(length - index_ - 1);
  if (name == "depth") return Value::Int(depth_ + 1);
  if (name == "depth0") return Value::Int(depth_);
  if (name == "previtem") {
    if (index_ > 0) return items_[index_ - 1];
    return Value::UndefinedView(Value::Reason::kMessage, "there is no previous item");
  }
  if (name == "nextitem") {
    if (index_ + 1 < length) return items_[index_ + 1];
    return Value::UndefinedView(Value::Reason::kMessage, "there is no next item");
  }
  return Value();
}

Result<Value> Loop::Call(Runtime*, Arguments* arguments) {
  if (!closure_) {
    return TypeError("The loop must have the 'recursive' marker to be called recursively.");
  }
  ArgumentReader read("loop", *arguments);
  const Value iterable = read.Required("iterable");
  REPRISE_TRY(read.Finish());
  return interpreter_->CallLoop(*statement_, closure_, iterable, depth_ + 1);
}

}  // namespace reprise::jinja
