// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace reprise {

// A piece of a reply, in the order in which the model wrote it. Pieces of text of the same kind
// that follow each other belong together; how they are cut depends on how the text arrived, what
// they add up to does not.
struct OutputEvent {
  enum class Kind {
    kReasoning,  // text the model thought
    kContent,    // text for the reader
    kCall,       // a tool call, complete: `text` is its arguments, a JSON object
  };
  Kind kind = Kind::kContent;
  std::string text;
  std::string name;  // the function, of a call
};
using OutputEvents = std::vector<OutputEvent>;

// Text is appended to the last event if it continues it.
void AppendText(OutputEvent::Kind kind, std::string_view text, OutputEvents* events);
void AppendCall(std::string name, std::string arguments, OutputEvents* events);

}  // namespace reprise
