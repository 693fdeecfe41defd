// SPDX-License-Identifier: Apache-2.0
#include "cli/line/screen.h"

#include <algorithm>

#include "cli/line/text_width.h"

namespace reprise::cli {
namespace {

constexpr int kTabColumns = 4;
constexpr int kColumnsMin = 4;

int ColumnsOfShown(std::string_view text, const Cluster& cluster) {
  return text[0] == '\t' ? kTabColumns : cluster.columns;
}

// The text of a row: tabs as spaces, without the newline.
void AppendShown(std::string_view text, std::string* out) {
  for (const char byte : text) {
    if (byte == '\t') {
      out->append(kTabColumns, ' ');
    } else if (byte != '\n') {
      *out += byte;
    }
  }
}

// How many rows of the terminal a row of that width takes.
size_t RowsOf(int width, int columns) {
  return static_cast<size_t>(std::max(0, width - 1) / columns) + 1;
}

std::string Move(size_t count, char direction) {
  return count == 0 ? "" : "\x1b[" + std::to_string(count) + direction;
}

}  // namespace

// Rows of at most `columns`, the first ones behind an `indent`. A text that ends with a full row
// has an empty one behind it, for the cursor.
std::vector<Screen::Row> Screen::Cut(std::string_view text, int indent, int columns) {
  std::vector<Row> rows = {{0, 0, indent}};
  for (size_t at = 0; at < text.size();) {
    Row& row = rows.back();
    if (text[at] == '\n') {
      row.end = ++at;
      rows.push_back({at, at, indent});
      continue;
    }
    const std::string_view rest = text.substr(at);
    const Cluster cluster = FirstCluster(rest);
    const int width = ColumnsOfShown(rest, cluster);
    if (row.columns + width > columns && row.end > row.begin) {
      rows.push_back({at, at, indent});
      continue;
    }
    at += cluster.bytes;
    row.end = at;
    row.columns += width;
  }
  if (rows.back().columns >= columns) rows.push_back({text.size(), text.size(), indent});
  return rows;
}

// To where the last drawing began. Its rows may take several by now: the terminal has cut them
// anew where it became narrower.
std::string Screen::ToTop(const ScreenSize& size) const {
  size_t up = static_cast<size_t>(cursor_column_ / size.columns);
  for (size_t i = 0; i < cursor_row_ && i < drawn_.size(); ++i) {
    up += RowsOf(drawn_[i], size.columns);
  }
  return Move(up, 'A') + "\r\x1b[J";
}

std::string Screen::Draw(std::string_view prompt, const Line& line, const ScreenSize& given) {
  const ScreenSize size = {std::max(given.columns, kColumnsMin), std::max(given.rows, 2)};
  const int indent = std::min(ColumnsOf(prompt), size.columns - 2);
  const std::vector<Row> rows = Cut(line.text(), indent, size.columns);
  size_t at = 0;  // the row of the cursor
  while (at + 1 < rows.size() && rows[at + 1].begin <= line.cursor()) ++at;
  // As many rows as the screen has, with the cursor among them.
  const size_t most = static_cast<size_t>(size.rows);
  const size_t first = rows.size() <= most
                           ? 0
                           : std::min(at - std::min(at, most - 1 - most / 4), rows.size() - most);
  const size_t last = std::min(rows.size(), first + most);
  std::string out = ToTop(size);
  drawn_.clear();
  for (size_t i = first; i < last; ++i) {
    if (i > first) out += "\r\n";
    if (i == 0) {
      out += prompt;
    } else {
      out.append(static_cast<size_t>(indent), ' ');
    }
    AppendShown(std::string_view(line.text()).substr(rows[i].begin, rows[i].end - rows[i].begin),
                &out);
    drawn_.push_back(rows[i].columns);
  }
  cursor_row_ = at - first;
  const std::string_view before =
      std::string_view(line.text()).substr(rows[at].begin, line.cursor() - rows[at].begin);
  const auto tabs = static_cast<int>(std::count(before.begin(), before.end(), '\t'));
  cursor_column_ = indent + ColumnsOf(before) + tabs * kTabColumns;
  out += Move(last - 1 - at, 'A') + "\r" + Move(static_cast<size_t>(cursor_column_), 'C');
  return out;
}

std::string Screen::Finish(std::string_view prompt, const Line& line, const ScreenSize& size) {
  Line end;
  end.Set(line.text());
  std::string out = Draw(prompt, end, size) + "\r\n";
  drawn_.clear();
  cursor_row_ = 0;
  cursor_column_ = 0;
  return out;
}

std::string Screen::Clear() {
  drawn_.clear();
  cursor_row_ = 0;
  cursor_column_ = 0;
  return "\x1b[H\x1b[2J";
}

}  // namespace reprise::cli
