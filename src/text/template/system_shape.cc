// SPDX-License-Identifier: Apache-2.0
#include "text/template/system_shape.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/json_writer.h"

namespace reprise {
namespace {

using Later = SystemShape::Later;

constexpr std::string_view kSystemBegin = "<system>\n";
constexpr std::string_view kSystemEnd = "\n</system>";
constexpr std::string_view kResultBegin = "<tool_response>\n";
constexpr std::string_view kResultEnd = "\n</tool_response>";
constexpr std::string_view kTurnGap = "\n\n";  // between texts of one message

// A message of a probe; assistants may have thought and called a tool.
struct ProbeTurn {
  std::string_view role;
  std::string_view content;
  bool calls = false;
};

constexpr ProbeTurn kSystem = {"system", "probe_system"};
constexpr ProbeTurn kLater = {"system", "probe_later"};
constexpr ProbeTurn kAsk = {"user", "probe_question"};
constexpr ProbeTurn kReply = {"assistant", "probe_answer"};
constexpr ProbeTurn kCall = {"assistant", "probe_text", true};
constexpr ProbeTurn kResult = {"tool", "probe_result"};
constexpr ProbeTurn kAskAgain = {"user", "probe_again"};
constexpr ProbeTurn kReplyAgain = {"assistant", "probe_more"};

using Conversation = std::vector<ProbeTurn>;

void WriteTurn(const ProbeTurn& turn, std::string_view role, std::string_view content,
               bool string_arguments, JsonWriter* json) {
  json->BeginObject().Member("role", role).Member("content", content);
  if (turn.calls) {
    json->Member("reasoning_content", "probe_thought").Key("tool_calls").BeginArray().BeginObject();
    json->Member("id", "call00001").Member("type", "function").Key("function").BeginObject();
    json->Member("name", "probe_tool").Key("arguments");
    string_arguments ? json->String("{}") : json->BeginObject().EndObject();
    json->EndObject().EndObject().EndArray();
  }
  if (role == "tool") json->Member("tool_call_id", "call00001").Member("name", "probe_tool");
  json->EndObject();
}

// The messages of a conversation in the places that a shape gives them.
std::string Format(const Conversation& turns, const SystemShape& shape, bool string_arguments) {
  std::vector<std::string_view> roles;
  for (const ProbeTurn& turn : turns) roles.push_back(turn.role);
  const std::vector<TurnPlace> places = PlaceTurns(shape, roles);
  std::string text;
  JsonWriter json(&text);
  json.BeginArray();
  for (size_t i = 0; i < turns.size();) {
    const size_t first = i;
    std::string content;
    for (; i < turns.size() && places[i].target == places[first].target; ++i) {
      AppendPlaced(turns[i].content, places[i], &content);
    }
    WriteTurn(turns[first], places[first].role, content, string_arguments, &json);
  }
  json.EndArray();
  return text;
}

// Nothing if the template refuses the conversation.
std::optional<std::string> Render(const ChatTemplate& chat_template, const Conversation& turns,
                                  const SystemShape& shape) {
  for (const bool string_arguments : {false, true}) {
    const auto messages = JsonDocument::Parse(Format(turns, shape, string_arguments));
    ChatInput input;
    input.messages = &messages->root();
    input.special_tokens = {{"bos_token", ""}, {"eos_token", ""}};
    input.add_generation_prompt = false;
    input.boundary_messages_max = 0;
    auto rendered = chat_template.Render(input);
    if (rendered.ok()) return std::move(rendered->text);
  }
  return std::nullopt;
}

bool ShowsAll(const std::string& text, const Conversation& turns) {
  return std::all_of(turns.begin(), turns.end(), [&](const ProbeTurn& turn) {
    return text.find(turn.content) != std::string::npos;
  });
}

bool Takes(const ChatTemplate& chat_template, const Conversation& turns, const SystemShape& shape) {
  const auto text = Render(chat_template, turns, shape);
  return text && ShowsAll(*text, turns);
}

// Conversations with a system message in the middle or at the end.
std::vector<Conversation> LaterProbes(bool with_first) {
  std::vector<Conversation> probes = {
      {kAsk, kLater},
      {kAsk, kLater, kReply, kAskAgain},
      {kAsk, kReply, kLater, kAskAgain},
      {kAsk, kCall, kResult, kLater},
      {kAsk, kCall, kResult, kLater, kReplyAgain, kAskAgain},
  };
  if (!with_first) return probes;
  const size_t count = probes.size();
  for (size_t i = 0; i < count; ++i) {
    Conversation probe = probes[i];
    probe.insert(probe.begin(), kSystem);
    probes.push_back(std::move(probe));
  }
  return probes;
}

bool IsLater(const ProbeTurn& turn) { return turn.content == kLater.content; }

// Whether the messages before the later system message render to the same text with it.
bool KeepsPrefix(const ChatTemplate& chat_template, const Conversation& turns,
                 const SystemShape& shape) {
  const auto later = std::find_if(turns.begin(), turns.end(), IsLater);
  const auto before = Render(chat_template, Conversation(turns.begin(), later), shape);
  const auto with = Render(chat_template, Conversation(turns.begin(), later + 1), shape);
  if (!before || !with) return true;  // the template says nothing of that prefix
  const size_t same = static_cast<size_t>(
      std::mismatch(before->begin(), before->end(), with->begin(), with->end()).first -
      before->begin());
  const std::string_view last = std::prev(later)->content;
  const size_t shown = before->rfind(last);
  const size_t system = with->find(kLater.content);
  return shown != std::string::npos && shown + last.size() <= same && system >= shown + last.size();
}

// In how many conversations the messages before the later system message keep their text; -1 if a
// conversation is refused that the template takes without that message.
int Fitness(const ChatTemplate& chat_template, const SystemShape& shape) {
  int kept = 0;
  for (const Conversation& turns : LaterProbes(shape.first)) {
    Conversation without;
    std::copy_if(turns.begin(), turns.end(), std::back_inserter(without),
                 [](const ProbeTurn& turn) { return !IsLater(turn); });
    if (!Takes(chat_template, without, shape)) continue;
    if (!Takes(chat_template, turns, shape)) return -1;
    if (KeepsPrefix(chat_template, turns, shape)) ++kept;
  }
  return kept;
}

}  // namespace

SystemShape FindSystemShape(const ChatTemplate& chat_template) {
  SystemShape shape;
  shape.join_users = Takes(chat_template, {kAsk, kReply, kAskAgain}, shape) &&
                     !Takes(chat_template, {kAsk, kAskAgain}, shape);
  shape.first =
      Takes(chat_template, {kSystem, kAsk}, shape) || !Takes(chat_template, {kAsk}, shape);
  shape.tools = Takes(chat_template, {kAsk, kCall, kResult}, shape) ||
                Takes(chat_template, {kAsk, kReply, kResult}, shape) ||
                !Takes(chat_template, {kAsk, kReply, kAskAgain}, shape);
  shape.several = Takes(chat_template, {kSystem, kLater, kAsk}, shape);
  SystemShape best = shape;
  best.later = Later::kJoin;
  int most = -1;
  for (const Later later : {Later::kAsIs, Later::kUser, Later::kJoin}) {
    shape.later = later;
    const int kept = Fitness(chat_template, shape);
    if (kept <= most) continue;
    most = kept;
    best = shape;
  }
  return best;
}

std::vector<TurnPlace> PlaceTurns(const SystemShape& shape,
                                  std::span<const std::string_view> roles) {
  std::vector<TurnPlace> places;
  places.reserve(roles.size());
  size_t next = 0;
  bool leading = true;
  for (const std::string_view role : roles) {
    TurnPlace place;
    place.role = role;
    const bool system = role == "system";
    const std::string_view before = places.empty() ? std::string_view() : places.back().role;
    bool joins = false;
    if (system && leading) {
      if (!shape.first) place.begin = kSystemBegin;
      joins = next > 0 && (!shape.first || !shape.several);
    } else if (system && shape.later != Later::kAsIs) {
      place.begin = kSystemBegin;
      joins = shape.later == Later::kJoin && (before == "user" || before == "tool");
    } else if (role == "tool" && !shape.tools) {
      place.begin = kResultBegin;
    }
    if (place.marked()) {
      place.role = "user";
      place.end = system ? kSystemEnd : kResultEnd;
    }
    leading = leading && system;
    if (place.role == "user" && before == "user" && shape.join_users) joins = true;
    if (joins) place.role = before;
    place.target = joins ? next - 1 : next++;
    places.push_back(place);
  }
  return places;
}

bool IsUnchanged(std::span<const TurnPlace> places) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].target != i || places[i].marked()) return false;
  }
  return true;
}

void AppendPlaced(std::string_view content, const TurnPlace& place, std::string* target) {
  if (!target->empty()) *target += kTurnGap;
  *target += place.begin;
  *target += content;
  *target += place.end;
}

}  // namespace reprise
