// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/output/call_json.h"
#include "text/output/call_xml.h"
#include "text/output/event.h"

namespace reprise {

// Finds the tool calls in a reply that marks them with tags, as Qwen, Hermes and many others do:
//   Let me look.
//   <tool_call>
//   {"name": "get_weather", "arguments": {"city": "Paris"}}
//   </tool_call>
// or with <function=...> inside, as Qwen3-Coder and Qwen3.5 do; these sometimes forget the
// <tool_call> around it. White space between the text and the calls is dropped, as templates put it
// there anyway.
//
// A call is passed on when it is complete and its arguments are a JSON object: until then it may
// turn out to be none, and then it is text, tags and all.
class TaggedCallParser {
 public:
  // `tools`: see OutputParser. `functions`: <function=...> is a call without a <tool_call>, too.
  TaggedCallParser(const JsonValue* tools, bool functions) : tools_(tools), functions_(functions) {}

  void Feed(std::string_view text, OutputEvents* events);
  void Finish(OutputEvents* events);

 private:
  enum class State {
    kText,
    kCall,  // after <tool_call>: which form it has is not known yet
    kJson,
    kXml,
    kAfterCall,  // before </tool_call>
  };

  void Run(OutputEvents* events);
  void RunPending(OutputEvents* events);
  bool StepText(OutputEvents* events);
  bool StepCall();
  template <typename Reader>
  bool StepReader(std::optional<Reader>* reader, OutputEvents* events);
  bool StepAfterCall();
  void EmitText(std::string_view text, OutputEvents* events);
  void BackToText(std::string_view rest, OutputEvents* events);

  const JsonValue* const tools_;
  const bool functions_;
  State state_ = State::kText;
  std::string waiting_;  // not yet looked at, from taken_ on
  size_t taken_ = 0;
  std::string pending_;  // not yet understood
  std::string blanks_;   // white space that is dropped if a call follows
  std::string raw_;      // what was read of a call, with the blanks and the tag before it
  size_t raw_tag_ = 0;   // bytes of raw_ up to the end of the tag
  int rescans_left_ = 16;
  std::optional<CallJson> json_;
  std::optional<CallXml> xml_;
  bool after_call_ = false;  // no text since a call
};

// The same for Llama 3: the reply is nothing but calls,
//   {"name": "get_weather", "parameters": {"city": "Paris"}}
// separated by semicolons if there are several, after <|python_tag|> or not. Any answer in JSON
// looks like this, so the name must be that of a tool, and the parameters must be there.
class BareCallParser {
 public:
  explicit BareCallParser(const JsonValue* tools) : tools_(tools) {}

  void Feed(std::string_view text, OutputEvents* events);
  void Finish(OutputEvents* events);

 private:
  enum class State { kStart, kJson, kAfterCall, kText };

  bool StepStart();
  bool StepJson(OutputEvents* events);
  bool StepAfterCall();

  const JsonValue* const tools_;
  State state_ = State::kStart;
  std::string pending_;
  std::string raw_;  // what was read of a call, with what stood before it
  std::optional<CallJson> json_;
};

}  // namespace reprise
