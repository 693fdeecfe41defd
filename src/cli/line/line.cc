// SPDX-License-Identifier: Apache-2.0
#include "cli/line/line.h"

#include <algorithm>
#include <utility>

#include "cli/line/text_width.h"

namespace reprise::cli {
namespace {

// Letters, digits and all that is not ASCII make words.
bool IsWord(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z') || byte == '_' || static_cast<unsigned char>(byte) >= 0x80;
}

}  // namespace

void Line::Set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

bool Line::Insert(std::string_view text) {
  if (text.size() > kBytesMax - text_.size()) return false;
  text_.insert(cursor_, text);
  cursor_ += text.size();
  return true;
}

void Line::Left() {
  if (cursor_ > 0) cursor_ = ClusterBefore(text_, cursor_);
}

void Line::Right() {
  if (cursor_ < text_.size()) {
    cursor_ += FirstCluster(std::string_view(text_).substr(cursor_)).bytes;
  }
}

size_t Line::RowStart(size_t at) const {
  const size_t newline = at == 0 ? std::string::npos : text_.rfind('\n', at - 1);
  return newline == std::string::npos ? 0 : newline + 1;
}

size_t Line::RowEnd(size_t at) const { return std::min(text_.find('\n', at), text_.size()); }

void Line::Home() { cursor_ = RowStart(cursor_); }
void Line::End() { cursor_ = RowEnd(cursor_); }

size_t Line::PlaceAt(size_t row, int columns) const {
  const size_t end = RowEnd(row);
  size_t at = row;
  for (int seen = 0; at < end;) {
    const Cluster cluster = FirstCluster(std::string_view(text_).substr(at, end - at));
    seen += cluster.columns;
    if (seen > columns) break;
    at += cluster.bytes;
  }
  return at;
}

bool Line::Up() {
  const size_t row = RowStart(cursor_);
  if (row == 0) return false;
  const int columns = ColumnsOf(std::string_view(text_).substr(row, cursor_ - row));
  cursor_ = PlaceAt(RowStart(row - 1), columns);
  return true;
}

bool Line::Down() {
  const size_t row = RowStart(cursor_), end = RowEnd(cursor_);
  if (end == text_.size()) return false;
  const int columns = ColumnsOf(std::string_view(text_).substr(row, cursor_ - row));
  cursor_ = PlaceAt(end + 1, columns);
  return true;
}

size_t Line::WordBefore() const {
  size_t at = cursor_;
  while (at > 0 && !IsWord(text_[at - 1])) --at;
  while (at > 0 && IsWord(text_[at - 1])) --at;
  return at;
}

size_t Line::WordBehind() const {
  size_t at = cursor_;
  while (at < text_.size() && !IsWord(text_[at])) ++at;
  while (at < text_.size() && IsWord(text_[at])) ++at;
  return at;
}

void Line::WordLeft() { cursor_ = WordBefore(); }
void Line::WordRight() { cursor_ = WordBehind(); }

void Line::Cut(size_t begin, size_t end) {
  if (begin == end) return;
  cut_ = text_.substr(begin, end - begin);
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void Line::CutToStart() { Cut(RowStart(cursor_), cursor_); }
void Line::CutWord() { Cut(WordBefore(), cursor_); }
void Line::CutNextWord() { Cut(cursor_, WordBehind()); }

// At the end of a row it joins the next one.
void Line::CutToEnd() {
  const size_t end = RowEnd(cursor_);
  Cut(cursor_, end == cursor_ && end < text_.size() ? end + 1 : end);
}

void Line::Backspace() {
  if (cursor_ == 0) return;
  const size_t before = ClusterBefore(text_, cursor_);
  text_.erase(before, cursor_ - before);
  cursor_ = before;
}

void Line::Delete() {
  if (cursor_ == text_.size()) return;
  text_.erase(cursor_, FirstCluster(std::string_view(text_).substr(cursor_)).bytes);
}

}  // namespace reprise::cli
