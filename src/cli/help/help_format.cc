// SPDX-License-Identifier: Apache-2.0
#include "cli/help/help_format.h"

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

std::string Names(const CLI::Option& option) {
  std::string names = option.get_name(option.get_positional(), option.nonpositional());
  if (option.get_positional() && option.nonpositional()) {
    names = option.get_name(true, false) + " or " + option.get_name(false, true);
  }
  // A place says what it takes by its name, and a switch takes nothing.
  if (!option.get_positional() && option.get_type_size() != 0) {
    names += " " + option.get_type_name();
    if (option.get_expected_max() > 1) names += " ...";
  }
  return option.get_required() ? names + " (required)" : names;
}

std::string Section(const std::string& heading, const std::vector<const CLI::Option*>& options) {
  if (options.empty()) return "";
  std::string text = "\n" + heading + ":\n";
  for (const CLI::Option* option : options) text += Row(Names(*option), option->get_description());
  return text;
}

std::string Usage(const CLI::App& app, const std::string& name) {
  std::string text = "Usage: " + name;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string word = option->get_name(true, false);
    text += option->get_required() ? " " + word : " [" + word + "]";
  }
  text += " [OPTIONS]";
  if (!app.get_subcommands({}).empty()) text += " COMMAND";
  return text + "\n";
}

}  // namespace

std::string HelpFormat::make_help(const CLI::App* app, std::string name,
                                  CLI::AppFormatMode /*mode*/) const {
  const auto options = [app](auto&& wanted) { return app->get_options(wanted); };
  std::string text = app->get_description() + "\n\n" + Usage(*app, name);
  text += Section("Arguments",
                  options([](const CLI::Option* option) { return option->get_positional(); }));
  std::vector<std::string> headings = app->get_groups();
  std::stable_partition(headings.begin(), headings.end(),
                        [](const std::string& heading) { return heading != kLastHeading; });
  const std::vector<const CLI::App*> commands = app->get_subcommands({});
  if (!commands.empty()) text += "\nCommands:\n";
  for (const CLI::App* command : commands) {
    text += Row(command->get_name(), command->get_description());
  }
  for (const std::string& heading : headings) {
    text += Section(heading, options([&heading](const CLI::Option* option) {
                      return !option->get_positional() && option->get_group() == heading;
                    }));
  }
  const std::string footer = app->get_footer();
  return footer.empty() ? text : text + "\n" + footer + "\n";
}

}  // namespace reprise::cli
