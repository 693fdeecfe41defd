// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace reprise {

// Reads a value as Python prints it, byte by byte, and writes it as JSON:
//   {'a': [1, None], 'b': "it's"}
// JSON itself is read as well. Numbers keep their spelling.
//
// Models, and the templates that teach them, often do not escape the quotes inside of a string: a
// quote ends one only if a comma, a colon, a closing bracket or white space follows.
class LiteralReader {
 public:
  enum class State { kReading, kDone, kBroken };

  // `quote`: strings stand between these markers, with nothing escaped, and keys have no quotes
  // (CallFormat::quote); empty: Python's quotes.
  explicit LiteralReader(std::string_view quote = {}) : quote_(quote) {}

  // Appends what is certain to *out. kDone: the value ended before this byte, which was not taken.
  State Step(char c, std::string* out);
  // The text is over. False if the value is not complete.
  bool Finish(std::string* out);
  // Whether a bracket has closed the value already.
  bool ended() const { return at_ == At::kEnd; }

 private:
  enum class At {
    kValue,       // before a value
    kItem,        // before an item of an array, or its end
    kKey,         // before a key of an object, or its end
    kString,      // inside Python's quotes
    kEscape,      // after a backslash
    kHex,         // inside \x.., \u....
    kQuote,       // after a quote that may end the string
    kMarked,      // between quote markers
    kQuoteBegin,  // inside the opening marker
    kWord,        // a number, True, None, a key without quotes
    kColon,
    kAfter,  // after a value
    kEnd,
  };

  bool Take(char c, std::string* out);
  bool TakeStart(char c, std::string* out);
  bool TakeEscape(char c, std::string* out);
  bool TakeHex(char c, std::string* out);
  bool TakeMarked(char c, std::string* out);
  bool TakeAfter(char c, std::string* out);
  bool Open(char c, std::string* out);
  bool Close(char c, std::string* out);
  bool EndWord(std::string* out);
  void EndString(std::string* out);
  void Comma(std::string* out);

  const std::string_view quote_;
  At at_ = At::kValue;
  std::string closers_;  // of the brackets that are open, as the text closes them
  std::string held_;     // a word, hexadecimal digits, part of a marker
  char opener_ = 0;      // the quote of a string
  size_t digits_ = 0;    // that a \x, \u or \U needs
  bool key_ = false;     // the string or word is a key
  bool comma_ = false;   // one must be written before the next item
};

// A whole value; nothing if the text is none, or more than one.
std::optional<std::string> LiteralToJson(std::string_view text);

}  // namespace reprise
