// SPDX-License-Identifier: Apache-2.0
#include "text/output/call_attempt.h"

#include <algorithm>

namespace reprise {
namespace {

constexpr size_t kHeadBytesMax = 2048;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kNoteBytesMax = 64;

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':' || c == '/';
}

// Reads a head from left to right. Once something did not match, nothing more is read.
class HeadReader {
 public:
  explicit HeadReader(std::string_view text) : text_(text) {}

  bool ok() const { return match_ == Match::kYes; }
  Match match() const { return match_; }
  size_t at() const { return at_; }

  void Marker(std::string_view marker) {
    if (!ok() || marker.empty()) return;
    size_t taken = 0;
    match_ = MatchMarker(marker, text_.substr(at_), &taken);
    if (ok()) at_ += taken;
  }

  // A name or an id: it ends before a byte that cannot be part of one.
  std::string Word() {
    if (!ok()) return "";
    at_ += BlanksAtStart(text_.substr(at_));
    size_t end = at_;
    while (end < text_.size() && IsNameByte(text_[end])) ++end;
    const std::string word(text_.substr(at_, end - at_));
    if (end == text_.size()) {
      match_ = word.size() > kNameBytesMax ? Match::kNo : Match::kMore;
    } else if (word.empty() || word.size() > kNameBytesMax) {
      match_ = Match::kNo;
    }
    at_ = end;
    return word;
  }

  // Whether the marker stands here. Not certain yet: match() says so.
  bool Has(std::string_view marker, std::string_view otherwise) {
    if (!ok()) return false;
    size_t taken = 0;
    const Match match = MatchMarker(marker, text_.substr(at_), &taken);
    if (match == Match::kMore && MatchMarker(otherwise, text_.substr(at_), &taken) != Match::kYes) {
      match_ = Match::kMore;
    }
    return match == Match::kYes;
  }

  // Anything on this line, up to the marker.
  void Note(std::string_view marker) {
    if (!ok()) return;
    const std::string_view rest = text_.substr(at_);
    const size_t line = rest.find('\n');
    const size_t end = rest.find(marker);
    if (end != std::string_view::npos && end <= kNoteBytesMax && end < line) {
      at_ += end;
    } else {
      const bool possible = end == std::string_view::npos && line == std::string_view::npos &&
                            rest.size() <= kNoteBytesMax + marker.size();
      match_ = possible ? Match::kMore : Match::kNo;
    }
  }

 private:
  const std::string_view text_;
  size_t at_ = 0;
  Match match_ = Match::kYes;
};

// functions.get_weather:0
std::string NameInId(std::string_view id) {
  constexpr std::string_view kPrefix = "functions.";
  if (id.starts_with(kPrefix)) id.remove_prefix(kPrefix.size());
  const size_t colon = id.rfind(':');
  if (colon != std::string_view::npos && colon + 1 < id.size() &&
      id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos) {
    id = id.substr(0, colon);
  }
  return std::string(id);
}

bool NameInBody(const CallFormat& format) {
  return format.body == CallFormat::Body::kNamedJson || format.body == CallFormat::Body::kKeyedJson;
}

}  // namespace

CallHead MatchHead(const CallFormat& format, CallStart start, std::string_view text) {
  using Id = CallFormat::Id;
  HeadReader reader(text);
  CallHead head;
  if (start == CallStart::kSection) reader.Marker(format.section_begin);
  if (start != CallStart::kName) reader.Marker(format.call_begin);
  if (!NameInBody(format)) {
    if (format.id == Id::kBeforeName || format.id == Id::kNameTwice) {
      head.id = reader.Word();
      reader.Marker(format.id_end);
    }
    head.name = reader.Word();
    if (format.id == Id::kAfterName && reader.Has(format.id_begin, format.arguments_begin)) {
      reader.Marker(format.id_begin);
      head.id = reader.Word();
    }
    if (format.id == Id::kNote) reader.Note(format.arguments_begin);
    reader.Marker(format.arguments_begin);
  }
  head.match = reader.match();
  head.taken = reader.at();
  if (format.id == Id::kNameTwice) head.id.clear();
  if (format.id == Id::kIsName) {
    head.id = head.name;
    head.name = NameInId(head.id);
    if (head.name.empty() && head.match == Match::kYes) head.match = Match::kNo;
  }
  return head;
}

void CallAttempt::Step(char c) {
  if (body_ != nullptr) return StepBody(c);
  head_ += c;
  CallHead head = MatchHead(*format_, start_, head_);
  if (head.match == Match::kMore && head_.size() <= kHeadBytesMax) return;
  if (head.match != Match::kYes) {
    state_ = State::kNone;
    return;
  }
  call_.name = std::move(head.name);
  call_.id = std::move(head.id);
  body_ = MakeBodyReader(*format_, tools_);
  // The byte that showed where a name ends is part of the body.
  for (size_t i = head.taken; i < head_.size() && state_ == State::kOpen; ++i) StepBody(head_[i]);
}

void CallAttempt::StepBody(char c) {
  const BodyReader::Took took = body_->Step(c, &call_);
  over_ = took == BodyReader::Took::kLast;
  if (took == BodyReader::Took::kBroken || took == BodyReader::Took::kDoneBefore) {
    state_ = State::kNone;
  } else if (call_.begun) {
    state_ = State::kBegun;
  } else if (over_) {
    state_ = State::kNone;
  }
}

}  // namespace reprise
