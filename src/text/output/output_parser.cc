// SPDX-License-Identifier: Apache-2.0
#include "text/output/output_parser.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "text/output/body/json_syntax.h"
#include "text/output/call_attempt.h"
#include "text/output/markers.h"

namespace reprise {
namespace {

using Kind = OutputEvent::Kind;

constexpr size_t kLongTextBytes = 4096;
constexpr int kLongRescansMax = 16;

// JSON that the model wrote itself is taken as other readers take it. What was put together from
// parameters has each of them once.
bool IsObject(std::string_view arguments, const CallFormat& format) {
  using Body = CallFormat::Body;
  bool twice = false;
  if (JsonKindOf(arguments, &twice) != JsonValue::Kind::kObject) return false;
  const bool written = format.body == Body::kJson || format.body == Body::kNamedJson ||
                       format.body == Body::kKeyedJson;
  return written || !twice;
}

}  // namespace

class OutputParser::Reader {
 public:
  Reader(const OutputFormat& format, const JsonValue* tools);

  void Feed(std::string_view text, OutputEvents* events);
  void Finish(OutputEvents* events);
  bool thinking() const { return thinking_; }

 private:
  enum class At {
    kText,
    kAttempt,  // what may turn out to be a call
    kCall,
    kTail,  // after a call: its end, the end of the section, the next call
  };
  enum class Meaning { kThink, kAnswer, kHidden, kHiddenStart, kCall };
  struct Trigger {
    std::string_view text;
    Meaning meaning;
  };

  void Run();
  void Put(char c);
  void PutText(char c);
  void PutAttempt(char c);
  void PutCall(char c);
  void PutTail(char c);

  bool Applies(Meaning meaning) const;
  Match FindTrigger(const Trigger** found) const;
  void Act(const Trigger& trigger);
  bool TryStart();
  void StartAttempts(std::vector<CallAttempt> attempts, std::string text);
  void FailAttempts();
  void Begin(CallAttempt* attempt);
  void TellArguments();
  void EndCall();
  void SayByte(char c);
  void Say(std::string_view text) {
    for (const char c : text) SayByte(c);
  }
  void Again(std::string text) { input_.push_back({std::move(text), 0}); }

  const OutputFormat format_;
  const JsonValue* const tools_;
  std::vector<std::string> token_triggers_;  // those that begin with kTokenByte
  std::vector<Trigger> triggers_;
  std::bitset<256> first_bytes_;  // of the triggers
  bool calls_at_start_ = false;   // some begin without a marker

  // Text that is to be read: the last of these first.
  struct Input {
    std::string text;
    size_t at = 0;
  };
  std::vector<Input> input_;
  OutputEvents* events_ = nullptr;

  At at_ = At::kText;
  bool thinking_ = false;
  bool reply_start_ = true;     // nothing but white space so far
  bool answer_start_ = true;    // ... since the reasoning ended
  bool drop_blanks_ = false;    // templates put white space here themselves
  bool calls_blocked_ = false;  // no call begins with the first byte of held_
  std::string held_;            // may be part of a trigger
  std::string blanks_;          // white space that is dropped if a marker follows

  std::vector<CallAttempt> attempts_;
  std::string attempted_;    // what they have read
  bool in_section_ = false;  // they began after a call, not at a marker
  int rescans_left_ = kLongRescansMax;

