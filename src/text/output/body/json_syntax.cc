// SPDX-License-Identifier: Apache-2.0
#include "text/output/body/json_syntax.h"

#include <unordered_set>

#include "base/utf8.h"
#include "text/output/tag_search.h"

namespace reprise {
namespace {

using Kind = JsonValue::Kind;

constexpr int kDepthMax = 64;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool twice() const { return twice_; }

  std::optional<Kind> Read() {
    SkipBlanks();
    const std::optional<Kind> kind = Value(kDepthMax);
    SkipBlanks();
    return at_ == text_.size() ? kind : std::nullopt;
  }

 private:
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void SkipBlanks() { at_ += BlanksAtStart(text_.substr(at_)); }
  bool Take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::optional<Kind> Value(int depth_left) {
    switch (Peek()) {
      case '{':
        return Container(depth_left, '}') ? std::optional(Kind::kObject) : std::nullopt;
      case '[':
        return Container(depth_left, ']') ? std::optional(Kind::kArray) : std::nullopt;
      case '"':
        return String() ? std::optional(Kind::kString) : std::nullopt;
      case 't':
        return Take("true") ? std::optional(Kind::kBool) : std::nullopt;
      case 'f':
        return Take("false") ? std::optional(Kind::kBool) : std::nullopt;
      case 'n':
        return Take("null") ? std::optional(Kind::kNull) : std::nullopt;
      default:
        return Number();
    }
  }

  bool Container(int depth_left, char close) {
    ++at_;
    SkipBlanks();
    if (Peek() == close) return ++at_ != 0;
    while (depth_left > 0) {
      if (close == '}') {
        const size_t begin = at_;
        if (!String()) return false;
        if (depth_left == kDepthMax) {
          twice_ |= !names_.insert(text_.substr(begin, at_ - begin)).second;
        }
        SkipBlanks();
        if (!Take(":")) return false;
        SkipBlanks();
      }
      if (!Value(depth_left - 1)) return false;
      SkipBlanks();
      if (Peek() == close) return ++at_ != 0;
      if (!Take(",")) return false;
      SkipBlanks();
    }
    return false;
  }

  bool String() {
    if (!Take("\"")) return false;
    while (at_ < text_.size()) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') return ++at_ != 0;
      if (c < 0x20) return false;
      if (c == '\\') {
        if (!Escape()) return false;
        continue;
      }
      const size_t length = Utf8SequenceLength(text_.substr(at_));
      if (length == 0) return false;
      at_ += length;
    }
    return false;
  }

  bool Escape() {
    constexpr std::string_view kHex = "0123456789abcdefABCDEF";
    constexpr std::string_view kNamed = "\"\\/bfnrt";
    ++at_;
    const char c = Peek();
    ++at_;
    if (c != 'u') return c != '\0' && kNamed.find(c) != kNamed.npos;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ >= text_.size() || kHex.find(text_[at_]) == kHex.npos) return false;
    }
    return true;
  }

  std::optional<Kind> Number() {
    Take("-");
    if (!Take("0") && !Digits()) return std::nullopt;
    Kind kind = Kind::kInt;
    if (Take(".")) {
      if (!Digits()) return std::nullopt;
      kind = Kind::kDouble;
    }
    if (Take("e") || Take("E")) {
      if (!Take("+")) Take("-");
      if (!Digits()) return std::nullopt;
      kind = Kind::kDouble;
    }
    return kind;
  }

  bool Digits() {
    const size_t begin = at_;
    while (Peek() >= '0' && Peek() <= '9') ++at_;
    return at_ != begin;
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::unordered_set<std::string_view> names_;  // of the outermost object
  bool twice_ = false;
};

}  // namespace

std::optional<JsonValue::Kind> JsonKindOf(std::string_view text, bool* twice) {
  Reader reader(text);
  const std::optional<Kind> kind = reader.Read();
  if (twice != nullptr) *twice = reader.twice();
  return kind;
}

}  // namespace reprise
