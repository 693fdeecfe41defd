// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace reprise {

// Members of JSON objects with defaults. A member of another kind than expected counts as absent,
// which is how the programs that write these files read them.

inline std::string_view StringField(const JsonValue& object, std::string_view key,
                                    std::string_view otherwise = {}) {
  const JsonValue* value = object.Find(key);
  return value != nullptr && value->is_string() ? value->as_string() : otherwise;
}

inline bool BoolField(const JsonValue& object, std::string_view key, bool otherwise) {
  const JsonValue* value = object.Find(key);
  return value != nullptr && value->is_bool() ? value->as_bool() : otherwise;
}

inline int64_t IntField(const JsonValue& object, std::string_view key, int64_t otherwise) {
  const JsonValue* value = object.Find(key);
  return value != nullptr && value->is_int() ? value->as_int() : otherwise;
}

// The member if it is there and is not null.
inline const JsonValue* FieldOrNull(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

}  // namespace reprise
