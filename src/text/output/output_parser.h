// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/output/event.h"

namespace reprise {

// How a model writes its replies.
struct OutputFormat {
  enum class Calls {
    kNone,    // everything is text
    kTagged,  // <tool_call> with JSON or <function=...> inside
    kBare,    // Llama 3: the reply is a JSON object
  };
  Calls calls = Calls::kNone;
  bool functions = false;       // kTagged: <function=...> needs no <tool_call> around it
  bool thinks = false;          // may begin with <think>
  bool thinking_begun = false;  // the prompt ended with <think>

  // From a model's chat template, which shows the model its own format, and the prompt that was
  // rendered with it. Without tools in the request nothing is taken for a call.
  static OutputFormat Detect(std::string_view chat_template, std::string_view prompt,
                             bool with_tools);
};

// Turns the text of a reply, as it arrives, into what the APIs report: reasoning, content and tool
// calls. However the text is cut, the events add up to the same. The text is never lost: what looks
// like a call but is none, or is cut off, is content. Nothing is passed on that later text could
// take back: not the beginning of a tag, nor a call that is not complete.
//
// Thread safety: none. Costs: linear in the text.
class OutputParser {
 public:
  // `tools`: those of the request, or null. Must outlive the parser.
  OutputParser(const OutputFormat& format, const JsonValue* tools);
  ~OutputParser();

  OutputEvents Feed(std::string_view text);
  OutputEvents Finish();  // the reply is over

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A whole reply at once.
struct ParsedOutput {
  struct Call {
    std::string name;
    std::string arguments;  // a JSON object
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
};
ParsedOutput ParseOutput(const OutputFormat& format, const JsonValue* tools, std::string_view text);

}  // namespace reprise
