// SPDX-License-Identifier: Apache-2.0
#include "text/output/tool_calls.h"

#include <algorithm>
#include <utility>

#include "text/output/tag_search.h"
#include "text/output/tools.h"

namespace reprise {
namespace {

using Kind = OutputEvent::Kind;

constexpr std::string_view kCallBegin = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr size_t kPieceBytes = 1024;

bool IsObject(std::string_view json) {
  const auto document = JsonDocument::Parse(json);
  return document.ok() && document->root().is_object();
}

}  // namespace

void TaggedCallParser::Feed(std::string_view text, OutputEvents* events) {
  waiting_ += text;
  Run(events);
}

// Piece by piece, as an attempt to read a call copies all that is pending.
void TaggedCallParser::Run(OutputEvents* events) {
  RunPending(events);
  while (taken_ < waiting_.size()) {
    const size_t piece = std::min(waiting_.size() - taken_, kPieceBytes);
    pending_.append(waiting_, taken_, piece);
    taken_ += piece;
    RunPending(events);
  }
  waiting_.clear();
  taken_ = 0;
}

void TaggedCallParser::RunPending(OutputEvents* events) {
  for (bool more = true; more;) {
    switch (state_) {
      case State::kText:
        more = StepText(events);
        break;
      case State::kCall:
        more = StepCall();
        break;
      case State::kJson:
        more = StepReader(&json_, events);
        break;
      case State::kXml:
        more = StepReader(&xml_, events);
        break;
      case State::kAfterCall:
        more = StepAfterCall();
        break;
    }
  }
}

// Text, with white space held back until it is known that no call follows.
void TaggedCallParser::EmitText(std::string_view text, OutputEvents* events) {
  if (after_call_) {
    text.remove_prefix(BlanksAtStart(text));
    if (text.empty()) return;
    after_call_ = false;
  }
  const size_t kept = text.size() - BlanksAtEnd(text);
  if (kept > 0) {
    AppendText(Kind::kContent, std::exchange(blanks_, std::string()), events);
    AppendText(Kind::kContent, text.substr(0, kept), events);
  }
  blanks_ += text.substr(kept);
}

bool TaggedCallParser::StepText(OutputEvents* events) {
  const size_t call = pending_.find(kCallBegin);
  const size_t function = functions_ ? pending_.find(kFunction) : std::string::npos;
  const size_t tag = std::min(call, function);
  if (tag == std::string::npos) {
    size_t held = TagBegunAtEnd(pending_, kCallBegin);
    if (functions_) held = std::max(held, TagBegunAtEnd(pending_, kFunction));
    const size_t ready = pending_.size() - held;
    EmitText(std::string_view(pending_).substr(0, ready), events);
    pending_.erase(0, ready);
    return false;
  }
  EmitText(std::string_view(pending_).substr(0, tag), events);
  raw_ = std::exchange(blanks_, std::string());
  pending_.erase(0, tag);
  if (tag == call) {
    raw_ += kCallBegin;
    pending_.erase(0, kCallBegin.size());
  }
  raw_tag_ = raw_.size();
  state_ = State::kCall;
  return true;
}

bool TaggedCallParser::StepCall() {
  const size_t blanks = BlanksAtStart(pending_);
  raw_.append(pending_, 0, blanks);
  pending_.erase(0, blanks);
  if (pending_.empty() || Begins(pending_, kFunction)) return false;
  if (pending_.starts_with(kFunction)) {
    xml_.emplace(tools_);
    state_ = State::kXml;
  } else {
    json_.emplace();
    state_ = State::kJson;
  }
  return true;
}

template <typename Reader>
bool TaggedCallParser::StepReader(std::optional<Reader>* reader, OutputEvents* events) {
  raw_ += pending_;
  (*reader)->Read(std::exchange(pending_, std::string()));
  if ((*reader)->state() == Reader::State::kReading) return false;
  const Reader read = std::move(**reader);
  reader->reset();
  if (read.state() == Reader::State::kDone && IsObject(read.arguments())) {
    AppendCall(read.name(), read.arguments(), events);
    pending_ = read.rest();
    state_ = State::kAfterCall;
  } else {
    BackToText(read.rest(), events);
  }
  return true;
}

// What was taken for a call is none. What stands behind its tag is looked at again, as another call
// may begin there; but not without end, so that time stays linear in the text. `rest`: the end of
// raw_ that the reader has not read.
void TaggedCallParser::BackToText(std::string_view rest, OutputEvents* events) {
  const std::string raw = std::exchange(raw_, std::string());
  // A bare <function= would be found again: at least its first byte is passed.
  const size_t begun = raw_tag_ > 0 && raw[raw_tag_ - 1] == '>' ? raw_tag_ : raw_tag_ + 1;
  size_t text = std::min(begun, raw.size());
  if (rescans_left_ == 0) text = std::max(text, raw.size() - rest.size());
  if (rescans_left_ > 0) --rescans_left_;
  state_ = State::kText;
  EmitText(std::string_view(raw).substr(0, text), events);
  if (raw.size() - text <= kPieceBytes) {
    pending_.insert(0, raw, text);
  } else {
    waiting_.replace(0, taken_, raw.substr(text) + std::exchange(pending_, std::string()));
    taken_ = 0;
  }
}

bool TaggedCallParser::StepAfterCall() {
  after_call_ = true;
  pending_.erase(0, BlanksAtStart(pending_));
  if (pending_.empty() || Begins(pending_, kCallEnd) || Begins(pending_, kCallBegin) ||
      Begins(pending_, kFunction)) {
    return false;
  }
  if (pending_.starts_with(kCallEnd)) {
    pending_.erase(0, kCallEnd.size());
    state_ = State::kText;
  } else if (pending_.front() == '{' || pending_.starts_with(kFunction)) {
    raw_.clear();
    raw_tag_ = 0;
    state_ = State::kCall;  // another call between the same tags
  } else {
    state_ = State::kText;
  }
  return true;
}

void TaggedCallParser::Finish(OutputEvents* events) {
  while (state_ == State::kCall || state_ == State::kJson || state_ == State::kXml) {
    raw_ += std::exchange(pending_, std::string());
    json_.reset();
    xml_.reset();
    BackToText("", events);
    Run(events);
  }
  // What may be the beginning of a tag is none, except a </tool_call> that was cut off.
  if (state_ != State::kAfterCall || !Begins(pending_, kCallEnd)) EmitText(pending_, events);
  AppendText(Kind::kContent, blanks_, events);
  pending_.clear();
  blanks_.clear();
}

void BareCallParser::Feed(std::string_view text, OutputEvents* events) {
  pending_ += text;
  for (bool more = true; more;) {
    switch (state_) {
      case State::kStart:
        more = StepStart();
        break;
      case State::kJson:
        more = StepJson(events);
        break;
      case State::kAfterCall:
        more = StepAfterCall();
        break;
      case State::kText:
        AppendText(Kind::kContent, pending_, events);
        pending_.clear();
        more = false;
        break;
    }
  }
}

bool BareCallParser::StepStart() {
  std::string_view begun = std::string_view(pending_).substr(BlanksAtStart(pending_));
  if (begun.empty() || Begins(begun, kPythonTag)) return false;
  if (begun.starts_with(kPythonTag)) begun.remove_prefix(kPythonTag.size());
  begun.remove_prefix(BlanksAtStart(begun));
  if (begun.empty()) return false;
  if (begun.front() == '{') {
    json_.emplace();
    raw_ = pending_.substr(0, pending_.size() - begun.size());
    pending_.erase(0, raw_.size());
    state_ = State::kJson;
  } else {
    state_ = State::kText;
  }
  return true;
}

bool BareCallParser::StepJson(OutputEvents* events) {
  raw_ += pending_;
  json_->Read(std::exchange(pending_, std::string()));
  if (json_->state() == CallJson::State::kReading) return false;
  const bool call = json_->state() == CallJson::State::kDone && json_->has_arguments() &&
                    (tools_ == nullptr || FindTool(tools_, json_->name()) != nullptr) &&
                    IsObject(json_->arguments());
  if (call) {
    AppendCall(json_->name(), json_->arguments(), events);
    pending_ = json_->rest();
    state_ = State::kAfterCall;
  } else {
    pending_ = raw_;
    state_ = State::kText;
  }
  raw_.clear();
  json_.reset();
  return true;
}

bool BareCallParser::StepAfterCall() {
  size_t skip = 0;
  while (skip < pending_.size() && (IsBlank(pending_[skip]) || pending_[skip] == ';')) ++skip;
  pending_.erase(0, skip);
  if (pending_.empty()) return false;
  state_ = pending_.front() == '{' || pending_.front() == '<' ? State::kStart : State::kText;
  return true;
}

void BareCallParser::Finish(OutputEvents* events) {
  AppendText(Kind::kContent, raw_, events);
  AppendText(Kind::kContent, pending_, events);
  raw_.clear();
  pending_.clear();
}

}  // namespace reprise
