// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/value.h"

#include <algorithm>

#include "text/template/python/operators.h"

namespace reprise::jinja {

struct Value::Text final : Counted {
  explicit Text(std::string t, std::vector<TextRange> d = {})
      : text(std::move(t)), data(std::move(d)) {}
  const std::string text;
  const std::vector<TextRange> data;  // of mixed origin: which bytes are data
};

struct Value::Spelling final : Counted {
  Spelling(double n, std::string_view t) : number(n), text(t) {}
  const double number;
  const std::string text;
};

namespace {

uint64_t SaturatingSum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

}  // namespace

struct Value::List_ final : Counted {
  explicit List_(Items i) : items(std::move(i)), depth(DepthAround(items)) {
    for (const Value& item : items) {
      weight = SaturatingSum(weight, item.weight());
      hashable = hashable && item.is_hashable();
    }
  }
  const Items items;
  const int depth;
  uint64_t weight = 1;
  bool hashable = true;  // of all items
};

void Value::Own(Counted* counted) {
  counted_ = counted;
  ++counted->refs;
  owned_ = true;
}

Value Value::Bool(bool flag) {
  Value value(Kind::kBool);
  value.int_ = flag ? 1 : 0;
  return value;
}

Value Value::Int(int64_t number) {
  Value value(Kind::kInt);
  value.int_ = number;
  return value;
}

Value Value::Float(double number) {
  Value value(Kind::kFloat);
  value.float_ = number;
  return value;
}

Value Value::Spelled(double number, std::string_view spelling) {
  Value value(Kind::kFloat);
  value.Own(new Spelling(number, spelling));
  return value;
}

double Value::SpelledNumber() const { return static_cast<Spelling*>(counted_)->number; }

std::string_view Value::spelling() const {
  DCHECK(is_float());
  return owned_ ? std::string_view(static_cast<Spelling*>(counted_)->text) : std::string_view();
}

Value Value::String(std::string text, Origin origin) {
  Value value(Kind::kString);
  value.sub_ = static_cast<uint8_t>(origin);
  value.Own(new Text(std::move(text)));
  return value;
}

Value Value::Traced(TracedText text) {
  const std::vector<TextRange>& data = text.data();
  if (data.empty()) return String(text.TakeText(), Origin::kTemplate);
  if (data.front() == TextRange{0, text.size()}) return String(text.TakeText(), Origin::kData);
  Value value(Kind::kString);
  value.sub_ = static_cast<uint8_t>(Trace::kMixed);
  value.Own(new Text(text.TakeText(), text.TakeData()));
  return value;
}

Value Value::View(std::string_view text, Origin origin) {
  if (text.size() > UINT32_MAX) return String(std::string(text), origin);
  Value value(Kind::kString);
  value.sub_ = static_cast<uint8_t>(origin);
  value.view_ = text.data();
  value.size_ = static_cast<uint32_t>(text.size());
  return value;
}

Value Value::Undefined(Reason reason, std::string text) {
  Value value = String(std::move(text), Origin::kData);
  value.kind_ = Kind::kUndefined;
  value.sub_ = static_cast<uint8_t>(reason);
  return value;
}

Value Value::UndefinedView(Reason reason, std::string_view text) {
  Value value = View(text, Origin::kData);
  value.kind_ = Kind::kUndefined;
  value.sub_ = static_cast<uint8_t>(reason);
  return value;
}

Value Value::Of(Sequence type, Items items) {
  Value value(Kind::kSequence);
  value.sub_ = static_cast<uint8_t>(type);
  value.Own(new List_(std::move(items)));
  return value;
}

Value Value::OfPairs(Pairs pairs) {
  Value value(Kind::kDict);
  value.Own(new Dict(std::move(pairs)));
  return value;
}

Value Value::OfObject(Ref<Object> object) {
  Value value(Kind::kObject);
  value.Own(object.get());
  return value;
}

Value Value::AsMarkup() const {
  DCHECK(is_string());
  Value value = *this;
  value.markup_ = true;
  return value;
}

Value Value::AsView() const {
  Value value = View(as_string(), origin());
  value.markup_ = markup_;
  return value;
}

Origin Value::origin() const {
  DCHECK(is_string());
  return trace() == Trace::kTemplate ? Origin::kTemplate : Origin::kData;
}

Value Value::Part(std::string_view part) const {
  DCHECK(is_string());
  Value value;
  if (trace() == Trace::kMixed) {
    TracedText text;
    AppendPartTo(part, &text);
    value = Traced(std::move(text));
  } else {
    value = owned_ ? String(std::string(part), origin()) : View(part, origin());
  }
  value.markup_ = markup_;
  return value;
}

void Value::AppendPartTo(std::string_view part, TracedText* out) const {
  DCHECK(is_string());
  if (trace() != Trace::kMixed) return out->Append(part, origin());
  const Text& text = *static_cast<Text*>(counted_);
  out->Append(part, text.data, static_cast<size_t>(part.data() - text.text.data()));
}

std::string_view Value::as_string() const {
  DCHECK(is_string() || is_undefined());
  return owned_ ? std::string_view(static_cast<Text*>(counted_)->text)
                : std::string_view(view_, size_);
}

const Value::Items& Value::items() const {
  DCHECK(is_sequence());
  return static_cast<List_*>(counted_)->items;
}

const Value::Dict& Value::dict() const {
  DCHECK(is_dict());
  return *static_cast<Dict*>(counted_);
}

Object* Value::object() const {
  DCHECK(is_object());
  return static_cast<Object*>(counted_);
}

int Value::depth() const {
  if (kind_ == Kind::kSequence) return static_cast<List_*>(counted_)->depth;
  if (kind_ == Kind::kDict) return static_cast<Dict*>(counted_)->depth();
  if (kind_ == Kind::kObject) return static_cast<Object*>(counted_)->depth();
  return 0;
}

uint64_t Value::weight() const {
  constexpr size_t kTextUnit = 64;
  switch (kind_) {
    case Kind::kString:
      return 1 + as_string().size() / kTextUnit;
    case Kind::kSequence:
      return static_cast<List_*>(counted_)->weight;
    case Kind::kDict:
      return dict().weight();
    default:
      return 1;
  }
}

bool Value::is_hashable() const {
  if (kind_ == Kind::kDict) return false;
  if (kind_ != Kind::kSequence) return true;
  return sequence() != Sequence::kList && static_cast<List_*>(counted_)->hashable;
}

size_t Value::shallow_bytes() const {
  constexpr size_t kHeader = 64;
  if (!owned_) return 0;
  switch (kind_) {
    case Kind::kString:
    case Kind::kUndefined: {
      const Text& text = *static_cast<Text*>(counted_);
      return kHeader + text.text.size() + text.data.size() * sizeof(TextRange);
    }
    case Kind::kSequence:
      return kHeader + items().size() * sizeof(Value);
    case Kind::kDict:
      return kHeader + dict().pairs().size() * 5 * sizeof(Value);
    default:
      return kHeader;
  }
}

bool Value::SameAs(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kFloat:
      return as_double() == other.as_double();
    case Kind::kString:
      return as_string() == other.as_string();
    case Kind::kMissing:
    case Kind::kNone:
      return true;
    default:
      return owned_ == other.owned_ && int_ == other.int_;
  }
}

