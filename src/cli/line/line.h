// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace reprise::cli {

// The message that a person writes, and where the cursor stands in it. The cursor moves by
// characters as people see them (text_width.h).
//
// 1. The text is valid UTF-8, of at most kBytesMax bytes; what would be more is not taken.
// 2. The cursor stands between two characters.
class Line {
 public:
  static constexpr size_t kBytesMax = size_t{8} << 20;

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }
  bool empty() const { return text_.empty(); }

  // The cursor goes behind the text.
  void Set(std::string text);
  // False if it does not fit.
  bool Insert(std::string_view text);

  void Left();
  void Right();
  void WordLeft();
  void WordRight();
  void Home();  // of the row that the cursor is in: messages may have several
  void End();
  // One row up or down, in the same column. False if there is none.
  bool Up();
  bool Down();

  void Backspace();
  void Delete();
  void CutToEnd();
  void CutToStart();
  void CutWord();
  void CutNextWord();
  void Yank() { Insert(cut_); }

 private:
  size_t RowStart(size_t at) const;
  size_t RowEnd(size_t at) const;
  size_t WordBefore() const;
  size_t WordBehind() const;
  void Cut(size_t begin, size_t end);
  // The place in the row that begins at `row`, about `columns` from its start.
  size_t PlaceAt(size_t row, int columns) const;

  std::string text_;
  size_t cursor_ = 0;
  std::string cut_;
};

}  // namespace reprise::cli
