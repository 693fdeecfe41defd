// SPDX-License-Identifier: Apache-2.0
#include "text/output/body/parameters.h"

#include <utility>

#include "text/output/body/json.h"
#include "text/output/body/json_syntax.h"
#include "text/output/markers.h"
#include "text/output/tools.h"

namespace reprise {
namespace {

using Took = BodyReader::Took;

constexpr size_t kKeyBytesMax = 256;
constexpr size_t kDepthMax = 32;

// Where `marker` ends in `text`, exactly, or npos.
size_t EndOf(std::string_view text, std::string_view marker) {
  return text.ends_with(marker) ? text.size() - marker.size() : std::string_view::npos;
}

bool IsWordByte(char c) {
  return c == '_' || c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

std::string_view WithoutBlanksAtEnd(std::string_view marker) {
  marker.remove_suffix(BlanksAtEnd(marker));
  return marker;
}

}  // namespace

void AppendJsonByte(char c, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  switch (c) {
    case '"':
    case '\\':
      *out += '\\';
      *out += c;
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      if (byte >= 0x20) {
        *out += c;
        return;
      }
      *out += "\\u00";
      *out += kDigits[byte >> 4];
      *out += kDigits[byte & 15];
  }
}

std::unique_ptr<BodyReader> MakeBodyReader(const CallFormat& format, const JsonValue* tools) {
  switch (format.body) {
    case CallFormat::Body::kJson:
      return std::make_unique<JsonBody>();
    case CallFormat::Body::kNamedJson:
      return std::make_unique<NamedJsonBody>(tools, format.bare);
    case CallFormat::Body::kKeyedJson:
      return std::make_unique<KeyedJsonBody>();
    case CallFormat::Body::kParameters:
      return std::make_unique<ParametersBody>(format, tools);
    case CallFormat::Body::kElements:
      return std::make_unique<ElementsBody>(format, tools);
    case CallFormat::Body::kPython:
      return std::make_unique<PythonBody>();
    case CallFormat::Body::kBareObject:
      return std::make_unique<BareObjectBody>(format.quote);
  }
  return nullptr;
}

Took ParametersBody::Step(char c, CallDraft* call) {
  pending_ += c;
  switch (at_) {
    case At::kParameters:
      return StepParameters(call);
    case At::kKey:
      return StepKey(call);
    case At::kType:
      return StepType(call);
    case At::kValueBegin:
      StepValueBegin(call);
      return Took::kMore;
    case At::kValue:
      StepValue(call);
      return Took::kMore;
  }
  return Took::kBroken;
}

// Before a parameter or the end of the call.
Took ParametersBody::StepParameters(CallDraft* call) {
  size_t taken = 0;
  const Match end = MatchMarker(format_.call_end, pending_, &taken);
  if (end == Match::kYes) {
    call->begun = true;
    call->arguments += first_ ? "{}" : "}";
    return Took::kLast;
  }
  const Match begin = MatchMarker(format_.parameter.begin, pending_, &taken);
  if (begin == Match::kYes) {
    call->begun = true;
    pending_.clear();
    at_ = At::kKey;
    return Took::kMore;
  }
  if (end == Match::kMore || begin == Match::kMore) {
    if (BlanksAtStart(pending_) == pending_.size()) pending_.clear();
    return Took::kMore;
  }
  return Took::kBroken;
}

Took ParametersBody::StepKey(CallDraft* call) {
  const CallFormat::Parameter& marks = format_.parameter;
  // The key ends where the marker begins that follows it.
  const std::string_view next = marks.type_begin.empty() ? marks.value_begin : marks.type_begin;
  const size_t key = pending_.find(TriggerOf(next).front());
  if (key == std::string::npos) {
    return pending_.size() > kKeyBytesMax ? Took::kBroken : Took::kMore;
  }
  size_t taken = 0;
  const Match match = MatchMarker(next, std::string_view(pending_).substr(key), &taken);
  if (match == Match::kNo || pending_.size() > kKeyBytesMax * 2) return Took::kBroken;
  if (match == Match::kMore) return Took::kMore;
  key_ = pending_.substr(0, key);
  pending_.clear();
  if (marks.type_begin.empty()) {
    type_.clear();
    BeginValue(call);
  } else {
    at_ = At::kType;
  }
  return Took::kMore;
}

Took ParametersBody::StepType(CallDraft* call) {
  const std::string_view mark = WithoutBlanksAtEnd(format_.parameter.value_begin);
  const size_t end = EndOf(pending_, mark);
  if (end == std::string_view::npos) {
    return pending_.size() > kKeyBytesMax ? Took::kBroken : Took::kMore;
  }
  type_ = pending_.substr(0, end);
  pending_.clear();
  BeginValue(call);
  return Took::kMore;
}

void ParametersBody::BeginValue(CallDraft* call) {
  call->arguments += first_ ? "{" : ", ";
  first_ = false;
  AppendJsonString(key_, &call->arguments);
  call->arguments += ": ";
  text_ = format_.parameter.type_begin.empty()
              ? OnlyStrings(FindParameter(tools_, call->name, key_))
              : type_ == format_.parameter.type_string;
  value_.clear();
  end_ = WithoutBlanksAtEnd(format_.parameter.value_end);
  end_.erase(0, BlanksAtStart(end_));
  newline_ = format_.parameter.value_begin.ends_with('\n');
  if (text_) call->arguments += '"';
  at_ = At::kValueBegin;
}

// The first bytes of a value: the newline that belongs to the marker, the quotes around it.
void ParametersBody::StepValueBegin(CallDraft* call) {
  const std::string_view quote = format_.parameter.quote_begin;
  if (newline_ && pending_.front() == '\n') {
    pending_.erase(0, 1);
    newline_ = false;
    if (pending_.empty()) return;
  }
  newline_ = false;
  if (!quote.empty()) {
    if (Begins(pending_, quote)) return;
    if (pending_.starts_with(quote)) {
      pending_.erase(0, quote.size());
      end_ = std::string(format_.parameter.quote_end) + end_;
    }
  }
  at_ = At::kValue;
  StepValue(call);
}

void ParametersBody::StepValue(CallDraft* call) {
  // The newline before the closing marker is not part of the value.
  const bool strip = format_.parameter.value_end.starts_with('\n');
  const size_t end = pending_.find(end_);
  if (end != std::string::npos) {
    std::string_view rest = std::string_view(pending_).substr(0, end);
    if (strip && rest.ends_with('\n')) rest.remove_suffix(1);
    AppendText(rest, call);
    EndValue(call);
    pending_.clear();
    at_ = At::kParameters;
    return;
  }
  size_t ready = pending_.size() - TagBegunAtEnd(pending_, end_);
  if (strip && ready > 0 && pending_[ready - 1] == '\n') --ready;
  AppendText(std::string_view(pending_).substr(0, ready), call);
  pending_.erase(0, ready);
}

void ParametersBody::AppendText(std::string_view text, CallDraft* call) {
  if (!text_) {
    value_ += text;
    return;
  }
  for (const char c : text) AppendJsonByte(c, &call->arguments);
}

void ParametersBody::EndValue(CallDraft* call) {
  if (text_) {
    call->arguments += '"';
  } else if (!type_.empty()) {
    // The format says that this is JSON. What is none is passed on as text.
    if (JsonKindOf(value_)) {
      call->arguments += value_;
    } else {
      AppendJsonString(value_, &call->arguments);
    }
  } else {
    call->arguments += ValueToJson(value_, FindParameter(tools_, call->name, key_));
  }
}

Took ElementsBody::Step(char c, CallDraft* call) {
  pending_ += c;
  const std::string_view begin = format_.parameter.begin;
  const std::string_view end = format_.parameter.value_end;
  const size_t mark = begin.size() - 1;  // the markers differ after this
  if (pending_.size() > mark && pending_.starts_with(begin.substr(0, mark))) {
    return c == '>'                                      ? Marked(call)
           : pending_.size() > end.size() + kKeyBytesMax ? Took::kBroken
                                                         : Took::kMore;
  }
  if (begin.substr(0, mark).starts_with(pending_)) return Took::kMore;
  // Text: all of it that cannot be the beginning of a marker.
  const size_t held = TagBegunAtEnd(pending_, begin.substr(0, mark));
  const std::string_view text = std::string_view(pending_).substr(0, pending_.size() - held);
  if (open_.empty()) {
    if (BlanksAtStart(text) < text.size()) return Took::kBroken;
  } else {
    open_.back().text += text;
  }
  pending_.erase(0, pending_.size() - held);
  return Took::kMore;
}

// A whole marker with the name in it is pending.
Took ElementsBody::Marked(CallDraft* call) {
  const std::string marked = std::exchange(pending_, std::string());
  size_t taken = 0;
  if (open_.empty() && MatchMarker(format_.call_end, marked, &taken) == Match::kYes) {
    call->begun = true;
    call->arguments += first_ ? "{}" : "}";
    return Took::kLast;
  }
  const auto name_after = [&](std::string_view mark) {
    return std::string_view(marked).substr(mark.size(), marked.size() - mark.size() - 1);
  };
  const bool ok = marked.starts_with(format_.parameter.value_end)
                      ? Close(name_after(format_.parameter.value_end), call)
                  : marked.starts_with(format_.parameter.begin)
                      ? Open(name_after(format_.parameter.begin), call)
                      : false;
  return ok ? Took::kMore : Took::kBroken;
}

const JsonValue* ElementsBody::SchemaOf(const Element* parent, std::string_view name,
                                        const CallDraft& call) const {
  if (parent == nullptr) return FindParameter(tools_, call.name, name);
  if (parent->schema == nullptr) return nullptr;
  if (parent->array) return parent->schema->Find("items");
  const JsonValue* properties = parent->schema->Find("properties");
  return properties == nullptr ? nullptr : properties->Find(name);
}

bool ElementsBody::Open(std::string_view name, CallDraft* call) {
  if (name.empty() || open_.size() >= kDepthMax) return false;
  call->begun = true;
  Element* parent = open_.empty() ? nullptr : &open_.back();
  if (parent != nullptr && parent->inside.empty()) {
    const JsonValue* type = parent->schema == nullptr ? nullptr : parent->schema->Find("type");
    parent->array =
        type != nullptr && type->is_string() ? type->as_string() == "array" : name == "item";
  }
  Element element;
  element.name = name;
  element.schema = SchemaOf(parent, name, *call);
  open_.push_back(std::move(element));
  return true;
}

bool ElementsBody::Close(std::string_view name, CallDraft* call) {
  if (open_.empty() || open_.back().name != name) return false;
  const Element element = std::move(open_.back());
  open_.pop_back();
  std::string value;
  const JsonValue* type = element.schema == nullptr ? nullptr : element.schema->Find("type");
  const bool typed = type != nullptr && type->is_string();
  if (!element.inside.empty()) {
    value = (element.array ? "[" : "{") + element.inside + (element.array ? "]" : "}");
  } else if (typed && type->as_string() == "array" && element.text.empty()) {
    value = "[]";
  } else if (typed && type->as_string() == "object" && element.text.empty()) {
    value = "{}";
  } else {
    value = ValueToJson(element.text, element.schema);
  }
  std::string* out = open_.empty() ? &call->arguments : &open_.back().inside;
  if (open_.empty()) {
    *out += std::exchange(first_, false) ? "{" : ", ";
  } else if (!out->empty()) {
    *out += ", ";
  }
  if (open_.empty() || !open_.back().array) {
    AppendJsonString(element.name, out);
    *out += ": ";
  }
  *out += value;
  return true;
}

Took PythonBody::Step(char c, CallDraft* call) {
  switch (at_) {
    case At::kKey:
    case At::kAfter:
      if (IsBlank(c)) return Took::kMore;
      if (c == ')') {
        call->begun = true;
        call->arguments += first_ ? "{}" : "}";
        return Took::kLast;
      }
      if (at_ == At::kAfter) {
        at_ = At::kKey;
        return c == ',' ? Took::kMore : Took::kBroken;
      }
      key_.assign(1, c);
      at_ = At::kInKey;
      return IsWordByte(c) ? Took::kMore : Took::kBroken;
    case At::kInKey:
      if (c != '=') {
        key_ += c;
        const bool word = IsWordByte(c) || IsBlank(c);
        return word && key_.size() <= kKeyBytesMax ? Took::kMore : Took::kBroken;
      }
      key_.resize(key_.size() - BlanksAtEnd(key_));
      call->begun = true;
      call->arguments += std::exchange(first_, false) ? "{" : ", ";
      AppendJsonString(key_, &call->arguments);
      call->arguments += ": ";
      value_.emplace();
      at_ = At::kValue;
      return Took::kMore;
    case At::kValue:
      switch (value_->Step(c, &call->arguments)) {
        case LiteralReader::State::kReading:
          return Took::kMore;
        case LiteralReader::State::kBroken:
          return Took::kBroken;
        case LiteralReader::State::kDone:
          at_ = At::kAfter;
          return Step(c, call);
      }
  }
  return Took::kBroken;
}

Took BareObjectBody::Step(char c, CallDraft* call) {
  if (call->arguments.empty() && !IsBlank(c)) {
    if (c != '{') return Took::kBroken;
    call->begun = true;
  }
  if (value_.Step(c, &call->arguments) == LiteralReader::State::kBroken) return Took::kBroken;
  return value_.ended() ? Took::kLast : Took::kMore;
}

}  // namespace reprise
