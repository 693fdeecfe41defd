// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "grammar/grammar.h"
#include "text/output/formats.h"

namespace reprise::grammar {

// Special tokens in a text: this byte, which UTF-8 never has, then the token's name. Vocabularies
// for replies spell them so (TokenTrie), and no other token with it: only the token itself is one.
inline constexpr char kSpecialByte = '\xFF';

// How a reply is put together around what it must say: reasoning before it, calls in the model's
// own syntax. Markers are written as the model's template writes them; names of special tokens in
// them are those tokens.
class ReplyGrammar {
 public:
  // `special`: the names of special tokens that may stand in markers.
  ReplyGrammar(Grammar* grammar, std::vector<std::string> special);

  struct CallRules {
    std::string only = {};  // the name of the only tool that may be called; empty: any
    bool one = false;       // no more than one call
  };
  // One or more calls, and nothing else. The arguments are what the tool's schema allows; if that
  // cannot be enforced and the tool is neither "strict" nor the only one, any JSON object. Fails
  // with kUnimplemented, naming it, for a format or a schema that cannot be enforced; with
  // kInvalidArgument if there is no such tool.
  Result<RuleId> AddCalls(const CallFormat& format, const JsonValue& tools, const CallRules& rules);

  // Any text, then perhaps `calls`: what a reply is if it need not call. REQUIRES: a marked format.
  Result<RuleId> AddTextThenCalls(const CallFormat& format, RuleId calls);

  // `inner` with reasoning before it: open already, or to be opened, or none.
  RuleId AddReasoning(const ReasoningFormat& format, bool begun, RuleId inner);

  // Either of them.
  RuleId AddChoice(std::span<const RuleId> rules);

 private:
  RegexId Marker(std::string_view text);
  RegexId TextUntil(std::string_view marker);  // up to and with its first occurrence
  StateId Write(StateId from, std::string_view marker);
  Result<StateId> AddCall(const CallFormat& format, const JsonValue& function, StateId from);
  Status AddArguments(const JsonValue& function, StateId from, StateId to);
  Result<StateId> AddParameters(const CallFormat& format, const JsonValue* schema, StateId from);
  Result<StateId> AddParameter(const CallFormat& format, std::string_view name,
                               const JsonValue& root, const JsonValue& schema, StateId from);
  Result<RegexId> PlainString(const JsonValue& schema, std::string_view end);
  Result<RegexId> StringsAmongOthers(const JsonValue& schema, std::string_view end);
  RegexId TakenForOthers(const JsonValue& schema);

  Grammar& grammar_;
  RegexPool& pool_;
  const std::vector<std::string> special_;  // longest first
  bool forced_ = false;                     // there is one tool, and it must be called
};

}  // namespace reprise::grammar
