// SPDX-License-Identifier: Apache-2.0
#include "text/output/body/json.h"

#include <utility>

#include "base/json.h"
#include "text/output/tag_search.h"
#include "text/output/tools.h"

namespace reprise {
namespace {

constexpr size_t kDepthMax = 64;
constexpr size_t kNameBytesMax = 256;

// A JSON string, given with its quotes; false if it is none.
bool Decode(std::string_view quoted, std::string* text) {
  auto document = JsonDocument::Parse(quoted);
  if (!document.ok() || !document->root().is_string()) return false;
  *text = document->root().as_string();
  return true;
}

}  // namespace

BodyReader::Took JsonBody::Step(char c, CallDraft* call) {
  if (closers_.empty()) {
    if (IsBlank(c)) return Took::kMore;
    if (c != '{') return Took::kBroken;
    call->begun = true;
  }
  if (quoted_) {
    quoted_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
  } else if (c == '{' || c == '[') {
    if (closers_.size() >= kDepthMax) return Took::kBroken;
    closers_ += c == '{' ? '}' : ']';
  } else if (c == '}' || c == ']') {
    if (closers_.back() != c) return Took::kBroken;
    closers_.pop_back();
  } else {
    quoted_ = c == '"';
  }
  call->arguments += c;
  return closers_.empty() ? Took::kLast : Took::kMore;
}

NamedJsonBody::Role NamedJsonBody::RoleOf(std::string_view key) {
  if (key == "name" || key == "tool_name") return Role::kName;
  if (key == "arguments" || key == "parameters") return Role::kArguments;
  return key == "id" || key == "tool_call_id" ? Role::kId : Role::kOther;
}

BodyReader::Took NamedJsonBody::Step(char c, CallDraft* call) {
  if (!Take(c)) return Took::kBroken;
  if (!name_.empty()) {
    if (!call->begun && (object_ || over_)) {
      if (!IsCall()) return Took::kBroken;
      call->name = name_;
      call->begun = true;
    }
    if (call->begun && (object_ || over_)) {
      call->arguments += std::exchange(arguments_, std::string());
    }
  }
  if (!over_) return Took::kMore;
  if (name_.empty()) return Took::kBroken;
  call->id = id_;
  if (!seen_arguments_) call->arguments = "{}";
  return Took::kLast;
}

bool NamedJsonBody::IsCall() const {
  if (!bare_) return true;
  return seen_arguments_ && (tools_ == nullptr || FindTool(tools_, name_) != nullptr);
}

bool NamedJsonBody::Take(char c) {
  switch (at_) {
    case At::kObject:
      if (IsBlank(c)) return true;
      at_ = At::kFirstKey;
      return c == '{';
    case At::kFirstKey:
      if (c == '}') return over_ = true;
      [[fallthrough]];
    case At::kKey:
      if (IsBlank(c)) return true;
      key_.clear();
      at_ = At::kInKey;
      return c == '"';
    case At::kInKey:
      if (TakeString(c)) {
        key_ += c;
      } else {
        at_ = At::kColon;
      }
      return key_.size() <= kNameBytesMax;
    case At::kColon:
      if (IsBlank(c)) return true;
      role_ = RoleOf(key_);
      at_ = At::kValue;
      // A call says what it is before it says anything else; other objects are an answer.
      return c == ':' && (role_ != Role::kOther || !name_.empty() || key_ == "type");
    case At::kValue:
      return IsBlank(c) || StartValue(c);
    case At::kInValue:
      return TakeValue(c);
    case At::kAfterValue:
      if (IsBlank(c)) return true;
      if (c == '}') return over_ = true;
      at_ = At::kKey;
      return c == ',';
  }
  return false;
}

bool NamedJsonBody::TakeString(char c) {
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    return false;
  }
  return true;
}

bool NamedJsonBody::StartValue(char c) {
  value_.assign(1, c);
  closers_.clear();
  quoted_ = c == '"';
  if (c == '{') closers_ = "}";
  if (c == '[') closers_ = "]";
  at_ = At::kInValue;
  if (role_ == Role::kName && (!quoted_ || !name_.empty())) return false;
  if (role_ == Role::kArguments) {
    if (std::exchange(seen_arguments_, true)) return false;
    object_ = c == '{';
    if (object_) arguments_ = "{";
  }
  return true;
}

bool NamedJsonBody::TakeValue(char c) {
  const bool scalar = closers_.empty() && !quoted_;
  if (scalar && (c == ',' || c == '}' || IsBlank(c))) return EndValue() && Take(c);
  const bool opens = !quoted_ && (c == '{' || c == '[');
  const bool closes = !quoted_ && (c == '}' || c == ']');
  if ((opens && closers_.size() >= kDepthMax) ||
      (closes && (closers_.empty() || closers_.back() != c))) {
    return false;
  }
  if (role_ == Role::kArguments && object_) {
    arguments_ += c;
  } else if (role_ != Role::kOther) {
    value_ += c;
  }
  if (quoted_) {
    quoted_ = TakeString(c);
    return quoted_ || !closers_.empty() || EndValue();
  }
  quoted_ = c == '"';
  if (opens) closers_ += c == '{' ? '}' : ']';
  if (closes) closers_.pop_back();
  return !closes || !closers_.empty() || EndValue();
}

bool NamedJsonBody::EndValue() {
  at_ = At::kAfterValue;
  switch (role_) {
    case Role::kName:
      return Decode(value_, &name_) && !name_.empty();
    case Role::kId:
      if (!Decode(value_, &id_)) id_ = value_;
      return true;
    case Role::kArguments:
      if (object_) return true;
      if (value_.front() == '"') {
        if (!Decode(value_, &arguments_)) return false;
      } else if (value_ != "null") {
        return false;
      }
      if (arguments_.empty()) arguments_ = "{}";
      return true;
    case Role::kOther:
      return true;
  }
  return true;
}

BodyReader::Took KeyedJsonBody::Step(char c, CallDraft* call) {
  if (at_ == At::kArguments) {
    const Took took = arguments_.Step(c, call);
    if (took != Took::kLast) return took;
    at_ = At::kEnd;
    return Took::kMore;
  }
  if (at_ == At::kInKey) {
    if (c == '"') {
      at_ = At::kColon;
      return call->name.empty() ? Took::kBroken : Took::kMore;
    }
    call->name += c;
    return c == '\\' || call->name.size() > kNameBytesMax ? Took::kBroken : Took::kMore;
  }
  if (IsBlank(c)) return Took::kMore;
  if (at_ == At::kEnd) return c == '}' ? Took::kLast : Took::kBroken;
  constexpr std::string_view kExpected = "{\"?:";  // by At
  const bool expected = c == kExpected[static_cast<size_t>(at_)];
  at_ = static_cast<At>(static_cast<int>(at_) + 1);
  return expected ? Took::kMore : Took::kBroken;
}

}  // namespace reprise
