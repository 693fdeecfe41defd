// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat/reply.h"

namespace reprise::api {

// One block of a reply: text (kContent), thinking (kReasoning) or a call (kCallBegin), as the
// vendors' APIs list them.
struct Block {
  OutputEvent::Kind kind = OutputEvent::Kind::kContent;
  std::string text;  // of a call: the arguments, JSON
  std::string name;
  std::string id;
  bool complete = true;  // of a call: the arguments are a JSON object
};

// Adds an event to the blocks of a reply; `id` is that of a call. True if it began a new one.
bool AddEvent(const OutputEvent& event, std::string_view id, std::vector<Block>* blocks);

// Calls `add` with each event and the id of the call that it begins, if it does.
template <typename Add>
void ForEachEvent(const Delta& delta, Add add) {
  size_t call = delta.calls_before;
  for (const OutputEvent& event : delta.events) {
    const bool begins = event.kind == OutputEvent::Kind::kCallBegin;
    add(event, begins ? (*delta.calls)[call++].id : std::string());
  }
}

// `prefix` and random letters and digits: a name, not a secret.
std::string MakeRandomId(std::string_view prefix, size_t letters = 24);

}  // namespace reprise::api
