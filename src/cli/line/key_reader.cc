// SPDX-License-Identifier: Apache-2.0
#include "cli/line/key_reader.h"

#include <algorithm>
#include <optional>

#include "base/utf8.h"

namespace reprise::cli {
namespace {

using Kind = Key::Kind;

constexpr char kEscape = '\x1b';
constexpr std::string_view kPasteBegin = "\x1b[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr size_t kSequenceBytesMax = 32;

struct Sequence {
  std::string_view bytes;  // behind the Escape
  Kind kind;
};
constexpr Sequence kSequences[] = {{"[A", Kind::kUp},
                                   {"[B", Kind::kDown},
                                   {"[C", Kind::kRight},
                                   {"[D", Kind::kLeft},
                                   {"[H", Kind::kHome},
                                   {"[F", Kind::kEnd},
                                   {"OA", Kind::kUp},
                                   {"OB", Kind::kDown},
                                   {"OC", Kind::kRight},
                                   {"OD", Kind::kLeft},
                                   {"OH", Kind::kHome},
                                   {"OF", Kind::kEnd},
                                   {"[1~", Kind::kHome},
                                   {"[7~", Kind::kHome},
                                   {"[4~", Kind::kEnd},
                                   {"[8~", Kind::kEnd},
                                   {"[3~", Kind::kDelete},
                                   {"[1;5C", Kind::kWordRight},
                                   {"[1;5D", Kind::kWordLeft},
                                   {"[1;3C", Kind::kWordRight},
                                   {"[1;3D", Kind::kWordLeft},
                                   {"[5C", Kind::kWordRight},
                                   {"[5D", Kind::kWordLeft},
                                   {"b", Kind::kWordLeft},
                                   {"f", Kind::kWordRight},
                                   {"d", Kind::kCutNextWord},
                                   {"\x7f", Kind::kCutWord},
                                   {"\r", Kind::kNewline},
                                   {"\n", Kind::kNewline},
                                   {"[13;2u", Kind::kNewline},
                                   {"[27;2;13~", Kind::kNewline}};

std::optional<Kind> FindControl(char byte) {
  switch (byte) {
    case '\r':
      return Kind::kEnter;
    case '\n':
      return Kind::kNewline;
    case '\x7f':
    case '\b':
      return Kind::kBackspace;
    case 1:
      return Kind::kHome;
    case 2:
      return Kind::kLeft;
    case 3:
      return Kind::kInterrupt;
    case 4:
      return Kind::kEndOfInput;
    case 5:
      return Kind::kEnd;
    case 6:
      return Kind::kRight;
    case 11:
      return Kind::kCutToEnd;
    case 12:
      return Kind::kRedraw;
    case 14:
      return Kind::kDown;
    case 16:
      return Kind::kUp;
    case 21:
      return Kind::kCutToStart;
    case 23:
      return Kind::kCutWord;
    case 25:
      return Kind::kYank;
    case 26:
      return Kind::kSuspend;
    default:
      return std::nullopt;
  }
}

bool IsControl(char byte) { return static_cast<unsigned char>(byte) < 0x20 || byte == '\x7f'; }

// The length of an escape sequence, with its Escape; 0 if it is not complete.
size_t SequenceLength(std::string_view bytes) {
  if (bytes.size() < 2) return 0;
  if (bytes[1] == 'O') return bytes.size() < 3 ? 0 : 3;
  if (bytes[1] != '[') return 2;
  for (size_t i = 2; i < bytes.size(); ++i) {
    if (bytes[i] >= 0x40 && bytes[i] <= 0x7e) return i + 1;
    if (bytes[i] < 0x20 || i >= kSequenceBytesMax) return i;  // not one of a terminal's
  }
  return 0;
}

// Bytes at the end of `bytes` that may be the beginning of a character.
bool MayGoOn(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
  if (bytes.size() >= length || lead > 0xF4) return false;
  return std::all_of(bytes.begin() + 1, bytes.end(),
                     [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; });
}

void AppendText(std::string_view text, std::vector<Key>* keys) {
  if (keys->empty() || keys->back().kind != Kind::kText) keys->push_back({Kind::kText});
  keys->back().text += text;
}

}  // namespace

std::string CleanText(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    size_t length = Utf8SequenceLength(bytes);
    if (length == 0) {
      text += "\uFFFD";
      length = 1;
    } else if (bytes[0] == '\r') {
      text += '\n';
      if (bytes.size() > 1 && bytes[1] == '\n') length = 2;
    } else if (length == 2 && bytes[0] == '\xC2' && static_cast<unsigned char>(bytes[1]) < 0xA0) {
      // C1 control characters: terminals obey them, too.
    } else if (!IsControl(bytes[0]) || bytes[0] == '\n' || bytes[0] == '\t') {
      text += bytes.substr(0, length);
    }
    bytes.remove_prefix(length);
  }
  return text;
}

void KeyReader::Feed(std::string_view bytes, std::vector<Key>* keys) {
  rest_ += bytes;
  const std::string all = std::move(rest_);
  rest_.clear();
  std::string_view left = all;
  while (!left.empty()) {
    const size_t taken = pasting_ ? TakePaste(left, keys) : Take(left, keys);
    if (taken == 0) break;
    left.remove_prefix(taken);
  }
  rest_ = left;
}

void KeyReader::Settle() {
  if (!pasting_) rest_.clear();
}

// Bytes of one key, or 0 if more are needed.
size_t KeyReader::Take(std::string_view bytes, std::vector<Key>* keys) {
  if (bytes[0] == kEscape) return TakeEscape(bytes, keys);
  if (const auto control = FindControl(bytes[0])) {
    keys->push_back({*control});
    return 1;
  }
  if (bytes[0] == '\t') {
    AppendText("\t", keys);
    return 1;
  }
  if (IsControl(bytes[0])) return 1;
  const size_t length = Utf8SequenceLength(bytes);
  if (length == 0 && MayGoOn(bytes)) return 0;
  const size_t taken = std::max<size_t>(1, length);
  if (const std::string text = CleanText(bytes.substr(0, taken)); !text.empty()) {
    AppendText(text, keys);
  }
  return taken;
}

size_t KeyReader::TakeEscape(std::string_view bytes, std::vector<Key>* keys) {
  const size_t length = SequenceLength(bytes);
  if (length == 0) return 0;
  const std::string_view sequence = bytes.substr(0, length);
  if (sequence == kPasteBegin) {
    pasting_ = true;
    paste_.clear();
    return length;
  }
  for (const Sequence& known : kSequences) {
    if (sequence.substr(1) != known.bytes) continue;
    keys->push_back({known.kind});
    return length;
  }
  // Two Escapes: the second may begin a sequence.
  return length == 2 && bytes[1] == kEscape ? 1 : length;
}

size_t KeyReader::TakePaste(std::string_view bytes, std::vector<Key>* keys) {
  const size_t end = bytes.find(kPasteEnd);
  size_t taken = end;
  if (end == bytes.npos) {
    // The last bytes may be the beginning of the end.
    taken = bytes.size() - std::min(bytes.size(), kPasteEnd.size() - 1);
  }
  paste_ +=
      bytes.substr(0, std::min(taken, kPasteBytesMax - std::min(kPasteBytesMax, paste_.size())));
  if (end == bytes.npos) return taken;
  keys->push_back({Kind::kPaste, CleanText(paste_)});
  paste_.clear();
  pasting_ = false;
  return taken + kPasteEnd.size();
}

}  // namespace reprise::cli
