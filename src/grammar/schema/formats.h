// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace reprise::grammar {

struct StringFormat {
  enum class Kind : unsigned char {
    kPattern,     // `pattern` matches the whole string
    kAnnotation,  // says nothing about the string: names that no specification defines
    kRefused,     // defined, but beyond regular languages
  };
  Kind kind = Kind::kAnnotation;
  std::string_view pattern = {};
};

// What JSON Schema's `format: name` asks of a string.
StringFormat FindFormat(std::string_view name);

}  // namespace reprise::grammar
