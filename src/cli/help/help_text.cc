// SPDX-License-Identifier: Apache-2.0
#include "cli/help/help_text.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace reprise::cli {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kIndent = 2;
constexpr size_t kTextColumn = 30;

// One row: `left`, and `text` beside it in lines that break between words.
std::string Row(const std::string& left, std::string_view text) {
  std::string row = std::string(kIndent, ' ') + left;
  size_t column = row.size();
  if (column + 1 >= kTextColumn) {
    row += '\n';
    column = 0;
  }
  row.append(kTextColumn - column, ' ');
  column = kTextColumn;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const bool first = column == kTextColumn;
    if (!first && column + 1 + word.size() > kColumns) {
      row += '\n' + std::string(kTextColumn, ' ');
      column = kTextColumn;
    } else if (!first) {
      row += ' ';
      ++column;
    }
    row += word;
    column += word.size();
  }
  return row + '\n';
}

std::string Names(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ",") + name;
  if (!option.place.empty()) {
    text = option.place + (text.empty() ? "" : " or " + text);
  } else if (!option.value.empty()) {
    // A place says what it takes by its name, and a switch takes nothing.
    text += " " + option.value + (option.many ? " ..." : "");
  }
  return option.required ? text + " (required)" : text;
}

std::string Section(const std::string& heading, const std::string& rows) {
  return rows.empty() ? "" : "\n" + heading + ":\n" + rows;
}

std::string Usage(const CommandText& command) {
  std::string text = "Usage: " + command.name;
  for (const OptionText& option : command.options) {
    if (option.place.empty()) continue;
    text += option.required ? " " + option.place : " [" + option.place + "]";
  }
  text += " [OPTIONS]";
  if (!command.commands.empty()) text += " COMMAND";
  return text + "\n";
}

}  // namespace

std::vector<std::string> Headings(const CommandText& command) {
  std::vector<std::string> headings;
  bool last = false;
  for (const OptionText& option : command.options) {
    if (!option.place.empty()) continue;
    last = last || option.heading == kLastHeading;
    const bool seen = std::find(headings.begin(), headings.end(), option.heading) != headings.end();
    if (!seen && option.heading != kLastHeading) headings.push_back(option.heading);
  }
  if (last) headings.emplace_back(kLastHeading);
  return headings;
}

std::string HelpText(const CommandText& command) {
  std::string places, commands;
  for (const OptionText& option : command.options) {
    if (!option.place.empty()) places += Row(Names(option), option.help);
  }
  for (const CommandText& below : command.commands) {
    commands += Row(LastWord(below.name), below.summary);
  }
  std::string text = command.summary + "\n\n" + Usage(command) + Section("Arguments", places) +
                     Section("Commands", commands);
  for (const std::string& heading : Headings(command)) {
    std::string rows;
    for (const OptionText& option : command.options) {
      if (option.place.empty() && option.heading == heading)
        rows += Row(Names(option), option.help);
    }
    text += Section(heading, rows);
  }
  return command.footer.empty() ? text : text + "\n" + command.footer + "\n";
}

}  // namespace reprise::cli
