// SPDX-License-Identifier: Apache-2.0
#include "api/chat/voice/speech.h"

#include <algorithm>
#include <utility>

#include "api/chat/blocks.h"

namespace reprise::api {
namespace {

Detokenizer::Options OptionsFor(const OutputFormat& format) {
  Detokenizer::Options options;
  options.at_start = false;
  options.shown = format.shown.get();
  options.marked = format.call_tokens.get();
  options.mark = kTokenByte;
  return options;
}

}  // namespace

Speech::Speech(const SpeechRules& rules, Choice* choice)
    : rules_(rules),
      choice_(*choice),
      detokenizer_(*rules.tokenizer, OptionsFor(*rules.format)),
      stops_(rules.stops),
      parser_(*rules.format, rules.tools) {}

std::string Speech::Spell(const GeneratedToken& token) {
  std::string text;
  detokenizer_.Append(token.chosen.token, &text);
  return text;
}

void Speech::Say(const GeneratedToken& token, std::string_view text, Delta* delta) {
  if (rules_.tell_tokens) tokens_.Hold(Describe(*rules_.tokenizer, token));
  tokens_.Read(text.size());
  ++unread_tokens_;
  std::string out;
  stops_.Append(text, &out);
  tokens_.Sent(out.size());
  Emit(out, delta);
  if (over()) tokens_.Drop();
}

void Speech::PutIn(std::string_view text, Delta* delta) {
  std::string rest;
  detokenizer_.Finish(&rest);
  rest += text;
  tokens_.Read(rest.size());
  std::string out;
  stops_.Finish(&out);
  stops_ = StopStrings(rules_.stops);
  tokens_.SentSoFar();
  Emit(out + rest, delta);
}

void Speech::Finish(Delta* delta) {
  if (!over()) {
    std::string rest;
    detokenizer_.Finish(&rest);
    std::string out;
    stops_.Append(rest, &out);
    stops_.Finish(&out);
    tokens_.SentAll();
    Emit(out, delta);
  }
  if (has_called()) return;
  OutputEvents last = parser_.Finish();
  Note(last);
  for (OutputEvent& event : last) AppendEvent(std::move(event), &delta->events);
}

// Text that is certain goes on: to the parser, and the tokens behind it with it.
void Speech::Emit(std::string_view text, Delta* delta) {
  for (ReplyToken& token : tokens_.TakeSent()) {
    if (rules_.keep_tokens) choice_.tokens.push_back(token);
    delta->tokens.push_back(std::move(token));
  }
  if (text.empty()) return;
  OutputEvents events = parser_.Feed(text);
  if (rules_.one_call) {
    const auto call = std::find_if(events.begin(), events.end(), [](const OutputEvent& event) {
      return event.kind == OutputEvent::Kind::kCallEnd;
    });
    if (call != events.end()) events.erase(call + 1, events.end());
  }
  Note(events);
  for (OutputEvent& event : events) AppendEvent(std::move(event), &delta->events);
}

// Keeps what was said so far.
void Speech::Note(const OutputEvents& events) {
  if (!events.empty()) {
    const int64_t tokens = std::exchange(unread_tokens_, 0);
    const bool thought = events.back().kind == OutputEvent::Kind::kReasoning;
    if (thought) choice_.reasoning_tokens += tokens;
  }
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        choice_.reasoning += event.text;
        break;
      case OutputEvent::Kind::kContent:
        choice_.content += event.text;
        break;
      case OutputEvent::Kind::kCallBegin:
        choice_.calls.push_back({IdFor(event), event.name, "", false});
        break;
      case OutputEvent::Kind::kArguments:
        choice_.calls.back().arguments += event.text;
        break;
      case OutputEvent::Kind::kCallEnd:
        choice_.calls.back().complete = event.complete;
        ++calls_over_;
        break;
    }
  }
}

// The id that the model gave the call, if it is one of its own; otherwise a new one.
std::string Speech::IdFor(const OutputEvent& call) const {
  const auto& calls = choice_.calls;
  const bool taken = std::any_of(calls.begin(), calls.end(),
                                 [&](const ToolCall& other) { return other.id == call.id; });
  if (!call.id.empty() && !taken) return call.id;
  const auto& formats = rules_.format->calls;
  const size_t letters = formats.empty() ? 0 : formats.front()->id_letters;
  return letters > 0 ? MakeRandomId("", letters) : MakeRandomId("call_");
}

}  // namespace reprise::api
