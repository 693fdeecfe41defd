// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/output/body/body.h"
#include "text/output/formats.h"
#include "text/output/markers.h"

namespace reprise {

// Where the reading of a call begins.
enum class CallStart {
  kSection,  // at section_begin
  kCall,     // at call_begin: inside a section, or the format has none
  kName,     // after call_begin, which the prompt ended with
};

// What stands before the arguments: the markers, the name, the id.
struct CallHead {
  Match match = Match::kNo;
  size_t taken = 0;  // bytes up to the body, if kYes
  std::string name;  // empty if it is in the body
  std::string id;
};
CallHead MatchHead(const CallFormat& format, CallStart start, std::string_view text);

// Reads a text as a call in one format, byte by byte, until it is certain that it is one, or that
// it is none.
class CallAttempt {
 public:
  enum class State { kOpen, kBegun, kNone };

  CallAttempt(const CallFormat& format, CallStart start, const JsonValue* tools)
      : format_(&format), start_(start), tools_(tools) {}

  // REQUIRES: state() == kOpen.
  void Step(char c);
  State state() const { return state_; }

  // If kBegun: the call so far, and the reader of the rest of it.
  const CallFormat& format() const { return *format_; }
  CallDraft& call() { return call_; }
  std::unique_ptr<BodyReader> TakeBody() { return std::move(body_); }
  bool over() const { return over_; }  // the body has had its last byte already

 private:
  void StepBody(char c);

  const CallFormat* format_;
  CallStart start_;
  const JsonValue* tools_;
  State state_ = State::kOpen;
  std::string head_;
  CallDraft call_;
  std::unique_ptr<BodyReader> body_;
  bool over_ = false;
};

}  // namespace reprise
