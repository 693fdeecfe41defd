// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <unordered_set>
#include <vector>

#include "base/hash.h"
#include "base/utf8.h"

namespace reprise {

// Chunks double in size, so the arena holds at most a constant factor of the document's text.
struct JsonDocument::Arena {
  std::vector<std::unique_ptr<std::byte[]>> chunks;
  std::byte* next = nullptr;
  size_t left = 0;
  size_t chunk_bytes = 4096;

  void* Take(size_t bytes) {
    bytes = (bytes + 7) / 8 * 8;
    if (bytes > left) {
      while (chunk_bytes < bytes) chunk_bytes *= 2;
      chunks.emplace_back(new std::byte[chunk_bytes]);
      next = chunks.back().get();
      left = chunk_bytes;
      chunk_bytes *= 2;
    }
    void* taken = next;
    next += bytes;
    left -= bytes;
    return taken;
  }

  template <typename T>
  const T* Copy(const T* items, size_t count) {
    if (count == 0) return nullptr;
    void* memory = Take(count * sizeof(T));
    std::memcpy(memory, static_cast<const void*>(items), count * sizeof(T));
    return static_cast<const T*>(memory);
  }
};

// Recursive descent over the text. Children are gathered on two stacks and copied to the arena when
// their container closes, so a container's children lie side by side.
class JsonParser {
 public:
  JsonParser(std::string_view text, const JsonLimits& limits, JsonDocument* document)
      : text_(text),
        depth_left_(limits.depth_max),
        values_left_(limits.value_count_max),
        document_(document) {}

  Status Run() {
    if (text_.size() > UINT32_MAX) return Fail("the document is larger than 4 GiB");
    SkipSpace();
    REPRISE_TRY(ParseValue(&document_->root_));
    SkipSpace();
    if (at_ != text_.size()) return Fail("unexpected text after the document");
    return OkStatus();
  }

 private:
  using Kind = JsonValue::Kind;

  Status Fail(const char* what) const {
    return InvalidArgument("JSON, byte " + std::to_string(at_) + ": " + what);
  }

  bool Consume(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void SkipSpace() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
      ++at_;
    }
  }

  Status ParseValue(JsonValue* value) {
    if (at_ >= text_.size()) return Fail("the document ends too early");
    if (values_left_ == 0) return Fail("the document has too many values");
    --values_left_;
    switch (text_[at_]) {
      case '{':
        return ParseObject(value);
      case '[':
        return ParseArray(value);
      case '"': {
        std::string_view text;
        REPRISE_TRY(ParseString(&text));
        value->kind_ = Kind::kString;
        value->size_ = static_cast<uint32_t>(text.size());
        value->text_ = text.data();
        return OkStatus();
      }
      case 't':
        return ParseWord("true", value, Kind::kBool, true);
      case 'f':
        return ParseWord("false", value, Kind::kBool, false);
      case 'n':
        return ParseWord("null", value, Kind::kNull, false);
      default:
        return ParseNumber(value);
    }
  }

  Status ParseWord(std::string_view word, JsonValue* value, Kind kind, bool flag) {
    if (text_.substr(at_, word.size()) != word) return Fail("unknown word");
    at_ += word.size();
    value->kind_ = kind;
    value->int_ = 0;
    if (kind == Kind::kBool) value->bool_ = flag;
    return OkStatus();
  }

  // Integers of up to seven digits, eight bytes at a time: a prompt may be thousands of token ids,
  // whose lengths no processor foresees. False, with nothing read: for ParseNumber.
  bool ParseShortInt(JsonValue* value) {
    if constexpr (std::endian::native != std::endian::little) return false;
    uint64_t word = 0;
    if (text_.size() - at_ < sizeof(word)) return false;
    std::memcpy(&word, text_.data() + at_, sizeof(word));
    word ^= 0x3030303030303030ull;  // digits become their values
    // The lowest bit set belongs to the first byte above 9; bits behind it may be wrong.
    const uint64_t others = (word | (word + 0x7676767676767676ull)) & 0x8080808080808080ull;
    if (others == 0) return false;
    const size_t digits = static_cast<size_t>(std::countr_zero(others)) / 8;
    if (digits == 0 || (digits > 1 && text_[at_] == '0')) return false;
    const char next = text_[at_ + digits];
    if (next == '.' || next == 'e' || next == 'E') return false;
    word <<= 64 - 8 * digits;  // zeros in front
    word = word * 10 + (word >> 8);
    word = (word & 0x00FF00FF00FF00FFull) * 100 + (word >> 16 & 0x00FF00FF00FF00FFull);
    word = (word & 0x0000FFFF0000FFFFull) * 10000 + (word >> 32 & 0x0000FFFFull);
    value->kind_ = Kind::kInt;
    value->int_ = static_cast<int64_t>(word & 0xFFFFFFFFull);
    at_ += digits;
    return true;
  }

