// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace reprise::api {

// What a client asks the reply to look like, whichever API it speaks. Two independent parts: what
// the answer is made of, and what becomes of tool calls.
struct OutputRule {
  enum class Answer {
    kFree,
    kJsonObject,
    kJsonSchema,  // text: the schema
    kRegex,       // text: the pattern, for the whole answer
    kChoice,      // choices
    kGrammar,     // text: GBNF or Lark
  };
  enum class Calls {
    kFree,      // as the model likes, unchecked
    kStrict,    // if the model calls, name and arguments are bound by the tools
    kRequired,  // the reply is a call
  };

  Answer answer = Answer::kFree;
  std::string text = {};
  std::vector<std::string> choices = {};
  Calls calls = Calls::kFree;
  std::string only_tool = {};  // the one that must be called; empty: any
  std::string field = {};      // where the client asked for it: for errors

  bool free() const { return answer == Answer::kFree && calls == Calls::kFree; }
};

}  // namespace reprise::api
