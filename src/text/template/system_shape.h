// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/chat_template.h"

namespace reprise {

// Which system messages, and in which places, a chat template takes. Clients send them anywhere;
// some templates refuse one that is not the first message, or take none at all. Messages that a
// template does not take become text of a user (or of the tool before them), marked as the
// system's. Results of tools become text of a user in the same way.
struct SystemShape {
  enum class Later {
    kAsIs,  // the template takes system messages anywhere
    kUser,  // a user message of its own
    kJoin,  // the end of the user or tool message before it; without one, as kUser
  };

  bool first = true;    // takes one as first message
  bool several = true;  // takes several at the beginning; otherwise they are joined
  Later later = Later::kAsIs;
  bool tools = true;        // takes messages of tools
  bool join_users = false;  // refuses two user messages in a row: they are joined
};

// Where a message goes.
struct TurnPlace {
  size_t target = 0;      // index among the messages that the template is given
  std::string_view role;  // of the target; of the first message that goes there
  // What stands around its text; empty where the message is what it was.
  std::string_view begin = {};
  std::string_view end = {};

  bool marked() const { return !begin.empty(); }
};

// Finds the shape by rendering short conversations, once a model. Of the ways to show a later
// system message, the one is taken with which the messages before it render most often to the same
// text as without it, so that their state is reused.
SystemShape FindSystemShape(const ChatTemplate& chat_template);

// The places of messages with these roles. What a message becomes depends on it and on those before
// it, never on those after it: conversations that begin alike stay alike. Targets ascend without
// gaps.
std::vector<TurnPlace> PlaceTurns(const SystemShape& shape,
                                  std::span<const std::string_view> roles);

// Whether each message is a target of its own and unchanged.
bool IsUnchanged(std::span<const TurnPlace> places);

// Appends a message to the content of its target.
void AppendPlaced(std::string_view content, const TurnPlace& place, std::string* target);

}  // namespace reprise
