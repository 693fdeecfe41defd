// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/line/line.h"

namespace reprise::cli {

struct ScreenSize {
  int columns = 80;
  int rows = 24;
};

// Where a prompt and a line stand on a terminal. Every change is drawn anew: the text is cut into
// rows, the cursor goes up to where the last drawing began, and the rows are written from there.
// What does not fit on the screen is shown around the cursor.
//
// Draw gives what is to be written; nothing is written here. Thread safety: none.
class Screen {
 public:
  std::string Draw(std::string_view prompt, const Line& line, const ScreenSize& size);
  // Behind the text, at the start of a new row: what is drawn next begins there.
  std::string Finish(std::string_view prompt, const Line& line, const ScreenSize& size);
  // The whole screen is cleared; the next drawing begins at its top.
  std::string Clear();

 private:
  // [begin, end) of the text; what is shown of it has `columns`.
  struct Row {
    size_t begin = 0;
    size_t end = 0;
    int columns = 0;
  };
  static std::vector<Row> Cut(std::string_view text, int indent, int columns);
  std::string ToTop(const ScreenSize& size) const;

  std::vector<int> drawn_;  // columns of each row of the last drawing
  size_t cursor_row_ = 0;   // in it
  int cursor_column_ = 0;
};

}  // namespace reprise::cli
