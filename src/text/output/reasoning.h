// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace reprise {

// Splits what a model thinks from what it says: "<think>\n...\n</think>\n\n...".
//
// The thinking is at the start of the reply, or has begun with the prompt already. White space
// around it is dropped. A reply that ends before "</think>" is all thinking.
class ReasoningSplitter {
 public:
  // `begun`: the prompt ended with "<think>".
  explicit ReasoningSplitter(bool begun) : state_(begun ? State::kThinking : State::kStart) {}

  // Takes more text; appends what is certain by now to *reasoning and *content.
  void Feed(std::string_view text, std::string* reasoning, std::string* content);
  // The reply is over.
  void Finish(std::string* reasoning, std::string* content);

 private:
  enum class State {
    kStart,     // nothing but white space so far, or part of "<think>"
    kThinking,  // inside
    kBetween,   // after "</think>", before the first character of the content
    kContent,
  };
  std::string pending_;  // what may be part of a tag, or white space that may be dropped
  State state_;
  bool thought_any_ = false;  // some reasoning was passed on
};

}  // namespace reprise
