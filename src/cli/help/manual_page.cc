// SPDX-License-Identifier: Apache-2.0
#include "cli/help/manual_page.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>
#include <vector>

namespace reprise::cli {
namespace {

// Text that says nothing to the formatter: backslashes, minus signs, and what begins a request.
std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '"') {
      out += "\\(dq";
    } else {
      out += c;
    }
  }
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out.insert(0, "\\&");
  return out;
}

// An argument of a macro: a word of punctuation or a macro's name must not be read as such.
std::string Argument(const std::string& word) { return "\\&" + Escape(word); }

std::string Capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// Sentences on lines of their own, none longer than 80 columns, and a full stop at the end.
std::string Prose(const std::string& said) {
  constexpr size_t kColumns = 78;
  const std::string text = Capitalised(said);
  std::string out, line;
  const auto end_line = [&out, &line] {
    if (!line.empty()) out += line + "\n";
    line.clear();
  };
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (line.size() + 1 + Escape(word).size() > kColumns) end_line();
    line += (line.empty() ? "" : " ") + Escape(word);
    if (word.ends_with(".")) end_line();
  }
  if (!line.empty() && !line.ends_with(".")) line += ".";
  end_line();
  return out;
}

std::string PageName(const std::string& command) {
  std::string name = command;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// "-m" as an argument of .Fl, which writes the first dash.
std::string Flag(const std::string& name) { return "Fl " + Escape(name.substr(1)); }

std::string Synopsis(const CommandText& command) {
  std::string text = ".Sh SYNOPSIS\n.Nm " + command.name + "\n";
  for (const OptionText& option : command.options) {
    if (option.place.empty()) continue;
    text += (option.required ? ".Ar " : ".Op Ar ") + Argument(option.place) + "\n";
  }
  text += ".Op Ar options\n";
  if (!command.commands.empty()) text += ".Ar command\n.Op Ar arguments\n";
  return text;
}

std::string Item(const OptionText& option) {
  std::string text = ".It";
  if (!option.place.empty()) text += " Ar " + Argument(option.place);
  bool first = option.place.empty();
  for (const std::string& name : option.names) {
    text += (first ? " " : " , ") + Flag(name);
    first = false;
  }
  if (!option.value.empty() && !option.names.empty()) text += " Ar " + option.value;
  text += "\n" + Prose(option.help);
  if (!option.choices.empty()) {
    text += "One of";
    for (size_t i = 0; i < option.choices.size(); ++i) {
      text += i == 0 ? "\n" : i + 1 == option.choices.size() ? "\nor\n" : "";
      text += ".Cm " + Argument(option.choices[i]);
      text += i + 1 == option.choices.size()   ? " .\n"
              : i + 2 == option.choices.size() ? ""
                                               : " ,\n";
    }
  }
  if (option.required) text += "Required.\n";
  if (option.many && !option.names.empty()) text += "May be given several times.\n";
  return text;
}

template <typename Chosen>
std::string Items(const CommandText& command, const std::string& title, const Chosen& chosen) {
  std::string items;
  for (const OptionText& option : command.options) {
    if (chosen(option)) items += Item(option);
  }
  if (items.empty()) return "";
  return ".Ss " + Escape(title) + "\n.Bl -tag -width Ds\n" + items + ".El\n";
}

std::string Commands(const CommandText& command) {
  if (command.commands.empty()) return "";
  std::string text = ".Ss Commands\n.Bl -tag -width Ds\n";
  for (const CommandText& below : command.commands) {
    text += ".It Cm " + Argument(LastWord(below.name)) + "\n" + Prose(below.summary) + "See\n.Xr " +
            PageName(below.name) + " 1 .\n";
  }
  return text + ".El\n";
}

std::string Environment(const CommandText& command) {
  const auto with = std::find_if(command.options.begin(), command.options.end(),
                                 [](const OptionText& option) { return !option.variable.empty(); });
  if (with == command.options.end()) return "";
  return ".Sh ENVIRONMENT\n"
         "An option with a long name that is not on the command line is taken from the\n"
         "environment: the name in capitals, with underscores, after\n.Ev REPRISE_ .\n"
         "Here\n.Ev " +
         with->variable + "\nstands for\n." + Flag(with->names.back()) + " .\n";
}

std::string SeeAlso(const CommandText& command, const std::string& above) {
  std::vector<std::string> pages;
  if (!above.empty()) pages.push_back(PageName(above));
  for (const CommandText& below : command.commands) pages.push_back(PageName(below.name));
  if (pages.empty()) return "";
  std::sort(pages.begin(), pages.end());
  std::string text = ".Sh SEE ALSO\n";
  for (const std::string& page : pages)
    text += ".Xr " + page + (&page == &pages.back() ? " 1\n" : " 1 ,\n");
  return text;
}

}  // namespace

std::string ManualPage(const CommandText& command, const std::string& above,
                       const std::string& date) {
  std::string text = ".\\\" Generated from the definitions of the command line. Do not edit.\n";
  text += ".Dd " + date + "\n.Dt " + Upper(PageName(command.name)) + " 1\n.Os\n";
  const std::string summary = command.summary.substr(0, command.summary.find_last_not_of('.') + 1);
  text += ".Sh NAME\n.Nm " + PageName(command.name) + "\n.Nd " + Escape(summary) + "\n";
  text += Synopsis(command) + ".Sh DESCRIPTION\n" + Prose(command.summary);
  text += Items(command, "Arguments", [](const OptionText& one) { return !one.place.empty(); });
  text += Commands(command);
  for (const std::string& heading : Headings(command)) {
    text += Items(command, heading, [&heading](const OptionText& one) {
      return one.place.empty() && one.heading == heading;
    });
  }
  text += Environment(command);
  text += ".Sh EXIT STATUS\n0, or 1 after one sentence on the standard error.\n";
  return text + SeeAlso(command, above);
}

std::string ManualDate(const std::string& iso) {
  constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};
  const auto digits = [&iso](size_t begin, size_t end) {
    return std::all_of(iso.begin() + begin, iso.begin() + end,
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  if (iso.size() != 10 || iso[4] != '-' || iso[7] != '-') return "";
  if (!digits(0, 4) || !digits(5, 7) || !digits(8, 10)) return "";
  const int month = (iso[5] - '0') * 10 + (iso[6] - '0'),
            day = (iso[8] - '0') * 10 + (iso[9] - '0');
  if (month < 1 || month > 12 || day < 1 || day > 31) return "";
  return std::string(kMonths[month - 1]) + " " + std::to_string(day) + ", " + iso.substr(0, 4);
}

namespace {

Status WriteBelow(const CommandText& command, const std::string& above, const std::string& folder,
                  const std::string& date) {
  const std::string path = folder + "/" + PageName(command.name) + ".1";
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << ManualPage(command, above, date);
  file.close();
  if (!file) return InvalidArgument("cannot write " + path + ": does the folder exist?");
  for (const CommandText& below : command.commands) {
    REPRISE_TRY(WriteBelow(below, command.name, folder, date));
  }
  return OkStatus();
}

}  // namespace

Status WriteManualPages(const CommandText& root, const std::string& folder,
                        const std::string& date) {
  return WriteBelow(root, "", folder, date);
}

}  // namespace reprise::cli
