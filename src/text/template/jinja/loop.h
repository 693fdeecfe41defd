// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "text/template/jinja/interpreter.h"

namespace reprise::jinja {

// The variable `loop` inside a for loop.
class Loop final : public Object {
 public:
  // `closure` is the frame the loop stands in, for a recursive loop; else null.
  Loop(Interpreter* interpreter, const ForStmt* statement, Ref<Frame> closure, Value::Items items,
       int depth);

  std::string type_name() const override { return "LoopContext"; }
  Value Attribute(std::string_view name) const override;
  bool callable() const override { return true; }
  // loop(children): the body once more for another sequence.
  Result<Value> Call(Runtime* runtime, Arguments* arguments) override;

  const Value::Items& items() const { return items_; }
  void set_index(size_t index) { index_ = index; }

 private:
  Interpreter* const interpreter_;
  const ForStmt* const statement_;
  const Ref<Frame> closure_;
  const Value::Items items_;
  const int depth_;
  size_t index_ = 0;
};

}  // namespace reprise::jinja
