// SPDX-License-Identifier: Apache-2.0
#include "base/json_writer.h"

#include <charconv>
#include <cmath>

namespace reprise {

void JsonWriter::Separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  out_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  AppendJsonString(key, &out_);
  out_ += ':';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view text) {
  Separate();
  AppendJsonString(text, &out_);
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) { return Raw(std::to_string(value)); }

JsonWriter& JsonWriter::Uint(uint64_t value) { return Raw(std::to_string(value)); }

// The shortest text that reads as the same number of that type.
template <typename T>
JsonWriter& JsonWriter::Number(T value) {
  if (!std::isfinite(value)) return Null();
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  return Raw(std::string_view(digits, static_cast<size_t>(end - digits)));
}

JsonWriter& JsonWriter::Double(double value) { return Number(value); }

JsonWriter& JsonWriter::Float(float value) { return Number(value); }

JsonWriter& JsonWriter::Bool(bool value) { return Raw(value ? "true" : "false"); }

JsonWriter& JsonWriter::Null() { return Raw("null"); }

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::Value(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return Null();
    case JsonValue::Kind::kBool:
      return Bool(value.as_bool());
    case JsonValue::Kind::kInt:
      return Int(value.as_int());
    case JsonValue::Kind::kDouble:
      return Raw(value.spelling());
    case JsonValue::Kind::kString:
      return String(value.as_string());
    case JsonValue::Kind::kArray:
      BeginArray();
      for (const JsonValue& item : value.items()) Value(item);
      return EndArray();
    case JsonValue::Kind::kObject:
      BeginObject();
      for (const JsonValue::Member& member : value.members()) Key(member.key).Value(member.value);
      return EndObject();
  }
  return *this;
}

}  // namespace reprise
