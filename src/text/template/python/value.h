// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "text/template/python/traced_text.h"

namespace reprise::jinja {

struct Arguments;  // library/runtime.h
struct Runtime;

// The values a template computes with: Python's data model, as far as templates can see it.
//
// Everything but objects is immutable (the sandbox forbids list.append and its like), so values are
// shared by reference count and cannot form cycles. The mutable objects (namespaces, loops, frames)
// are kept and emptied by the render that made them.
//
// Thread safety: none. The counts are not atomic: a value belongs to one render. Text that several
// renders share (a template's constants, the client's JSON) is viewed, not counted.

// What a Value may own. Counted by Value and Ref.
struct Counted {
  uint32_t refs = 0;
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  virtual ~Counted() = default;
};

template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_ != nullptr) ++object_->refs;
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr && --object_->refs == 0) delete object_;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

class Object;

class Value {
 public:
  enum class Kind : uint8_t {
    kMissing,  // no value at all: an empty slot, an argument not given; never seen by a template
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kSequence,
    kDict,
    kObject,
  };
  enum class Sequence : uint8_t { kList, kTuple, kRange, kDictKeys, kDictValues, kDictItems };
  // Why a value is undefined, which becomes the message when it is used.
  enum class Reason : uint8_t {
    kName,           // text is a variable's name
    kDictAttribute,  // text is the key a dict does not have
    kMessage,        // text is the message
  };
  using Items = std::vector<Value>;
  using Pairs = std::vector<std::pair<Value, Value>>;
  class Dict;

