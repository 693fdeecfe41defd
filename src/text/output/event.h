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
    kCallBegin,  // a tool call: `name`, and `id` where the model wrote one
    kArguments,  // more of the arguments of the call that has begun
    kCallEnd,    // the call is over; `complete` says whether its arguments are a JSON object
  };
  Kind kind = Kind::kContent;
  std::string text = {};
  std::string name = {};
  std::string id = {};
  bool complete = false;
};
using OutputEvents = std::vector<OutputEvent>;

// Text (kReasoning, kContent, kArguments) is appended to the last event if it continues it.
void AppendText(OutputEvent::Kind kind, std::string_view text, OutputEvents* events);
// Any event; text is joined as above.
void AppendEvent(OutputEvent event, OutputEvents* events);

}  // namespace reprise
