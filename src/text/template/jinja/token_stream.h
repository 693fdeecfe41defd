// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/template/jinja/lexer.h"

namespace reprise::jinja {

// The tokens of a template, read one after the other. The last is kEnd and never passed.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  uint32_t line() const { return current().line; }

  const Token& Next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool SkipName(std::string_view name) { return current().IsName(name) && (Next(), true); }
  bool SkipOperator(std::string_view op) { return current().IsOperator(op) && (Next(), true); }

  Status Fail(std::string message) const { return FailAt(line(), std::move(message)); }
  static Status FailAt(uint32_t line, std::string message) {
    return InvalidArgument("line " + std::to_string(line) + ": " + std::move(message));
  }
  Status Expect(TokenKind kind, std::string_view what) {
    if (current().kind != kind) return Unexpected(what);
    Next();
    return OkStatus();
  }
  Status ExpectOperator(std::string_view op) {
    return SkipOperator(op) ? OkStatus() : Unexpected("'" + std::string(op) + "'");
  }
  Result<std::string> ExpectIdentifier() {
    if (current().kind != TokenKind::kName) return Unexpected("a name");
    return Next().text;
  }

 private:
  Status Unexpected(std::string_view expected) const {
    return Fail("expected " + std::string(expected) + ", got " + Describe(current()));
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace reprise::jinja