  Value() : int_(0) {}
  Value(const Value& other)
      : kind_(other.kind_),
        sub_(other.sub_),
        owned_(other.owned_),
        markup_(other.markup_),
        size_(other.size_),
        int_(other.int_) {
    if (owned_) ++counted_->refs;
  }
  Value(Value&& other) noexcept
      : kind_(other.kind_),
        sub_(other.sub_),
        owned_(other.owned_),
        markup_(other.markup_),
        size_(other.size_),
        int_(other.int_) {
    other.kind_ = Kind::kMissing;
    other.owned_ = false;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(sub_, other.sub_);
    std::swap(owned_, other.owned_);
    std::swap(markup_, other.markup_);
    std::swap(size_, other.size_);
    std::swap(int_, other.int_);
    return *this;
  }
  ~Value() {
    if (owned_ && --counted_->refs == 0) delete counted_;
  }

  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool flag);
  static Value Int(int64_t number);
  static Value Float(double number);
  // A number as a client wrote it, which is how it is printed: "1.50". Computing forgets that.
  static Value Spelled(double number, std::string_view spelling);
  static Value String(std::string text, Origin origin);
  static Value View(std::string_view text, Origin origin);  // REQUIRES: bytes outlive the render
  static Value Traced(TracedText text);
  static Value Undefined(Reason reason, std::string text);
  static Value UndefinedView(Reason reason, std::string_view text);  // REQUIRES: as View
  static Value List(Items items) { return Of(Sequence::kList, std::move(items)); }
  static Value Tuple(Items items) { return Of(Sequence::kTuple, std::move(items)); }
  static Value Of(Sequence type, Items items);
  static Value OfPairs(Pairs pairs);  // REQUIRES: keys are hashable and differ (see DictBuilder)
  static Value OfObject(Ref<Object> object);

  // A part of this string, with its origin and as safe as it is. REQUIRES: a view of as_string().
  Value Part(std::string_view part) const;
  // The same text marked as HTML-safe (Python's Markup): what is added to it gets escaped.
  Value AsMarkup() const;
  // The same string without a reference count. REQUIRES: the original outlives the render.
  Value AsView() const;

  Kind kind() const { return kind_; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_integral() const { return is_int() || is_bool(); }  // Python's isinstance(x, int)
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_number() const { return is_integral() || is_float(); }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_markup() const { return is_string() && markup_; }
  bool is_sequence() const { return kind_ == Kind::kSequence; }
  bool is_list() const { return is_sequence() && sequence() == Sequence::kList; }
  bool is_tuple() const { return is_sequence() && sequence() == Sequence::kTuple; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // REQUIRES: the kind of the accessor. as_int takes a bool, too; as_double any number.
  bool as_bool() const {
    DCHECK(is_bool());
    return int_ != 0;
  }
  int64_t as_int() const {
    DCHECK(is_integral());
    return int_;
  }
  double as_double() const {
    DCHECK(is_number());
    if (is_float()) return owned_ ? SpelledNumber() : float_;
    return static_cast<double>(int_);
  }
  std::string_view spelling() const;   // of a float; empty: it has none of its own
  std::string_view as_string() const;  // also the text of an undefined value
  // Of a string: kTemplate only if every byte of it is the template's own.
  Origin origin() const;
  // Appends a string, or a part of it, with its origin. REQUIRES: as Part.
  void AppendTo(TracedText* out) const { AppendPartTo(as_string(), out); }
  void AppendPartTo(std::string_view part, TracedText* out) const;
  Sequence sequence() const { return static_cast<Sequence>(sub_); }
  Reason reason() const { return static_cast<Reason>(sub_); }
  const Items& items() const;
  const Dict& dict() const;
  Object* object() const;

  // Containers inside containers; a scalar has depth 0.
  int depth() const;
  // The cost of walking the value as a tree: its nodes, and its text in units of 64 bytes. Values
  // share parts, so this may be far more than was ever allocated; it saturates.
  uint64_t weight() const;
  bool is_hashable() const;  // may be the key of a dict
  // Bytes this value itself holds on the heap, not those of what it contains.
  size_t shallow_bytes() const;
  // Python's `is`, for the singletons and for shared containers.
  bool SameAs(const Value& other) const;

 private:
  // Of a string, in sub_.
  enum class Trace : uint8_t { kTemplate, kData, kMixed };
  struct Text;
  struct Spelling;
  struct List_;
  explicit Value(Kind kind) : kind_(kind), int_(0) {}
  void Own(Counted* counted);
  Trace trace() const { return static_cast<Trace>(sub_); }
  double SpelledNumber() const;

  Kind kind_ = Kind::kMissing;
  uint8_t sub_ = 0;
  bool owned_ = false;
  bool markup_ = false;
  uint32_t size_ = 0;  // of a viewed text
  union {
    int64_t int_;
    double float_;
    const char* view_;
    Counted* counted_;
  };
};

// A dict in insertion order. Lookups are O(1) above a handful of members, else linear.
class Value::Dict final : public Counted {
 public:
  explicit Dict(Pairs pairs);
  const Pairs& pairs() const { return pairs_; }
  const Value* Find(std::string_view key) const;  // null if absent
  const Value* Find(const Value& key) const;
  int depth() const { return depth_; }
  uint64_t weight() const { return weight_; }

 private:
  static constexpr size_t kIndexedFrom = 16;
  Pairs pairs_;
  std::unordered_map<std::string_view, uint32_t> index_;  // string keys, if there are many members
  int depth_ = 1;
  uint64_t weight_ = 1;
};

// Builds a dict member by member; a key given twice keeps its place and takes the last value.
class DictBuilder {
 public:
  void Set(Value key, Value value);  // REQUIRES: key.is_hashable()
  Value Build() { return Value::OfPairs(std::move(pairs_)); }
  size_t size() const { return pairs_.size(); }

 private:
  Value::Pairs pairs_;
  std::unordered_map<std::string, size_t> index_;  // string keys
};

// Anything with identity or behaviour: namespaces, loops, macros, functions, methods, iterators.
class Object : public Counted {
 public:
  enum class Type : uint8_t { kNamespace, kLoop, kMacro, kFunction, kMethod, kIterator, kOther };
  explicit Object(Type type, int depth = 0) : type_(type), depth_(depth) {}
  Type type() const { return type_; }
  // Of what it holds on to and frees with itself; 0 for those the render keeps.
  int depth() const { return depth_; }
  virtual std::string type_name() const = 0;  // as Python's type(x).__name__
  // The attribute, or a missing value.
  virtual Value Attribute(std::string_view) const { return Value(); }
  virtual bool callable() const { return false; }
  virtual Result<Value> Call(Runtime*, Arguments*);
  // Drops what it refers to, to break cycles when the render ends.
  virtual void Clear() {}

 private:
  const Type type_;
  const int depth_;
};

// One more than the deepest of them: the depth of what contains them.
int DepthAround(const Value::Items& items);

}  // namespace reprise::jinja
