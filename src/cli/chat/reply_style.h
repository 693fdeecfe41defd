// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace reprise::cli {

// A model's reply as a terminal shows it: words wrapped at its width, code in a colour and not
// wrapped, reasoning dim. The text comes in pieces, as the model writes it; what is known for
// certain comes out at once, a word when it is over.
//
// Control characters of the model (but newline and tab) are left out: it must not move the cursor
// or set the title. Thread safety: none. Costs: linear in the text.
class ReplyStyle {
 public:
  // `colours`: false leaves out all that is not text.
  ReplyStyle(int columns, bool colours) : columns_(columns), colours_(colours) {}

  std::string Think(std::string_view text);
  std::string Say(std::string_view text);
  // The end of the reply, on a line of its own.
  std::string Finish();

 private:
  enum class Look { kPlain, kThought, kCode };

  void Feed(std::string_view text);
  void FeedCharacter(std::string_view character, int columns);
  bool FeedLineStart(std::string_view character);
  void EndLine();
  void EndWord();
  void Set(Look look, std::string* out);
  Look LookNow() const;

  const int columns_;
  const bool colours_;
  std::string out_;
  std::string word_;  // with the escape sequences inside it
  int word_columns_ = 0;
  int column_ = 0;     // where the cursor stands, the word not counted
  int spaces_ = 0;     // before the word, not written yet
  std::string ticks_;  // at the start of a line, while it may become a fence
  bool line_starts_ = true;
  bool fence_line_ = false;  // the line of a fence: ``` and a language
  bool in_fence_ = false;
  bool in_code_ = false;  // between two backticks of a line
  bool thinking_ = false;
  Look look_ = Look::kPlain;  // what the terminal was set to last
};

}  // namespace reprise::cli
