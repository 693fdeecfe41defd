// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "api/chat/reply.h"
#include "api/chat/voice/reply_tokens.h"
#include "text/detokenizer.h"
#include "text/output/output_parser.h"
#include "text/stop_strings.h"

namespace reprise::api {

// What all choices of a reply are read by.
struct SpeechRules {
  const Tokenizer* tokenizer = nullptr;
  const OutputFormat* format = nullptr;
  const JsonValue* tools = nullptr;  // of the request; null: none
  StopStrings::List stops;
  bool one_call = false;     // the reply ends with its first call
  bool tell_tokens = false;  // with deltas: tokens, not only text
  bool keep_tokens = false;  // ... and in the choice
};

// Speech is what one choice says, read as it comes: tokens -> text -> stop strings -> meaning. What
// is certain goes into the choice, and into the delta that its client is told.
//
// Thread safety: none. The rules and the choice must outlive it.
class Speech {
 public:
  Speech(const SpeechRules& rules, Choice* choice);

  // The text that a token completes; Say is called with it and the token, next.
  std::string Spell(const GeneratedToken& token);
  void Say(const GeneratedToken& token, std::string_view text, Delta* delta);
  // Text that no token of the reply stands for: it ends what the stop strings have seen.
  void PutIn(std::string_view text, Delta* delta);
  // No token comes any more; `ended`: nor anything else.
  void Finish(Delta* delta);

  // Whether it ends here, whatever comes: at a stop string, or with the only call it may make.
  bool over() const { return stopped() || has_called(); }
  bool stopped() const { return stops_.stopped(); }
  const std::string& stop() const { return stops_.matched(); }
  bool has_called() const { return rules_.one_call && calls_over_ > 0; }
  // Whether what comes next would be reasoning.
  bool thinking() const { return parser_.thinking(); }

 private:
  void Emit(std::string_view text, Delta* delta);
  void Note(const OutputEvents& events);
  std::string IdFor(const OutputEvent& call) const;

  const SpeechRules& rules_;
  Choice& choice_;
  Detokenizer detokenizer_;
  StopStrings stops_;
  OutputParser parser_;
  ReplyTokens tokens_;
  int64_t unread_tokens_ = 0;  // what they mean is not known yet
  size_t calls_over_ = 0;      // of the choice's calls: all of whose arguments are there
};

}  // namespace reprise::api
