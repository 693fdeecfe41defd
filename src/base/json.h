// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise {

// JSON documents: configuration files, tokenizer.json, safetensors headers, request bodies.
//
// Parsing is strict (RFC 8259), validates UTF-8, keeps the order of members, and works within
// limits, because every document is hostile: depth, and the number of values, which may take twenty
// times the memory of the text that spells them ("[0,0,..."). Numbers keep their spelling. Members
// are found by linear search (objects in these formats are small, or are walked in order:
// vocabularies).
//
// A JsonValue is a cheap handle into its JsonDocument, which owns the memory and must outlive it.
// Thread safety: a parsed document is immutable.
class JsonValue {
 public:
  enum class Kind : uint8_t { kNull, kBool, kInt, kDouble, kString, kArray, kObject };
  struct Member;

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_number() const { return kind_ == Kind::kInt || kind_ == Kind::kDouble; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // REQUIRES: the kind of the accessor, except as_double, which takes both numbers.
  bool as_bool() const {
    CHECK(is_bool());
    return bool_;
  }
  int64_t as_int() const {
    CHECK(is_int());
    return int_;
  }
  double as_double() const {
    CHECK(is_number());
    return is_int() ? double(int_) : number_->value;
  }
  // A number that is no integer of 64 bits, as it was written: "1.50".
  std::string_view spelling() const {
    CHECK(kind_ == Kind::kDouble);
    return {number_->spelling, size_};
  }
  std::string_view as_string() const {
    CHECK(is_string());
    return {text_, size_};
  }
  std::span<const JsonValue> items() const;  // of an array
  std::span<const Member> members() const;   // of an object

  // The member of that name, or null if absent or if this is not an object. The last of duplicates
  // is never reached: duplicate keys are refused by the parser.
  const JsonValue* Find(std::string_view key) const;

 private:
  friend class JsonParser;
  struct Number {
    double value;
    const char* spelling;  // size_ bytes
  };
  Kind kind_ = Kind::kNull;
  uint32_t size_ = 0;  // bytes, items or members
  union {
    bool bool_;
    int64_t int_ = 0;
    const Number* number_;
    const char* text_;
    const JsonValue* items_;
    const Member* members_;
  };
};

struct JsonValue::Member {
  std::string_view key;
  JsonValue value;
};

// What a document may be made of.
struct JsonLimits {
  int depth_max = 64;
  size_t value_count_max = SIZE_MAX;  // values and members; some 100 bytes each at worst
};

class JsonDocument {
 public:
  // Fails with kInvalidArgument and the byte offset of the first error.
  static Result<JsonDocument> Parse(std::string_view text, const JsonLimits& limits = JsonLimits());

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  const JsonValue& root() const { return root_; }

 private:
  friend class JsonParser;
  JsonDocument();
  struct Arena;
  std::unique_ptr<Arena> arena_;
  JsonValue root_;
};

// Appends `text` as a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace reprise