  Status ParseNumber(JsonValue* value) {
    if (ParseShortInt(value)) return OkStatus();
    const size_t begin = at_;
    Consume('-');
    if (Consume('0')) {
    } else if (!SkipDigits()) {
      return Fail("expected a value");
    }
    bool integral = true;
    if (Consume('.')) {
      integral = false;
      if (!SkipDigits()) return Fail("expected a digit after the decimal point");
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      integral = false;
      ++at_;
      if (!Consume('-')) Consume('+');
      if (!SkipDigits()) return Fail("expected a digit in the exponent");
    }
    const char* first = text_.data() + begin;
    const char* last = text_.data() + at_;
    const std::string_view spelling(first, static_cast<size_t>(last - first));
    if (integral && spelling != "-0" &&
        std::from_chars(first, last, value->int_).ec == std::errc()) {
      value->kind_ = Kind::kInt;
      return OkStatus();
    }
    JsonValue::Number number = {};
    if (std::from_chars(first, last, number.value).ec != std::errc() ||
        !std::isfinite(number.value)) {
      return Fail("the number is out of range");
    }
    number.spelling = document_->arena_->Copy(first, spelling.size());
    value->kind_ = Kind::kDouble;
    value->size_ = static_cast<uint32_t>(spelling.size());
    value->number_ = document_->arena_->Copy(&number, 1);
    return OkStatus();
  }

