// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/reply_style.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "cli/line/text_width.h"

namespace reprise::cli {
namespace {

constexpr std::string_view kFence = "```";
constexpr int kTabColumns = 4;
constexpr int kColumnsMin = 8;  // narrower terminals wrap by themselves

}  // namespace

std::string ReplyStyle::Think(std::string_view text) {
  while (!thinking_ && text.starts_with('\n')) text.remove_prefix(1);
  if (text.empty()) return "";
  thinking_ = true;
  Feed(text);
  return std::exchange(out_, {});
}

std::string ReplyStyle::Say(std::string_view text) {
  if (thinking_) {
    // What was thought stands apart from what is said.
    EndWord();
    if (column_ > 0) EndLine();
    thinking_ = in_fence_ = in_code_ = fence_line_ = false;
    out_ += "\n";
    while (!text.empty() && text[0] == '\n') text.remove_prefix(1);
  }
  Feed(text);
  return std::exchange(out_, {});
}

std::string ReplyStyle::Finish() {
  if (!ticks_.empty()) word_ += std::exchange(ticks_, {});
  EndWord();
  Set(Look::kPlain, &out_);
  out_ += "\n";
  column_ = spaces_ = 0;
  line_starts_ = true;
  thinking_ = in_fence_ = in_code_ = fence_line_ = false;
  return std::exchange(out_, {});
}

void ReplyStyle::Feed(std::string_view text) {
  while (!text.empty()) {
    const size_t length = std::max<size_t>(1, Utf8SequenceLength(text));
    const std::string_view character = text.substr(0, length);
    text.remove_prefix(length);
    if (character == "\n") {
      EndLine();
      continue;
    }
    const bool valid = Utf8SequenceLength(character) == length;
    const uint32_t code = valid ? DecodeUtf8(character, length) : 0xFFFD;
    if (character != "\t" && (code < 0x20 || (code >= 0x7F && code < 0xA0))) continue;
    if (FeedLineStart(character)) continue;
    FeedCharacter(character, ColumnsOf(code));
  }
}

// Backticks at the start of a line, which may become a fence. True if the character was taken.
bool ReplyStyle::FeedLineStart(std::string_view character) {
  if (!line_starts_ || fence_line_) return false;
  if (character == "`" && ticks_.size() < kFence.size()) {
    ticks_ += character;
    if (ticks_ != kFence) return true;
    fence_line_ = true;
    line_starts_ = false;
    EndWord();
    out_.append(static_cast<size_t>(spaces_), ' ');
    Set(Look::kThought, &out_);
    out_ += std::exchange(ticks_, {});
    column_ += std::exchange(spaces_, 0) + static_cast<int>(kFence.size());
    return true;
  }
  if (ticks_.empty() && (character == " " || character == "\t")) return false;  // an indent
  line_starts_ = false;
  for (const char tick : std::exchange(ticks_, {})) FeedCharacter({&tick, 1}, 1);
  return false;
}

void ReplyStyle::FeedCharacter(std::string_view character, int columns) {
  if (fence_line_ || in_fence_) {  // as it is
    if (!fence_line_) Set(Look::kCode, &out_);
    out_.append(static_cast<size_t>(std::exchange(spaces_, 0)), ' ');
    out_ += character;
    column_ += columns;
    return;
  }
  if (character == " " || character == "\t") {
    EndWord();
    spaces_ += character == " " ? 1 : kTabColumns;
    return;
  }
  if (columns == 2) EndWord();  // no spaces between the words of these scripts
  const bool tick = character == "`" && !thinking_;
  Set(tick || in_code_ ? Look::kCode : LookNow(), &word_);
  word_ += character;
  word_columns_ += columns;
  if (tick) in_code_ = !in_code_;
  if (tick && !in_code_) Set(LookNow(), &word_);
  if (columns == 2 || word_columns_ >= columns_) EndWord();
}

void ReplyStyle::EndWord() {
  if (word_.empty()) return;
  if (columns_ >= kColumnsMin && column_ > 0 && column_ + spaces_ + word_columns_ > columns_) {
    out_ += "\n";
    column_ = spaces_ = 0;
  }
  out_.append(static_cast<size_t>(spaces_), ' ');
  out_ += word_;
  column_ += spaces_ + word_columns_;
  word_.clear();
  word_columns_ = spaces_ = 0;
}

void ReplyStyle::EndLine() {
  for (const char tick : std::exchange(ticks_, {})) FeedCharacter({&tick, 1}, 1);
  EndWord();
  if (fence_line_) in_fence_ = !in_fence_;
  fence_line_ = in_code_ = false;
  Set(LookNow(), &out_);
  out_ += "\n";
  column_ = spaces_ = 0;
  line_starts_ = true;
}

ReplyStyle::Look ReplyStyle::LookNow() const { return thinking_ ? Look::kThought : Look::kPlain; }

void ReplyStyle::Set(Look look, std::string* out) {
  if (!colours_ || look == look_) return;
  look_ = look;
  *out += look == Look::kPlain ? "\x1b[0m" : look == Look::kThought ? "\x1b[0;2m" : "\x1b[0;36m";
}

}  // namespace reprise::cli
