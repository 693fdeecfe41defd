// SPDX-License-Identifier: Apache-2.0
#include "cli/help/completion.h"

#include <functional>
#include <string_view>
#include <vector>

namespace reprise::cli {
namespace {

constexpr char kGenerated[] = "Generated from the definitions of the command line. Do not edit.\n";

// A word that the shell reads as it is. fish has its own escapes within quotes.
std::string Quote(std::string_view text, bool fish = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += fish ? "\\'" : "'\\''";
    } else if (c == '\\' && fish) {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string Join(const std::vector<std::string>& words, const std::string& between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::vector<std::string> Names(const std::vector<CommandText>& commands) {
  std::vector<std::string> names;
  for (const CommandText& command : commands) names.push_back(LastWord(command.name));
  return names;
}

void ForEach(const CommandText& command, const std::function<void(const CommandText&)>& visit) {
  visit(command);
  for (const CommandText& below : command.commands) ForEach(below, visit);
}

// "reprise help", which takes the name of a command.
CommandText WithHelp(CommandText root) {
  OptionText name;
  name.place = "COMMAND";
  name.choices = Names(root.commands);
  name.help = "a command";
  root.commands.push_back({root.name + " help", "show the options of a command", "", {name}, {}});
  return root;
}

// Which word completes what: shared by the three.
bool TakesFile(const OptionText& option) {
  return option.value == "TEXT" && option.choices.empty();
}

const OptionText* Place(const CommandText& command) {
  for (const OptionText& option : command.options) {
    if (!option.place.empty()) return &option;
  }
  return nullptr;
}

// `case` arms that follow the words before the cursor to a command: "reprise bench" and so on.
std::string Paths(const CommandText& root) {
  std::vector<std::string> paths;
  ForEach(root, [&](const CommandText& command) {
    if (command.name != root.name) paths.push_back(Quote(command.name));
  });
  return Join(paths, "|");
}

std::string BashCommand(const CommandText& command) {
  std::string text = "    " + Quote(command.name) + ")\n      case $previous in\n";
  std::vector<std::string> options, numbers, files;
  for (const OptionText& option : command.options) {
    options.insert(options.end(), option.names.begin(), option.names.end());
    if (option.names.empty() || option.value.empty()) continue;
    if (!option.choices.empty()) {
      text +=
          "        " + Join(option.names, "|") + ") words=" + Quote(Join(option.choices)) + " ;;\n";
    } else {
      auto& list = TakesFile(option) ? files : numbers;
      list.insert(list.end(), option.names.begin(), option.names.end());
    }
  }
  if (!files.empty()) text += "        " + Join(files, "|") + ") compopt -o default; return ;;\n";
  if (!numbers.empty()) text += "        " + Join(numbers, "|") + ") return ;;\n";
  text += "        *) if [[ $current == -* ]]; then words=" + Quote(Join(options));
  const OptionText* place = Place(command);
  if (!command.commands.empty()) {
    text += "; else words=" + Quote(Join(Names(command.commands)));
  } else if (place != nullptr && !place->choices.empty()) {
    text += "; else words=" + Quote(Join(place->choices));
  } else if (place != nullptr) {
    text += "; else compopt -o default; return";
  }
  return text + "; fi ;;\n      esac ;;\n";
}

std::string Bash(const CommandText& root) {
  std::string text = "# bash completion of " + root.name + ". " + kGenerated;
  text += "_" + root.name + "() {\n  local current=$2 previous=$3 at=" + root.name +
          R"( words= i
  COMPREPLY=()
  # "--kv=f" is three words here.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$at ${COMP_WORDS[i]}" in
      )" + Paths(root) +
          R"() at="$at ${COMP_WORDS[i]}" ;;
    esac
  done
  case $at in
)";
  ForEach(root, [&text](const CommandText& command) { text += BashCommand(command); });
  return text + "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\ncomplete -F _" +
         root.name + " " + root.name + "\n";
}

// A backslash before each of `special`.
std::string Escape(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string ZshFunction(const std::string& name) {
  std::string out = "_" + name;
  for (char& c : out) c = c == ' ' || c == '-' ? '_' : c;
  return out;
}

std::string ZshAction(const OptionText& option) {
  if (!option.choices.empty()) return "(" + Join(option.choices) + ")";
  return option.names.empty() || TakesFile(option) ? "_files" : " ";
}

std::string ZshCommand(const CommandText& command) {
  std::string text = ZshFunction(command.name) + "() {\n";
  if (!command.commands.empty()) text += "  local state line\n  local -a commands\n";
  text += "  _arguments -s -S";
  if (!command.commands.empty()) text += " -C";
  for (const OptionText& option : command.options) {
    const std::string help = "[" + Escape(option.help, "[]:\\") + "]";
    const std::string value =
        option.value.empty() ? "" : ":" + option.value + ":" + ZshAction(option);
    const std::string others = option.many ? "*" : "(" + Join(option.names) + ")";
    for (const std::string& name : option.names) {
      const bool long_one = name.starts_with("--") && !value.empty();  // may be "--kv=f16"
      text += " \\\n    " + Quote(others + name + (long_one ? "=" : "") + help + value);
    }
    if (!option.place.empty()) {
      text += " \\\n    " + Quote("::" + option.place + ":" + ZshAction(option));
    }
  }
  if (command.commands.empty()) return text + "\n}\n";
  text +=
      " \\\n    '1:command:->command' '*::argument:->rest'\n  case $state in\n    command)\n"
      "      commands=(\n";
  std::string rest;
  for (const CommandText& below : command.commands) {
    const std::string name = LastWord(below.name);
    text += "        " + Quote(name + ":" + Escape(below.summary, ":\\")) + "\n";
    rest += "        " + name + ") " + ZshFunction(below.name) + " ;;\n";
  }
  return text +
         "      )\n      _describe command commands ;;\n    rest)\n      case $words[1] in\n" +
         rest + "      esac ;;\n  esac\n}\n";
}

std::string Zsh(const CommandText& root) {
  std::string text =
      "#compdef " + root.name + "\n# zsh completion of " + root.name + ". " + kGenerated;
  ForEach(root, [&text](const CommandText& command) { text += ZshCommand(command); });
  // Sourced, it only defines; found by compinit, it is called to complete.
  return text + "if [ \"$funcstack[1]\" = _" + root.name + " ]; then\n  _" + root.name +
         " \"$@\"\nelse\n  compdef _" + root.name + " " + root.name + "\nfi\n";
}

std::string FishCommand(const CommandText& command, const std::string& program) {
  const std::string begin =
      "complete -c " + program + " -n " + Quote("__" + program + "_at " + command.name, true);
  const OptionText* place = Place(command);
  std::string text;
  if (place == nullptr || !place->choices.empty()) text += begin + " -f\n";
  if (place != nullptr && !place->choices.empty()) {
    text += begin + " -a " + Quote(Join(place->choices), true) + "\n";
  }
  for (const CommandText& below : command.commands) {
    text += begin + " -a " + LastWord(below.name) + " -d " + Quote(below.summary, true) + "\n";
  }
  for (const OptionText& option : command.options) {
    if (option.names.empty()) continue;
    text += begin;
    for (const std::string& name : option.names) {
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (!option.choices.empty()) {
      text += " -x -a " + Quote(Join(option.choices), true);
    } else if (!option.value.empty()) {
      text += TakesFile(option) ? " -r -F" : " -x";
    }
    text += " -d " + Quote(option.help, true) + "\n";
  }
  return text;
}

std::string Fish(const CommandText& root) {
  std::string paths = Paths(root);
  for (char& c : paths) c = c == '|' ? ' ' : c;
  std::string text = "# fish completion of " + root.name + ". " + kGenerated;
  text += "# True if the words before the cursor name exactly the command in the arguments.\n";
  text += "function __" + root.name + "_at\n  set -l at " + root.name +
          "\n  for word in (commandline -opc)[2..]\n    switch \"$at $word\"\n      case " + paths +
          "\n        set at \"$at $word\"\n    end\n  end\n  test \"$at\" = \"$argv\"\nend\n";
  ForEach(root, [&](const CommandText& command) { text += FishCommand(command, root.name); });
  return text;
}

}  // namespace

Result<std::string> Completion(const std::string& shell, const CommandText& root) {
  if (shell == "bash") return Bash(WithHelp(root));
  if (shell == "zsh") return Zsh(WithHelp(root));
  if (shell == "fish") return Fish(WithHelp(root));
  return InvalidArgument("no completion for '" + shell + "' (known: bash, zsh, fish)");
}

}  // namespace reprise::cli
