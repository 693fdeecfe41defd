// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "text/output/formats.h"
#include "text/template/chat_template.h"

namespace reprise {

// A call as the APIs know it.
struct WrittenCall {
  std::string name;
  std::string id;
  std::string arguments;  // a JSON object
};

// The calls as a model of this format would have written them; nothing for a format whose arguments
// are not JSON or Python (no template needs it).
std::optional<std::string> WriteCalls(const CallFormat& format, std::span<const WrittenCall> calls);

// How a template wants to be shown the calls of an assistant's message: templates differ in what
// they accept, and some show no calls at all.
struct CallShape {
  bool null_content = false;      // the message's content must be null, not empty
  bool string_arguments = false;  // the arguments as text, not as an object
  bool as_content = false;        // the template drops calls: they must stand in the content
};

// Found by trying: the first shape with which a call is in the rendered text. Costs some renders of
// a short conversation: once a model.
CallShape FindCallShape(const ChatTemplate& chat_template);

}  // namespace reprise
