// SPDX-License-Identifier: Apache-2.0
#include "text/output/event.h"

#include <utility>

namespace reprise {

void AppendText(OutputEvent::Kind kind, std::string_view text, OutputEvents* events) {
  if (text.empty()) return;
  if (!events->empty() && events->back().kind == kind) {
    events->back().text += text;
    return;
  }
  events->push_back({kind, std::string(text), ""});
}

void AppendCall(std::string name, std::string arguments, OutputEvents* events) {
  events->push_back({OutputEvent::Kind::kCall, std::move(arguments), std::move(name)});
}

}  // namespace reprise
