// SPDX-License-Identifier: Apache-2.0
// map, select, reject, selectattr and rejectattr: generators. Nothing happens before an item is
// asked for, and nothing after the last one that is.
#include <optional>
#include <utility>

#include "text/template/library/attributes.h"
#include "text/template/library/filters.h"
#include "text/template/python/iterator.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace reprise::jinja {
namespace {

std::string NameOf(const Value& value) {
  return value.is_string() ? Repr(value.as_string()) : TypeName(value);
}

// A generator over another iterable. Jinja's begin with "if value:", so that None, too, is empty.
class LazyFilter : public Iterator {
 public:
  LazyFilter(Runtime* runtime, Value subject, const Arguments& arguments)
      : Iterator("generator", Depth(subject, arguments)),
        runtime_(*runtime),
        subject_(std::move(subject)),
        arguments_(arguments) {}

  Result<bool> Next(Value* item) final {
    if (!started_) {
      started_ = true;
      if (Truth(subject_)) {
        REPRISE_ASSIGN(source_, MakeIterator(&runtime_.budget, subject_));
        REPRISE_TRY(Start());
      }
    }
    while (source_) {
      REPRISE_TRY(runtime_.budget.Spend(1));
      REPRISE_ASSIGN(const bool more, source_->Next(item));
      if (!more) source_ = Ref<Iterator>();
      if (!more) break;
      REPRISE_ASSIGN(const bool keep, Process(item));
      if (keep) return true;
    }
    return false;
  }

 protected:
  virtual Status Start() = 0;
  // Changes the item in place; false if it is to be left out.
  virtual Result<bool> Process(Value* item) = 0;

  // The arguments after the first `count`.
  Arguments Rest(size_t count) const {
    Arguments rest = arguments_;
    rest.positional.erase(rest.positional.begin(),
                          rest.positional.begin() + static_cast<ptrdiff_t>(count));
    return rest;
  }

  Runtime& runtime_;
  const Value subject_;
  const Arguments arguments_;

 private:
  static int Depth(const Value& subject, const Arguments& arguments) {
    int depth = subject.depth() + 1;
    depth = std::max(depth, DepthAround(arguments.positional));
    for (const auto& [unused, value] : arguments.named) depth = std::max(depth, value.depth() + 1);
    return depth;
  }

  bool started_ = false;
  Ref<Iterator> source_;  // null before the start and after the end
};

// map('filter', ...) or map(attribute='name', default=...).
class MapFilter final : public LazyFilter {
 public:
  using LazyFilter::LazyFilter;

 private:
  Status Start() override {
    if (!arguments_.positional.empty()) {
      const Value& name = arguments_.positional[0];
      filter_ = name.is_string() ? FindFilter(name.as_string()) : nullptr;
      if (filter_ == nullptr) return Unimplemented("No filter named " + NameOf(name) + ".");
      rest_ = Rest(1);
      return OkStatus();
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key != "attribute" && key != "default") {
        return InvalidArgument("Unexpected keyword argument " + Repr(key));
      }
      (key == "attribute" ? attribute_ : fallback_) = value;
    }
    if (attribute_.is_missing()) return InvalidArgument("map requires a filter argument");
    return OkStatus();
  }

  Result<bool> Process(Value* item) override {
    if (filter_ != nullptr) {
      REPRISE_ASSIGN(*item, filter_(&runtime_, *item, rest_));
      REPRISE_TRY(runtime_.budget.Admit(*item));
      return true;
    }
    REPRISE_ASSIGN(*item, GetPath(&runtime_, *item, attribute_, fallback_));
    return true;
  }

  SubjectFunction filter_ = nullptr;
  Arguments rest_;
  Value attribute_;
  Value fallback_;
};

class SelectFilter final : public LazyFilter {
 public:
  SelectFilter(Runtime* runtime, Value subject, const Arguments& arguments, bool keep,
               bool by_attribute)
      : LazyFilter(runtime, std::move(subject), arguments),
        keep_(keep),
        by_attribute_(by_attribute) {}

 private:
  Status Start() override {
    size_t used = 0;
    if (by_attribute_) {
      if (arguments_.positional.empty()) {
        return InvalidArgument("Missing parameter for attribute name");
      }
      attribute_ = arguments_.positional[used++];
    }
    if (used == arguments_.positional.size()) return OkStatus();
    const Value& name = arguments_.positional[used++];
    test_ = name.is_string() ? FindTest(name.as_string()) : nullptr;
    if (test_ == nullptr) return Unimplemented("No test named " + NameOf(name) + ".");
    rest_ = Rest(used);
    return OkStatus();
  }

  Result<bool> Process(Value* item) override {
    REPRISE_ASSIGN(const Value tested, GetPath(&runtime_, *item, attribute_));
    if (test_ == nullptr) return Truth(tested) == keep_;
    REPRISE_ASSIGN(const bool passes, test_(&runtime_, tested, rest_));
    return passes == keep_;
  }

  const bool keep_;
  const bool by_attribute_;
  Value attribute_;
  TestFunction test_ = nullptr;
  Arguments rest_;
};

// A generator outlives the call that made it: names must not view what the call held.
Result<Value> Made(Runtime* runtime, Iterator* generator) {
  Value value = Value::OfObject(Ref<Object>(generator));
  REPRISE_TRY(runtime->budget.Allocate(512));
  return value;
}

Result<Value> Map(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return Made(runtime, new MapFilter(runtime, subject, arguments));
}

template <bool keep, bool by_attribute>
Result<Value> Select(Runtime* runtime, const Value& subject, const Arguments& arguments) {
  return Made(runtime, new SelectFilter(runtime, subject, arguments, keep, by_attribute));
}

constexpr Filter kFilters[] = {
    {"map", Map},
    {"reject", Select<false, false>},
    {"rejectattr", Select<false, true>},
    {"select", Select<true, false>},
    {"selectattr", Select<true, true>},
};

}  // namespace

std::span<const Filter> LazyFilters() { return kFilters; }

}  // namespace reprise::jinja
