// SPDX-License-Identifier: Apache-2.0
#include "api/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace reprise::api {

Fields::Fields(const JsonValue& object, std::string prefix)
    : object_(object),
      prefix_(std::move(prefix)),
      read_(object.is_object() ? object.members().size() : 0, false) {}

const JsonValue* Fields::Find(std::string_view name) const {
  // Of the body itself: parts are many, and nothing looks at what was asked of them.
  if (prefix_.empty()) asked_.emplace_back(name);
  const JsonValue* found = FindMember(name);
  if (!dialect_) return found;
  for (const KnownField& field : KnownFields()) {
    if (field.kind != KnownField::Kind::kAlias || field.text != name) continue;
    const JsonValue* other = field.IsOf(*dialect_) ? FindMember(field.name) : nullptr;
    if (found == nullptr) found = other;
  }
  return found;
}

std::string_view Fields::SentName(std::string_view name) const {
  const auto sent = [&](std::string_view known) {
    return object_.is_object() && object_.Find(known) != nullptr;
  };
  if (!dialect_ || sent(name)) return name;
  for (const KnownField& field : KnownFields()) {
    const bool alias = field.kind == KnownField::Kind::kAlias && field.text == name;
    if (alias && field.IsOf(*dialect_) && sent(field.name)) return field.name;
  }
  return name;
}

const JsonValue* Fields::FindMember(std::string_view name) const {
  for (size_t i = 0; i < read_.size(); ++i) {
    const JsonValue::Member& member = object_.members()[i];
    if (member.key != name) continue;
    read_[i] = true;
    return member.value.is_null() ? nullptr : &member.value;
  }
  return nullptr;
}

std::vector<const JsonValue::Member*> Fields::Unread() const {
  std::vector<const JsonValue::Member*> unread;
  for (size_t i = 0; i < read_.size(); ++i) {
    const JsonValue::Member& member = object_.members()[i];
    if (!read_[i] && !member.value.is_null()) unread.push_back(&member);
  }
  return unread;
}

void Fields::Fail(std::string_view name, std::string message, std::string code) {
  if (error_) return;
  const std::string param = prefix_ + std::string(SentName(name));
  error_ = ApiError{400, param + " " + std::move(message), param, std::move(code)};
}

void Fields::Pass(std::string_view name) {
  std::string full = prefix_ + std::string(name);
  if (std::find(passed_.begin(), passed_.end(), full) == passed_.end()) {
    passed_.push_back(std::move(full));
  }
}

void Fields::Take(const Fields& part) {
  if (!error_) error_ = part.error_;
  passed_.insert(passed_.end(), part.passed_.begin(), part.passed_.end());
}

void Fields::Read(std::string_view name, double low, double high, float* value) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  if (!found->is_number() || !std::isfinite(found->as_double()) || found->as_double() < low ||
      found->as_double() > high) {
    return Fail(name, fmt::format("must be a number between {} and {}", low, high));
  }
  *value = static_cast<float>(found->as_double());
}

void Fields::Read(std::string_view name, int64_t low, int64_t high, int64_t* value) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  // 3.0 is an integer to JavaScript.
  const bool integral =
      found->is_int() || (found->is_number() && std::abs(found->as_double()) < 9e15 &&
                          std::trunc(found->as_double()) == found->as_double());
  const int64_t number = !integral         ? 0
                         : found->is_int() ? found->as_int()
                                           : static_cast<int64_t>(found->as_double());
  if (!integral || number < low || number > high) {
    return Fail(name, fmt::format("must be an integer between {} and {}", low, high));
  }
  *value = number;
}

void Fields::Read(std::string_view name, int64_t low, int64_t high, int32_t* value) {
  int64_t wide = *value;
  Read(name, low, high, &wide);
  *value = static_cast<int32_t>(wide);
}

void Fields::Read(std::string_view name, bool* value) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  if (!found->is_bool()) return Fail(name, "must be true or false");
  *value = found->as_bool();
}

void Fields::Read(std::string_view name, size_t bytes_max, std::string* value) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return;
  if (!found->is_string()) return Fail(name, "must be a string");
  if (found->as_string().size() > bytes_max) {
    return Fail(name, fmt::format("must have at most {} bytes", bytes_max));
  }
  *value = std::string(found->as_string());
}

void Fields::Leave(std::string_view name, double neutral) {
  const JsonValue* found = Find(name);
  if (found == nullptr || (found->is_number() && found->as_double() == neutral)) return;
  Fail(name, fmt::format("is not supported by this server; leave it at {}", neutral));
}

const JsonValue* Fields::Array(std::string_view name, size_t count_max) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return nullptr;
  if (!found->is_array()) {
    Fail(name, "must be an array");
    return nullptr;
  }
  if (found->items().size() > count_max) {
    Fail(name, fmt::format("must have at most {} items", count_max));
    return nullptr;
  }
  return found;
}

const JsonValue* Fields::Object(std::string_view name) {
  const JsonValue* found = Find(name);
  if (found == nullptr) return nullptr;
  if (found->is_object()) return found;
  Fail(name, "must be an object");
  return nullptr;
}

}  // namespace reprise::api