  bool SkipDigits() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ != begin;
  }

  // The string is a view of the text where it has no escapes, else a decoded copy in the arena.
  Status ParseString(std::string_view* out) {
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20)
        return Fail("control character in a string");
      ++at_;
    }
    if (at_ >= text_.size()) return Fail("the string does not end");
    const std::string_view plain = text_.substr(begin, at_ - begin);
    if (text_[at_] == '"') {
      if (!IsValidUtf8(plain)) return Fail("the string is not valid UTF-8");
      ++at_;
      *out = std::string_view(document_->arena_->Copy(plain.data(), plain.size()), plain.size());
      return OkStatus();
    }
    scratch_.assign(plain);
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_++];
      if (static_cast<unsigned char>(c) < 0x20) return Fail("control character in a string");
      if (c != '\\') {
        scratch_ += c;
      } else {
        REPRISE_TRY(ParseEscape());
      }
    }
    if (!Consume('"')) return Fail("the string does not end");
    if (!IsValidUtf8(scratch_)) return Fail("the string is not valid UTF-8");
    *out = std::string_view(document_->arena_->Copy(scratch_.data(), scratch_.size()),
                            scratch_.size());
    return OkStatus();
  }

  Status ParseEscape() {
    if (at_ >= text_.size()) return Fail("the string does not end");
    const char c = text_[at_++];
    switch (c) {
      case '"':
      case '\\':
      case '/':
        scratch_ += c;
        return OkStatus();
      case 'b':
        scratch_ += '\b';
        return OkStatus();
      case 'f':
        scratch_ += '\f';
        return OkStatus();
      case 'n':
        scratch_ += '\n';
        return OkStatus();
      case 'r':
        scratch_ += '\r';
        return OkStatus();
      case 't':
        scratch_ += '\t';
        return OkStatus();
      case 'u':
        break;
      default:
        return Fail("unknown escape in a string");
    }
    uint32_t code = 0;
    if (!ParseHex4(&code)) return Fail("expected four hexadecimal digits");
    if (code >= 0xDC00 && code < 0xE000) return Fail("lone surrogate in a string");
    if (code >= 0xD800 && code < 0xDC00) {
      uint32_t low = 0;
      if (!Consume('\\') || !Consume('u') || !ParseHex4(&low) || low < 0xDC00 || low >= 0xE000) {
        return Fail("lone surrogate in a string");
      }
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    AppendUtf8(code, &scratch_);
    return OkStatus();
  }

  bool ParseHex4(uint32_t* code) {
    if (text_.size() - at_ < 4) return false;
    const char* first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, first + 4, *code, 16);
    if (error != std::errc() || end != first + 4) return false;
    at_ += 4;
    return true;
  }

  Status ParseArray(JsonValue* value) {
    if (depth_left_ == 0) return Fail("too deeply nested");
    --depth_left_;
    ++at_;
    const size_t base = items_.size();
    SkipSpace();
    if (!Consume(']')) {
      do {
        SkipSpace();
        JsonValue item;
        REPRISE_TRY(ParseValue(&item));
        items_.push_back(item);
        SkipSpace();
      } while (Consume(','));
      if (!Consume(']')) return Fail("expected ',' or ']'");
    }
    ++depth_left_;
    value->kind_ = Kind::kArray;
    value->size_ = static_cast<uint32_t>(items_.size() - base);
    value->items_ = document_->arena_->Copy(items_.data() + base, value->size_);
    items_.resize(base);
    return OkStatus();
  }

  Status ParseObject(JsonValue* value) {
    if (depth_left_ == 0) return Fail("too deeply nested");
    --depth_left_;
    ++at_;
    const size_t base = members_.size();
    SkipSpace();
    if (!Consume('}')) {
      do {
        SkipSpace();
        if (at_ >= text_.size() || text_[at_] != '"') return Fail("expected a member name");
        JsonValue::Member member;
        REPRISE_TRY(ParseString(&member.key));
        SkipSpace();
        if (!Consume(':')) return Fail("expected ':'");
        SkipSpace();
        REPRISE_TRY(ParseValue(&member.value));
        members_.push_back(member);
        SkipSpace();
      } while (Consume(','));
      if (!Consume('}')) return Fail("expected ',' or '}'");
    }
    ++depth_left_;
    if (HasDuplicate(base)) return Fail("duplicate member name");
    value->kind_ = Kind::kObject;
    value->size_ = static_cast<uint32_t>(members_.size() - base);
    value->members_ = document_->arena_->Copy(members_.data() + base, value->size_);
    members_.resize(base);
    return OkStatus();
  }

  bool HasDuplicate(size_t base) const {
    const size_t count = members_.size() - base;
    if (count <= 8) {
      for (size_t i = base; i < members_.size(); ++i) {
        for (size_t j = base; j < i; ++j) {
          if (members_[i].key == members_[j].key) return true;
        }
      }
      return false;
    }
    const auto hash = [](std::string_view key) { return HashBytes(key); };
    std::unordered_set<std::string_view, decltype(hash)> seen;
    seen.reserve(count);
    for (size_t i = base; i < members_.size(); ++i) {
      if (!seen.insert(members_[i].key).second) return true;
    }
    return false;
  }

  const std::string_view text_;
  size_t at_ = 0;
  int depth_left_;
  size_t values_left_;
  JsonDocument* const document_;
  std::string scratch_;
  std::vector<JsonValue> items_;
  std::vector<JsonValue::Member> members_;
};

std::span<const JsonValue> JsonValue::items() const {
  CHECK(is_array());
  return {items_, size_};
}

std::span<const JsonValue::Member> JsonValue::members() const {
  CHECK(is_object());
  return {members_, size_};
}

const JsonValue* JsonValue::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : members()) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

JsonDocument::JsonDocument() : arena_(new Arena) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

Result<JsonDocument> JsonDocument::Parse(std::string_view text, const JsonLimits& limits) {
  JsonDocument document;
  REPRISE_TRY(JsonParser(text, limits, &document).Run());
  return document;
}

void AppendJsonString(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (size_t at = 0; at < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[at]);
    if (c >= 0x80) {
      const size_t length = Utf8SequenceLength(text.substr(at));
      if (length == 0) {
        out->append("\xEF\xBF\xBD");
        ++at;
      } else {
        out->append(text.substr(at, length));
        at += length;
      }
      continue;
    }
    ++at;
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      default:
        if (c < 0x20) {
          out->append("\\u00");
          out->push_back(kHex[c >> 4]);
          out->push_back(kHex[c & 15]);
        } else {
          out->push_back(static_cast<char>(c));
        }
    }
  }
  out->push_back('"');
}

}  // namespace reprise
