// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace reprise {

// Writes JSON text, member by member. Commas and quotes are its work; the order of calls is the
// caller's:
//
//   JsonWriter json(&out);
//   json.BeginObject().Member("id", id).Key("items").BeginArray();
//   for (...) json.Int(item);
//   json.EndArray().EndObject();
//
// Thread safety: none.
class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(*out) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view key);

  JsonWriter& String(std::string_view text);  // invalid UTF-8 becomes U+FFFD
  JsonWriter& Int(int64_t value);
  JsonWriter& Uint(uint64_t value);
  JsonWriter& Double(double value);  // not finite: null
  JsonWriter& Float(float value);    // 0.9f is written as 0.9
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  JsonWriter& Raw(std::string_view json);     // a whole value that is JSON already
  JsonWriter& Value(const JsonValue& value);  // numbers as they were spelled

  // A key and its value.
  JsonWriter& Member(std::string_view key, std::string_view text) { return Key(key).String(text); }
  JsonWriter& Member(std::string_view key, const char* text) { return Key(key).String(text); }
  JsonWriter& Member(std::string_view key, bool value) { return Key(key).Bool(value); }
  JsonWriter& Member(std::string_view key, int value) { return Key(key).Int(value); }
  JsonWriter& Member(std::string_view key, int64_t value) { return Key(key).Int(value); }
  JsonWriter& Member(std::string_view key, uint64_t value) { return Key(key).Uint(value); }
  JsonWriter& Member(std::string_view key, double value) { return Key(key).Double(value); }
  JsonWriter& Member(std::string_view key, float value) { return Key(key).Float(value); }

 private:
  template <typename T>
  JsonWriter& Number(T value);
  void Separate();
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);

  std::string& out_;
  bool first_ = true;  // nothing was written since the last opening bracket or key
};

}  // namespace reprise
