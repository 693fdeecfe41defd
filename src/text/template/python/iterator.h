// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "text/template/python/budget.h"
#include "text/template/python/value.h"

namespace reprise::jinja {

// Python's iterators and generators: consumed once, item by item, and evaluated only as far as they
// are consumed. Always true, without a length, and not serialisable.
class Iterator : public Object {
 public:
  Iterator(const char* name, int depth) : Object(Type::kIterator, depth), name_(name) {}
  std::string type_name() const override { return name_; }
  // Takes the next item; false at the end.
  virtual Result<bool> Next(Value* item) = 0;

 private:
  const char* const name_;
};

// One over these items. REQUIRES: items is a sequence.
Value IterateItems(Value items, const char* name = "generator");

// iter(): one over whatever can be iterated; an iterator is its own.
Result<Ref<Iterator>> MakeIterator(Budget* budget, const Value& value);

// All that an iterator has left.
Result<Value::Items> Drain(Budget* budget, Iterator* iterator);

}  // namespace reprise::jinja
