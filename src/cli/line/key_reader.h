// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::cli {

// What a person did at the keyboard.
struct Key {
  enum class Kind : uint8_t {
    kText,   // `text` was typed
    kPaste,  // `text` was pasted; its line breaks are part of it
    kEnter,
    kNewline,  // a line break inside the message: Alt-Enter, Ctrl-J
    kBackspace,
    kDelete,
    kLeft,
    kRight,
    kUp,
    kDown,
    kHome,
    kEnd,
    kWordLeft,
    kWordRight,
    kCutToEnd,     // Ctrl-K
    kCutToStart,   // Ctrl-U
    kCutWord,      // Ctrl-W: the one before the cursor
    kCutNextWord,  // Alt-D
    kYank,         // Ctrl-Y: what was cut last
    kRedraw,       // Ctrl-L
    kSuspend,      // Ctrl-Z
    kInterrupt,    // Ctrl-C
    kEndOfInput,   // Ctrl-D
  };
  Kind kind = Kind::kText;
  std::string text = {};  // valid UTF-8, without control characters but tab and newline
};

// Turns the bytes of a terminal into keys, however they are cut into reads: UTF-8, the escape
// sequences of common terminals, bracketed paste. Sequences that are not known are dropped whole.
//
// A paste keeps at most kPasteBytesMax bytes. Thread safety: none. Costs: linear in the bytes.
class KeyReader {
 public:
  static constexpr size_t kPasteBytesMax = size_t{4} << 20;

  void Feed(std::string_view bytes, std::vector<Key>* keys);
  // No more bytes came for a while: what looks like the beginning of a sequence was the Escape key.
  void Settle();
  // Whether bytes wait for more of their kind.
  bool waits() const { return !rest_.empty() && !pasting_; }

 private:
  size_t Take(std::string_view bytes, std::vector<Key>* keys);
  size_t TakeEscape(std::string_view bytes, std::vector<Key>* keys);
  size_t TakePaste(std::string_view bytes, std::vector<Key>* keys);

  std::string rest_;  // the beginning of something
  std::string paste_;
  bool pasting_ = false;
};

// `bytes` as text: line breaks of any kind become newlines, other control characters but tabs go,
// and what is not UTF-8 becomes U+FFFD.
std::string CleanText(std::string_view bytes);

}  // namespace reprise::cli
