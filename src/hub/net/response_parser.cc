// SPDX-License-Identifier: Apache-2.0
#include "hub/net/response_parser.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace reprise::hub {
namespace {

constexpr size_t kHeadBytesMax = 64 << 10;
constexpr size_t kHeadersMax = 128;
constexpr size_t kChunkLineMax = 1024;
constexpr size_t kTrailerBytesMax = 16 << 10;
constexpr int kInformationalMax = 8;

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

template <typename T>
std::optional<T> WholeNumber(std::string_view text, int base = 10) {
  T value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || at != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string Lowered(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace

const std::string* ResponseHead::Find(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<uint64_t> ResponseHead::Number(std::string_view name) const {
  const std::string* value = Find(name);
  return value == nullptr ? std::nullopt : WholeNumber<uint64_t>(*value);
}

void ResponseParser::Fail(const char* why) {
  state_ = State::kFailed;
  error_ = why;
}

void ResponseParser::Feed(std::string_view bytes, std::string* body) {
  while (!bytes.empty()) {
    size_t used = 0;
    if (state_ == State::kHead) {
      used = FeedHead(bytes);
    } else if (state_ == State::kBody && framing_ == Framing::kChunked) {
      used = FeedChunks(bytes, body);
    } else if (state_ == State::kBody) {
      used = bytes.size();
      if (framing_ == Framing::kLength) {
        used = static_cast<size_t>(std::min<uint64_t>(used, left_));
        left_ -= used;
        if (left_ == 0) state_ = State::kDone;
      }
      body->append(bytes.substr(0, used));
    } else {
      return;
    }
    bytes.remove_prefix(used);
  }
}

void ResponseParser::End() {
  if (state_ == State::kBody && framing_ == Framing::kUntilEnd) {
    state_ = State::kDone;
  } else if (state_ == State::kHead || state_ == State::kBody) {
    Fail("the connection ended in the middle of the answer");
  }
}

// Takes bytes up to the empty line that ends a head.
size_t ResponseParser::FeedHead(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size()) {
    const size_t newline = bytes.find('\n', used);
    const size_t end = newline == std::string_view::npos ? bytes.size() : newline + 1;
    line_.append(bytes.substr(used, end - used));
    used = end;
    if (line_.size() > kHeadBytesMax) {
      Fail("the head of the answer is too long");
      return used;
    }
    if (line_.ends_with("\n\r\n") || line_.ends_with("\n\n")) break;
  }
  if (!line_.ends_with("\n\r\n") && !line_.ends_with("\n\n")) return used;
  const std::string text = std::move(line_);
  line_.clear();
  if (!ParseHead(text)) {
    if (state_ != State::kFailed) Fail("the answer is not HTTP");
    return used;
  }
  // 101 would be another protocol, which was not asked for.
  if (head_.status >= 100 && head_.status < 200) {
    if (head_.status == 101 || ++informational_ > kInformationalMax)
      Fail("the response is not valid HTTP");
    return used;
  }
  ChooseFraming();
  return used;
}

bool ResponseParser::ParseHead(std::string_view text) {
  head_ = ResponseHead();
  size_t end = text.find('\n');
  const std::string_view first = Trimmed(text.substr(0, end));
  if (!first.starts_with("HTTP/1.") || first.size() < 12 || first[8] != ' ') return false;
  if (first[7] != '0' && first[7] != '1') return false;
  if (first.size() > 12 && first[12] != ' ') return false;
  const auto status = WholeNumber<int>(first.substr(9, 3));
  if (!status || *status < 100) return false;
  head_.status = *status;
  for (text.remove_prefix(end + 1); !text.empty(); text.remove_prefix(end + 1)) {
    end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.empty() || line == "\r") return true;
    if (!ParseHeader(line)) return false;
  }
  return false;
}

bool ResponseParser::ParseHeader(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view name = line.substr(0, colon);
  const bool sound =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (!sound || head_.headers.size() == kHeadersMax) return false;
  const std::string_view value = Trimmed(line.substr(colon + 1));
  const bool text = std::none_of(value.begin(), value.end(), [](char c) {
    return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7F;
  });
  if (!text) return false;
  head_.headers.emplace_back(Lowered(name), value);
  return true;
}

void ResponseParser::ChooseFraming() {
  state_ = State::kBody;
  std::optional<uint64_t> length;
  bool chunked = false;
  for (const auto& [name, value] : head_.headers) {
    if (name == "content-length") {
      const auto number = WholeNumber<uint64_t>(value);
      if (!number || (length && *length != *number)) return Fail("the answer has no sound length");
      length = number;
    } else if (name == "transfer-encoding") {
      if (chunked || Lowered(value) != "chunked") return Fail("the answer is coded in another way");
      chunked = true;
    }
  }
  if (!has_body_ || head_.status == 204 || head_.status == 304) {
    state_ = State::kDone;
    return;
  }
  if (chunked && length) return Fail("the answer has a length and chunks");
  framing_ = chunked ? Framing::kChunked : length ? Framing::kLength : Framing::kUntilEnd;
  left_ = length.value_or(0);
  if (framing_ == Framing::kLength && left_ == 0) state_ = State::kDone;
}

size_t ResponseParser::FeedChunks(std::string_view bytes, std::string* body) {
  if (chunk_ == Chunk::kData) {
    const size_t used = static_cast<size_t>(std::min<uint64_t>(bytes.size(), left_));
    body->append(bytes.substr(0, used));
    left_ -= used;
    if (left_ == 0) chunk_ = Chunk::kDataEnd;
    return used;
  }
  const size_t newline = bytes.find('\n');
  const size_t used = newline == std::string_view::npos ? bytes.size() : newline + 1;
  line_.append(bytes.substr(0, used));
  if (line_.size() > kChunkLineMax) {
    Fail("a line between chunks is too long");
  } else if (newline != std::string_view::npos) {
    EndChunkLine();
  }
  return used;
}

void ResponseParser::EndChunkLine() {
  std::string_view line(line_);
  line.remove_suffix(1);
  if (line.ends_with("\r")) line.remove_suffix(1);
  if (chunk_ == Chunk::kSize) {
    const std::string_view digits = Trimmed(line.substr(0, line.find(';')));
    const auto size = WholeNumber<uint64_t>(digits, 16);
    if (!size || digits.front() == '-') return Fail("a chunk has no sound length");
    left_ = *size;
    chunk_ = left_ == 0 ? Chunk::kTrailer : Chunk::kData;
  } else if (chunk_ == Chunk::kDataEnd) {
    if (!line.empty()) return Fail("a chunk is longer than it says");
    chunk_ = Chunk::kSize;
  } else {
    trailers_ += line_.size();
    if (trailers_ > kTrailerBytesMax) return Fail("the trailers are too long");
    if (line.empty()) state_ = State::kDone;
  }
  line_.clear();
}

}  // namespace reprise::hub
