// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/iterator.h"

#include <utility>

#include "text/template/python/operators.h"

namespace reprise::jinja {
namespace {

class ItemIterator final : public Iterator {
 public:
  ItemIterator(const char* name, Value items)
      : Iterator(name, items.depth() + 1), items_(std::move(items)) {}
  Result<bool> Next(Value* item) override {
    if (next_ >= items_.items().size()) return false;
    *item = items_.items()[next_++];
    return true;
  }

 private:
  const Value items_;
  size_t next_ = 0;
};

}  // namespace

Value IterateItems(Value items, const char* name) {
  return Value::OfObject(Ref<Object>(new ItemIterator(name, std::move(items))));
}

Result<Ref<Iterator>> MakeIterator(Budget* budget, const Value& value) {
  if (value.is_object() && value.object()->type() == Object::Type::kIterator) {
    return Ref<Iterator>(static_cast<Iterator*>(value.object()));
  }
  if (value.is_sequence()) return Ref<Iterator>(new ItemIterator("iterator", value));
  REPRISE_ASSIGN(Value::Items items, Iterate(budget, value));
  return Ref<Iterator>(new ItemIterator("iterator", Value::List(std::move(items))));
}

Result<Value::Items> Drain(Budget* budget, Iterator* iterator) {
  Value::Items items;
  Value item;
  while (true) {
    REPRISE_ASSIGN(const bool more, iterator->Next(&item));
    if (!more) return items;
    REPRISE_TRY(budget->Allocate(sizeof(Value)));
    REPRISE_TRY(budget->Spend(1));
    items.push_back(std::move(item));
  }
}

}  // namespace reprise::jinja
