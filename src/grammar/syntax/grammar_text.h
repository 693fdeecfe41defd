// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/status.h"
#include "grammar/grammar.h"

namespace reprise::grammar {

// A grammar as people write it, in one of two notations:
//
//   GBNF (llama.cpp): root ::= "a" [0-9]+ item{2,3} | .        begins with `root`
//   Lark:             start: "a" /[0-9]+/ [item] ITEM~2..3     begins with `start`
//
// A text with "::=" in it is GBNF. Names of rules and terminals are alike: there is no lexer that
// would prefer the longest match, and nothing is skipped between them. Left recursion is welcome.
//
// Appends the rules to `grammar` and returns the first one. Fails with kInvalidArgument and the
// line of the first error, with kUnimplemented for %ignore, %import, priorities, templates and
// flags.
Result<RuleId> AddGrammarText(std::string_view text, Grammar* grammar);

}  // namespace reprise::grammar
