// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

// What the definitions of commands say, as plain data: the one source of --help, of the manual
// pages and of what shells complete. Flags::Describe makes it; three writers read it (help_text.h,
// manual_page.h, completion.h).
namespace reprise::cli {

struct OptionText {
  std::vector<std::string> names;    // "-m", "--model"; empty: given by position alone
  std::string place;                 // "MODEL", where it may be given by position
  std::string value;                 // "TEXT", "INTEGER", "NUMBER"; empty: a switch
  std::vector<std::string> choices;  // all values that are allowed; empty: anything
  std::string help;                  // with the default
  std::string heading;
  std::string variable;  // of the environment: "REPRISE_MODEL"; empty: none
  bool required = false;
  bool many = false;  // may be given several times
};

struct CommandText {
  std::string name;  // with those of the commands above: "reprise bench decode"
  std::string summary;
  std::string footer;
  std::vector<OptionText> options;
  std::vector<CommandText> commands;
};

// The heading of --help and --version, which is shown last.
inline constexpr char kLastHeading[] = "Help";

// "bench decode" of "reprise bench decode" is "decode".
inline std::string LastWord(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

// Headings of options that have names, each once, in the order of their first option; kLastHeading
// at the end.
std::vector<std::string> Headings(const CommandText& command);

}  // namespace reprise::cli