  const CallFormat* call_format_ = nullptr;
  std::unique_ptr<BodyReader> body_;
  CallDraft call_;
  size_t told_ = 0;            // bytes of its arguments
  bool token_begins_ = false;  // the last byte was kTokenByte
  std::string tail_;
  bool end_taken_ = false;  // call_end is behind us
};

OutputParser::Reader::Reader(const OutputFormat& format, const JsonValue* tools)
    : format_(format), tools_(tools) {
  const auto add = [this](std::string_view text, Meaning meaning) {
    if (text.empty()) return;
    triggers_.push_back({text, meaning});
    first_bytes_.set(static_cast<unsigned char>(text.front()));
  };
  if (const ReasoningFormat* reasoning = format_.reasoning) {
    add(reasoning->begin, Meaning::kThink);
    add(reasoning->end, Meaning::kAnswer);
    for (const std::string_view marker : reasoning->hidden) add(marker, Meaning::kHidden);
    add(reasoning->hidden_start, Meaning::kHiddenStart);
    if (format_.thinking_begun) {
      thinking_ = true;
      drop_blanks_ = true;
      reply_start_ = false;
    }
  }
  token_triggers_.reserve(2 * format_.calls.size());  // triggers_ has views of them
  for (const CallFormat* call : format_.calls) {
    for (const std::string_view trigger : OutputFormat::CallTriggers(*call)) {
      if (!format_.IsTokenTrigger(trigger)) {
        add(trigger, Meaning::kCall);
      } else {
        add(token_triggers_.emplace_back(kTokenByte + std::string(trigger)), Meaning::kCall);
      }
    }
    calls_at_start_ = calls_at_start_ || call->bare || call->begun_in_prompt;
  }
}

void OutputParser::Reader::Feed(std::string_view text, OutputEvents* events) {
  events_ = events;
  input_.push_back({std::string(text), 0});
  Run();
}

void OutputParser::Reader::Run() {
  while (!input_.empty()) {
    Input& input = input_.back();
    if (input.at == input.text.size()) {
      input_.pop_back();
    } else {
      Put(input.text[input.at++]);
    }
  }
}

void OutputParser::Reader::Put(char c) {
  switch (at_) {
    case At::kText:
      return PutText(c);
    case At::kAttempt:
      return PutAttempt(c);
    case At::kCall:
      return PutCall(c);
    case At::kTail:
      return PutTail(c);
  }
}

void OutputParser::Reader::PutText(char c) {
  if (held_.empty() && !first_bytes_[static_cast<unsigned char>(c)] &&
      !(calls_at_start_ && answer_start_)) {
    calls_blocked_ = false;
    return SayByte(c);
  }
  held_ += c;
  while (!held_.empty()) {
    const Trigger* found = nullptr;
    const Match match = FindTrigger(&found);
    if (match == Match::kYes) return Act(*found);
    if (match == Match::kMore) return;
    if (TryStart()) return;
    SayByte(held_.front());
    held_.erase(0, 1);
    calls_blocked_ = false;
  }
}

bool OutputParser::Reader::Applies(Meaning meaning) const {
  const bool anywhere = format_.reasoning != nullptr && format_.reasoning->anywhere;
  switch (meaning) {
    case Meaning::kThink:
      return !thinking_ && (anywhere || reply_start_);
    case Meaning::kAnswer:
      return thinking_ || anywhere || reply_start_;
    case Meaning::kHidden:
      return true;
    case Meaning::kHiddenStart:
      return reply_start_;
    case Meaning::kCall:
      return !calls_blocked_;
  }
  return false;
}

// Whether held_ is a trigger, or the beginning of one.
Match OutputParser::Reader::FindTrigger(const Trigger** found) const {
  Match match = Match::kNo;
  for (const Trigger& trigger : triggers_) {
    if (!trigger.text.starts_with(held_) || !Applies(trigger.meaning)) continue;
    if (trigger.text.size() == held_.size()) {
      *found = &trigger;
      return Match::kYes;
    }
    match = Match::kMore;
  }
  return match;
}

void OutputParser::Reader::Act(const Trigger& trigger) {
  std::string text = std::exchange(held_, std::string());
  switch (trigger.meaning) {
    case Meaning::kThink:
      thinking_ = true;
      reply_start_ = false;
      break;
    case Meaning::kAnswer:
      if (thinking_) answer_start_ = true;
      thinking_ = false;
      break;
    case Meaning::kHidden:
      if (thinking_) return;
      break;
    case Meaning::kHiddenStart:
      reply_start_ = false;
      break;
    case Meaning::kCall: {
      std::vector<CallAttempt> attempts;
      for (const CallFormat* format : format_.calls) {
        if (!format->section_begin.empty()) {
          attempts.emplace_back(*format, CallStart::kSection, tools_);
        }
        if (format->section_begin.empty() || format->section_optional) {
          if (!format->call_begin.empty()) attempts.emplace_back(*format, CallStart::kCall, tools_);
        }
      }
      return StartAttempts(std::move(attempts), std::move(text));
    }
  }
  blanks_.clear();
  drop_blanks_ = true;
}

// Calls without a marker, where the answer begins.
bool OutputParser::Reader::TryStart() {
  if (!calls_at_start_ || !answer_start_ || thinking_ || calls_blocked_ || IsBlank(held_.front())) {
    return false;
  }
  std::vector<CallAttempt> attempts;
  for (const CallFormat* format : format_.calls) {
    if (format->begun_in_prompt && reply_start_) {
      attempts.emplace_back(*format, CallStart::kName, tools_);
    } else if (format->bare && format->section_begin.empty()) {
      attempts.emplace_back(*format, CallStart::kCall, tools_);
    }
  }
  if (attempts.empty()) return false;
  StartAttempts(std::move(attempts), std::exchange(held_, std::string()));
  return true;
}

void OutputParser::Reader::StartAttempts(std::vector<CallAttempt> attempts, std::string text) {
  attempts_ = std::move(attempts);
  attempted_.clear();
  calls_blocked_ = false;
  in_section_ = false;
  at_ = At::kAttempt;
  Again(std::move(text));
}

void OutputParser::Reader::PutAttempt(char c) {
  attempted_ += c;
  if (c == kTokenByte) return;
  for (CallAttempt& attempt : attempts_) {
    attempt.Step(c);
    if (attempt.state() == CallAttempt::State::kBegun) return Begin(&attempt);
  }
  std::erase_if(attempts_, [](const CallAttempt& attempt) {
    return attempt.state() == CallAttempt::State::kNone;
  });
  if (attempts_.empty()) FailAttempts();
}

// No call: text, in which another one may begin.
void OutputParser::Reader::FailAttempts() {
  at_ = At::kText;
  attempts_.clear();
  std::string text = std::exchange(attempted_, std::string());
  if (text.size() > kLongTextBytes && rescans_left_-- <= 0) return Say(text);
  calls_blocked_ = !in_section_;
  Again(std::move(text));
}

void OutputParser::Reader::Begin(CallAttempt* attempt) {
  at_ = At::kCall;
  thinking_ = reply_start_ = answer_start_ = false;
  blanks_.clear();
  call_format_ = &attempt->format();
  call_ = std::move(attempt->call());
  body_ = attempt->TakeBody();
  told_ = 0;
  const bool over = attempt->over();
  attempts_.clear();
  attempted_.clear();
  OutputEvent event;
  event.kind = Kind::kCallBegin;
  event.name = call_.name;
  event.id = call_.id;
  events_->push_back(std::move(event));
  TellArguments();
  if (over) EndCall();
}

void OutputParser::Reader::TellArguments() {
  AppendText(Kind::kArguments, std::string_view(call_.arguments).substr(told_), events_);
  told_ = call_.arguments.size();
}

void OutputParser::Reader::PutCall(char c) {
  if (c == kTokenByte) {
    token_begins_ = true;
    return;
  }
  const bool token = std::exchange(token_begins_, false);
  const BodyReader::Took took = body_->Step(c, &call_);
  TellArguments();
  if (took == BodyReader::Took::kMore) return;
  const bool broken = took == BodyReader::Took::kBroken;
  EndCall();
  if (broken) at_ = At::kText;
  if (took != BodyReader::Took::kLast) Again(token ? std::string{kTokenByte, c} : std::string{c});
}

void OutputParser::Reader::EndCall() {
  OutputEvent event;
  event.kind = Kind::kCallEnd;
  event.id = call_.id;
  event.complete = IsObject(call_.arguments, *call_format_);
  events_->push_back(std::move(event));
  end_taken_ = body_->takes_end();
  body_.reset();
  call_ = CallDraft();
  tail_.clear();
  drop_blanks_ = true;
  at_ = At::kTail;
}

void OutputParser::Reader::PutTail(char c) {
  const CallFormat& format = *call_format_;
  const bool listed = !format.section_begin.empty() || format.bare;
  // The bracket that closes a list may be missing; it says nothing.
  std::string_view section_end = format.section_end;
  section_end.remove_prefix(BlanksAtStart(section_end));
  std::string_view section_begin = format.section_begin;
  section_begin.remove_suffix(BlanksAtEnd(section_begin));
  const bool bracket = section_begin.ends_with('[') && section_end.starts_with(']');
  if (tail_.empty() && (IsBlank(c) || (listed && (c == ',' || c == ';')) ||
                        (bracket && c == ']' && (end_taken_ || format.call_end.empty())))) {
    return;
  }
  tail_ += c;
  size_t taken = 0;
  if (!end_taken_ && !format.call_end.empty()) {
    const Match end = MatchMarker(format.call_end, tail_, &taken);
    if (end == Match::kYes) {
      end_taken_ = true;
      tail_.clear();
    }
    if (end != Match::kNo) return;
  }
  if (bracket) section_end.remove_prefix(1);
  if (!section_end.empty()) {
    const Match end = MatchMarker(section_end, tail_, &taken);
    if (end == Match::kYes) {
      tail_.clear();
      at_ = At::kText;
    }
    if (end != Match::kNo) return;
  }
  std::string text = std::exchange(tail_, std::string());
  if (!listed) {
    at_ = At::kText;
    return Again(std::move(text));
  }
  std::vector<CallAttempt> attempts;
  attempts.emplace_back(format, CallStart::kCall, tools_);
  StartAttempts(std::move(attempts), std::move(text));
  in_section_ = true;
}

// Text that is certain. White space waits until it is known that no marker follows.
void OutputParser::Reader::SayByte(char c) {
  if (c == kTokenByte) return;
  if (IsBlank(c)) {
    if (!drop_blanks_) blanks_ += c;
    return;
  }
  drop_blanks_ = false;
  reply_start_ = false;
  if (!thinking_) answer_start_ = false;
  const Kind kind = thinking_ ? Kind::kReasoning : Kind::kContent;
  AppendText(kind, blanks_, events_);
  blanks_.clear();
  AppendText(kind, std::string_view(&c, 1), events_);
}

void OutputParser::Reader::Finish(OutputEvents* events) {
  events_ = events;
  while (at_ == At::kAttempt) {
    FailAttempts();
    Run();
  }
  if (at_ == At::kCall) {
    EndCall();
  } else if (at_ == At::kTail) {
    // What may be the beginning of a marker is one that was cut off.
    tail_.clear();
  }
  at_ = At::kText;
  Say(std::exchange(held_, std::string()));
  if (!thinking_) AppendText(Kind::kContent, blanks_, events_);
  blanks_.clear();
}

OutputParser::OutputParser(const OutputFormat& format, const JsonValue* tools)
    : reader_(std::make_unique<Reader>(format, tools)) {}
OutputParser::~OutputParser() = default;

OutputEvents OutputParser::Feed(std::string_view text) {
  OutputEvents events;
  reader_->Feed(text, &events);
  return events;
}

OutputEvents OutputParser::Finish() {
  OutputEvents events;
  reader_->Finish(&events);
  return events;
}

bool OutputParser::thinking() const { return reader_->thinking(); }

ParsedOutput ParseOutput(const OutputFormat& format, const JsonValue* tools,
                         std::string_view text) {
  OutputParser parser(format, tools);
  ParsedOutput parsed;
  for (const OutputEvents& events : {parser.Feed(text), parser.Finish()}) {
    for (const OutputEvent& event : events) {
      switch (event.kind) {
        case Kind::kReasoning:
          parsed.reasoning += event.text;
          break;
        case Kind::kContent:
          parsed.content += event.text;
          break;
        case Kind::kCallBegin:
          parsed.calls.push_back({event.name, event.id, "", false});
          break;
        case Kind::kArguments:
          parsed.calls.back().arguments += event.text;
          break;
        case Kind::kCallEnd:
          parsed.calls.back().complete = event.complete;
          if (!event.id.empty()) parsed.calls.back().id = event.id;
          break;
      }
    }
  }
  return parsed;
}

}  // namespace reprise
