// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/chat/job.h"
#include "api/served_model.h"

namespace reprise::api {

// The turns of a conversation as a template takes them, and the breakpoints that lie in them.
struct PlacedTurns {
  std::vector<ChatTurn> turns;
  std::vector<Breakpoint> breakpoints;
};

// Fits turns to the model's template: describes the tools in the system message where the template
// shows none, and moves messages to where the template takes them (SystemShape). Turns that begin
// alike stay alike, so that the prefix of a conversation keeps its text. Nothing if the template
// takes the turns as they are.
std::optional<PlacedTurns> FitToTemplate(const ServedModel& model, const std::string& tools,
                                         const std::vector<ChatTurn>& turns,
                                         const std::vector<Breakpoint>& breakpoints);

}  // namespace reprise::api