Value::Dict::Dict(Pairs pairs) : pairs_(std::move(pairs)) {
  for (const auto& [key, value] : pairs_) {
    depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
    weight_ = SaturatingSum(weight_, SaturatingSum(key.weight(), value.weight()));
  }
  if (pairs_.size() < kIndexedFrom) return;
  index_.reserve(pairs_.size());
  for (uint32_t i = 0; i < pairs_.size(); ++i) {
    if (pairs_[i].first.is_string()) index_.emplace(pairs_[i].first.as_string(), i);
  }
}

const Value* Value::Dict::Find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &pairs_[found->second].second;
  }
  for (const auto& [name, value] : pairs_) {
    if (name.is_string() && name.as_string() == key) return &value;
  }
  return nullptr;
}

const Value* Value::Dict::Find(const Value& key) const {
  if (key.is_string()) return Find(key.as_string());
  for (const auto& [name, value] : pairs_) {
    if (Equal(name, key)) return &value;
  }
  return nullptr;
}

void DictBuilder::Set(Value key, Value value) {
  DCHECK(key.is_hashable());
  if (key.is_string()) {
    const auto [found, added] = index_.emplace(key.as_string(), pairs_.size());
    if (!added) {
      pairs_[found->second].second = std::move(value);
      return;
    }
  } else {
    for (auto& [known, old] : pairs_) {
      if (!Equal(known, key)) continue;
      old = std::move(value);
      return;
    }
  }
  pairs_.emplace_back(std::move(key), std::move(value));
}

int DepthAround(const Value::Items& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

Result<Value> Object::Call(Runtime*, Arguments*) {
  return TypeError("'" + type_name() + "' object is not callable");
}

}  // namespace reprise::jinja
