// SPDX-License-Identifier: Apache-2.0
#include "api/chat/placed_turns.h"

#include <string_view>
#include <utility>

namespace reprise::api {
namespace {

std::vector<TurnPlace> PlacesOf(const SystemShape& shape, const std::vector<ChatTurn>& turns) {
  std::vector<std::string_view> roles;
  roles.reserve(turns.size());
  for (const ChatTurn& turn : turns) roles.push_back(turn.role);
  return PlaceTurns(shape, roles);
}

// Moves turns to these places.
PlacedTurns Place(const std::vector<TurnPlace>& places, const std::vector<ChatTurn>& turns,
                  const std::vector<Breakpoint>& breakpoints) {
  PlacedTurns placed;
  std::vector<size_t> offsets;  // of each turn's text in its target
  for (size_t i = 0; i < turns.size(); ++i) {
    if (places[i].target < placed.turns.size()) {
      std::string& content = placed.turns.back().content;
      AppendPlaced(turns[i].content, places[i], &content);
      const size_t moved = content.size() - places[i].end.size() - turns[i].content.size();
      for (TurnPicture picture : turns[i].pictures) {
        picture.content_bytes += moved;
        placed.turns.back().pictures.push_back(std::move(picture));
      }
    } else {
      placed.turns.push_back(turns[i]);
      placed.turns.back().role = places[i].role;
      if (places[i].marked()) {
        std::string& content = placed.turns.back().content;
        content.clear();
        AppendPlaced(turns[i].content, places[i], &content);
        const size_t moved = content.size() - places[i].end.size() - turns[i].content.size();
        for (TurnPicture& picture : placed.turns.back().pictures) picture.content_bytes += moved;
      }
    }
    const size_t behind = turns[i].content.size() + places[i].end.size();
    offsets.push_back(placed.turns.back().content.size() - behind);
  }
  for (Breakpoint breakpoint : breakpoints) {
    if (breakpoint.turn >= 0) {
      const auto turn = static_cast<size_t>(breakpoint.turn);
      breakpoint.turn = static_cast<int32_t>(places[turn].target);
      breakpoint.content_bytes += offsets[turn];
    }
    placed.breakpoints.push_back(breakpoint);
  }
  return placed;
}

// At the end of the first system message; without one, in a message of its own.
void AddToSystem(const std::string& text, PlacedTurns* placed) {
  if (!placed->turns.empty() && placed->turns.front().role == "system") {
    placed->turns.front().content += "\n\n" + text;
    return;
  }
  ChatTurn system;
  system.role = "system";
  system.content = text;
  placed->turns.insert(placed->turns.begin(), std::move(system));
  for (Breakpoint& breakpoint : placed->breakpoints) {
    if (breakpoint.turn >= 0) ++breakpoint.turn;
  }
}

}  // namespace

std::optional<PlacedTurns> FitToTemplate(const ServedModel& model, const std::string& tools,
                                         const std::vector<ChatTurn>& turns,
                                         const std::vector<Breakpoint>& breakpoints) {
  std::optional<PlacedTurns> fitted;
  if (model.call_shape.tools_as_text && !tools.empty() && !model.output.calls.empty()) {
    const std::string text = DescribeTools(*model.output.calls.front(), tools);
    fitted = PlacedTurns{turns, breakpoints};
    if (!text.empty()) AddToSystem(text, &*fitted);
  }
  const std::vector<ChatTurn>& given = fitted ? fitted->turns : turns;
  const std::vector<TurnPlace> places = PlacesOf(model.system_shape, given);
  if (IsUnchanged(places)) return fitted;
  return Place(places, given, fitted ? fitted->breakpoints : breakpoints);
}

}  // namespace reprise::api
