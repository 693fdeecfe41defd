// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::jinja {

enum class TokenKind : uint8_t {
  kText,           // between the tags
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string text;  // of a text, name or operator as written; of a string without its escapes
  int64_t integer = 0;
  double number = 0;

  bool Is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
  bool IsName(std::string_view name) const { return Is(TokenKind::kName, name); }
  bool IsOperator(std::string_view op) const { return Is(TokenKind::kOperator, op); }
};

// How an error message names it.
std::string Describe(const Token& token);

// Cuts a template into tokens, with the white space control that chat templates rely on:
// trim_blocks (a newline right after a block tag goes), lstrip_blocks (blanks between the start of
// the line and a block tag go), "-" at a tag's edge (all white space there goes), "+" (nothing
// goes). Comments and raw blocks are resolved; one newline at the end of the source is dropped.
//
// Fails with the line of what could not be read. REQUIRES: source is valid UTF-8.
// Costs: linear in the source.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace reprise::jinja
