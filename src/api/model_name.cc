// SPDX-License-Identifier: Apache-2.0
#include "api/model_name.h"

#include "base/json.h"

namespace reprise::api {
namespace {

constexpr size_t kNameBytesMax = 1024;

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // The first member `wanted`, which is in quotation marks: a string, or where `numbers` are
  // wanted, too, the spelling of one.
  std::string Find(std::string_view wanted, bool numbers) {
    SkipSpace();
    if (!Take('{')) return "";
    for (int depth = 1; depth > 0 && at_ < text_.size();) {
      const bool key = depth == 1 && expects_key_;
      const char c = text_[at_];
      if (c == '"') {
        const std::string_view name = TakeString();
        if (!key) continue;
        expects_key_ = false;
        SkipSpace();
        if (!Take(':')) return "";
        SkipSpace();
        if (name == wanted)
          return at_ < text_.size() && text_[at_] == '"' ? Decoded() : Number(numbers);
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (c == ',' && depth == 1) expects_key_ = true;
      ++at_;
    }
    return "";
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // With its quotation marks. REQUIRES: at one.
  std::string_view TakeString() {
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = at_ < text_.size() ? at_ + 1 : text_.size();
    return text_.substr(begin, at_ - begin);
  }

  std::string Decoded() {
    const std::string_view quoted = TakeString();
    if (quoted.size() > kNameBytesMax) return "";
    const auto parsed = JsonDocument::Parse(quoted);
    return parsed.ok() && parsed->root().is_string() ? std::string(parsed->root().as_string()) : "";
  }

  std::string Number(bool wanted) const {
    const size_t end = text_.find_first_not_of("-+.0123456789eE", at_);
    return wanted ? std::string(text_.substr(at_, end == std::string_view::npos ? end : end - at_))
                  : "";
  }

  const std::string_view text_;
  size_t at_ = 0;
  bool expects_key_ = true;
};

}  // namespace

std::string FindModelName(std::string_view json) { return Scanner(json).Find("\"model\"", false); }

std::string FindKeepAlive(std::string_view json) {
  return Scanner(json).Find("\"keep_alive\"", true);
}

}  // namespace reprise::api
