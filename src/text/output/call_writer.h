// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/output/formats.h"
#include "text/template/chat_template.h"
#include "text/text_range.h"

namespace reprise {

// A call as the APIs know it.
struct WrittenCall {
  std::string name;
  std::string id;
  std::string arguments;  // a JSON object
};

// Calls as text. The markers around them are the model's own words; names, ids and arguments are
// data, which stays text whatever it spells.
struct CallText {
  std::string text;
  std::vector<TextRange> data;  // ascending
};

// The calls as a model of this format would have written them; nothing for a format whose arguments
// are not JSON or Python (no template needs it).
std::optional<CallText> WriteCalls(const CallFormat& format, std::span<const WrittenCall> calls);

// How a template wants to be shown the calls of an assistant's message, and the thoughts before
// them: templates differ in what they accept, and some show no calls at all.
struct CallShape {
  bool null_content = false;      // the message's content must be null, not empty
  bool string_arguments = false;  // the arguments as text, not as an object
  bool as_content = false;        // the template drops calls: they must stand in the content
  bool tools_as_text = false;     // the template shows no tools: they must stand in the system text
  bool thinking_member = false;   // thoughts in "thinking", not in "reasoning_content" (gpt-oss)
  bool thoughts_alone = false;    // the template refuses thoughts beside content
};

// Found by trying: the first shape with which a call is in the rendered text. Costs some renders of
// a short conversation: once a model.
CallShape FindCallShape(const ChatTemplate& chat_template);

// What tells a model of tools (a JSON array) and of how to call them, for a template that shows
// none. Empty for a format that WriteCalls does not write.
std::string DescribeTools(const CallFormat& format, std::string_view tools);

}  // namespace reprise
