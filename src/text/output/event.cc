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
  OutputEvent event;
  event.kind = kind;
  event.text = text;
  events->push_back(std::move(event));
}

void AppendEvent(OutputEvent event, OutputEvents* events) {
  const bool marks =
      event.kind == OutputEvent::Kind::kCallBegin || event.kind == OutputEvent::Kind::kCallEnd;
  if (marks) {
    events->push_back(std::move(event));
  } else {
    AppendText(event.kind, event.text, events);
  }
}

}  // namespace reprise
