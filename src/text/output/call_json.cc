// SPDX-License-Identifier: Apache-2.0
#include "text/output/call_json.h"

#include "base/json.h"
#include "text/output/tag_search.h"

namespace reprise {
namespace {

constexpr size_t kDepthMax = 64;

// A JSON string, given with its quotes; false if it is none.
bool Decode(std::string_view quoted, std::string* text) {
  auto document = JsonDocument::Parse(quoted);
  if (!document.ok() || !document->root().is_string()) return false;
  *text = document->root().as_string();
  return true;
}

}  // namespace

void CallJson::Read(std::string_view text) {
  size_t taken = 0;
  while (taken < text.size() && state_ == State::kReading && Step(text[taken])) ++taken;
  rest_ = text.substr(taken);
}

CallJson::Role CallJson::RoleOf(std::string_view key) {
  if (key == "name") return Role::kName;
  return key == "arguments" || key == "parameters" ? Role::kArguments : Role::kOther;
}

void CallJson::Break() { state_ = State::kBroken; }

bool CallJson::Step(char c) {
  switch (at_) {
    case At::kObject:
      if (IsBlank(c)) return true;
      if (c != '{') break;
      at_ = At::kFirstKey;
      return true;
    case At::kFirstKey:
      if (c == '}') return EndObject();
      [[fallthrough]];
    case At::kKey:
      if (IsBlank(c)) return true;
      if (c != '"') break;
      key_.clear();
      at_ = At::kInKey;
      return true;
    case At::kInKey:
      if (StepString(c)) {
        key_ += c;
      } else {
        at_ = At::kColon;
      }
      return true;
    case At::kColon:
      if (IsBlank(c)) return true;
      if (c != ':') break;
      role_ = RoleOf(key_);
      at_ = At::kValue;
      // A call says what it is before it says anything else; other objects are an answer.
      if (role_ == Role::kOther && name_.empty() && key_ != "type" && key_ != "id") break;
      return true;
    case At::kValue:
      return IsBlank(c) || StartValue(c);
    case At::kInValue:
      return StepValue(c);
    case At::kAfterValue:
      if (IsBlank(c)) return true;
      if (c == '}') return EndObject();
      if (c != ',') break;
      at_ = At::kKey;
      return true;
  }
  Break();
  return false;
}

bool CallJson::StepString(char c) {
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    return false;
  }
  return true;
}

bool CallJson::StartValue(char c) {
  value_.assign(1, c);
  closers_.clear();
  quoted_ = c == '"';
  if (c == '{') closers_ = "}";
  if (c == '[') closers_ = "]";
  at_ = At::kInValue;
  if (role_ == Role::kName && !quoted_) {
    Break();
    return false;
  }
  if (role_ == Role::kArguments) {
    if (seen_arguments_) {
      Break();
      return false;
    }
    seen_arguments_ = true;
    if (c == '{') arguments_ = "{";
  }
  return true;
}

bool CallJson::StepValue(char c) {
  const bool scalar = closers_.empty() && !quoted_;
  if (scalar && (c == ',' || c == '}' || IsBlank(c))) return EndValue() && Step(c);
  const bool opens = !quoted_ && (c == '{' || c == '[');
  const bool closes = !quoted_ && (c == '}' || c == ']');
  if ((opens && closers_.size() >= kDepthMax) ||
      (closes && (closers_.empty() || closers_.back() != c))) {
    Break();
    return false;
  }
  if (role_ == Role::kArguments && value_ == "{") {
    arguments_ += c;
  } else if (role_ != Role::kOther) {
    value_ += c;
  }
  if (quoted_) {
    quoted_ = StepString(c);
    return quoted_ || !closers_.empty() || EndValue();
  }
  quoted_ = c == '"';
  if (opens) closers_ += c == '{' ? '}' : ']';
  if (closes) closers_.pop_back();
  return !closes || !closers_.empty() || EndValue();
}

bool CallJson::EndValue() {
  at_ = At::kAfterValue;
  if (role_ == Role::kName) {
    if (!name_.empty() || !Decode(value_, &name_) || name_.empty()) {
      Break();
      return false;
    }
  } else if (role_ == Role::kArguments && value_ != "{") {
    if (value_.front() == '"') {
      if (!Decode(value_, &arguments_)) {
        Break();
        return false;
      }
    } else {
      arguments_ = value_ == "null" ? "{}" : value_;
    }
    if (arguments_.empty()) arguments_ = "{}";
  }
  return true;
}

bool CallJson::EndObject() {
  if (name_.empty()) {
    Break();
    return false;
  }
  if (!seen_arguments_) arguments_ = "{}";
  state_ = State::kDone;
  return true;
}

}  // namespace reprise
