// SPDX-License-Identifier: Apache-2.0
#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <type_traits>
#include <utility>

#include "cli/help/help_text.h"

namespace reprise::cli {
namespace {

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// How many letters must be changed, put in or left out to make one word of the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t same = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({same, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// "; did you mean 'x'?", or nothing if no known word is near.
std::string Suggest(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t kWordBytesMax = 64;
  const std::string* nearest = nullptr;
  size_t least = std::min<size_t>(3, word.size() / 3 + 2);
  for (const std::string& one : known) {
    if (word.size() > kWordBytesMax) break;
    // Half of a word is as good as a word with few mistakes.
    const bool begins = word.size() >= 3 && one.starts_with(word);
    const size_t distance = begins ? 0 : Distance(word, one);
    if (distance >= least) continue;
    least = distance;
    nearest = &one;
  }
  return nearest == nullptr ? "" : "; did you mean '" + *nearest + "'?";
}

// Reads all of `text`: the sentence if it is no such number. The library's own reading wraps -1
// around and takes 010 for eight.
template <typename T>
std::string Read(const std::string& text, T* value) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *value);
  if (error == std::errc::result_out_of_range) return "'" + text + "' is too large";
  if (error == std::errc() && at == end) return "";
  const std::string kind = std::is_floating_point_v<T> ? "a number"
                           : std::is_unsigned_v<T>     ? "a whole number of 0 or more"
                                                       : "a whole number";
  return "'" + text + "' is not " + kind;
}

std::string Read(const std::string& text, std::string* value) {
  *value = text;
  return "";
}

// A number as people write it: 16777216, not 1.67772e+07.
std::string Plain(double number) {
  char text[32];
  const auto result = std::to_chars(text, text + sizeof(text), number, std::chars_format::fixed);
  return {text, result.ptr};
}

template <typename T>
constexpr const char* kTypeName = std::is_floating_point_v<T> ? "NUMBER"
                                  : std::is_integral_v<T>     ? "INTEGER"
                                                              : "TEXT";

// The sentence for a value that is not what the rule asks for, or nothing.
template <typename T>
std::string ReadChecked(const std::string& text, const FlagRule& rule, T* value) {
  if (std::string wrong = Read(text, value); !wrong.empty()) return wrong;
  if constexpr (std::is_arithmetic_v<T>) {
    const auto number = static_cast<double>(*value);
    if (!(number >= rule.min)) return text + " is too small; the least is " + Plain(rule.min);
    if (!(number <= rule.max)) return text + " is too large; the most is " + Plain(rule.max);
  } else if (!rule.one_of.empty() &&
             std::find(rule.one_of.begin(), rule.one_of.end(), text) == rule.one_of.end()) {
    return "'" + text + "' is none of " + Join(rule.one_of) + Suggest(text, rule.one_of);
  }
  return "";
}

template <typename T>
std::string ReadChecked(const std::string& text, const FlagRule& rule, std::optional<T>* value) {
  return ReadChecked(text, rule, &value->emplace());
}

template <typename T>
std::string ReadChecked(const std::string& text, const FlagRule& rule, std::vector<T>* value) {
  std::string rest = text;
  while (true) {
    const size_t comma = std::is_arithmetic_v<T> ? rest.find(',') : std::string::npos;
    const std::string wrong = ReadChecked(rest.substr(0, comma), rule, &value->emplace_back());
    if (!wrong.empty() || comma == std::string::npos) return wrong;
    rest.erase(0, comma + 1);
  }
}

// " (default 3)", or nothing.
template <typename T>
std::string Default(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value.empty() ? "" : " (default " + value + ")";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return value == T{} ? "" : " (default " + CLI::detail::to_string(value) + ")";
  } else {
    return "";
  }
}

template <typename T>
struct Element {
  using Type = T;
  static constexpr bool kMany = false;
};
template <typename T>
struct Element<std::optional<T>> : Element<T> {};
template <typename T>
struct Element<std::vector<T>> {
  using Type = T;
  static constexpr bool kMany = true;
};

CLI::Option* AddTo(CLI::App* app, const std::string& names, bool* value, const std::string& help,
                   const FlagRule&) {
  return app->add_flag(names, *value, help);
}

template <typename T>
CLI::Option* AddTo(CLI::App* app, const std::string& names, T* value, const std::string& help,
                   const FlagRule& rule) {
  const std::string name = names.substr(names.rfind(',') + 1);
  const auto read = [=](const CLI::results_t& texts) {
    *value = T{};
    if (!Element<T>::kMany && texts.size() > 1) {
      throw CLI::ValidationError(name,
                                 "given " + std::to_string(texts.size()) + " times; give it once");
    }
    for (const std::string& text : texts) {
      const std::string wrong = ReadChecked(text, rule, value);
      if (!wrong.empty()) throw CLI::ValidationError(name, wrong);
    }
    return true;
  };
  CLI::Option* option = app->add_option(names, read, help + Default(*value));
  option->type_name(kTypeName<typename Element<T>::Type>)->required(rule.required);
  if (Element<T>::kMany) option->expected(1, CLI::detail::expected_max_vector_size);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);  // `read` counts them
  return option->allow_extra_args(false);
}

// REPRISE_MAX_TOKENS for --max-tokens; empty if there is no long name.
std::string EnvironmentName(const CLI::Option& option) {
  if (option.get_lnames().empty()) return "";
  std::string name = "REPRISE_";
  for (const char c : option.get_lnames().front()) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

Status Print(const std::string& text) {
  const bool printed = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return printed ? OkStatus() : Internal("cannot write to the standard output");
}

}  // namespace

struct Flags::Parser {
  std::unique_ptr<CLI::App> root;  // of the first command alone
  CLI::App* app = nullptr;
  std::map<const CLI::Option*, std::vector<std::string>> choices;  // where a rule names them
};

Flags::Flags(const std::string& name, const std::string& summary)
    : name_(name), parser_(std::make_unique<Parser>()) {
  parser_->root = std::make_unique<CLI::App>(summary, name);
  parser_->app = parser_->root.get();
  AddHelp();
}

void Flags::AddHelp() {
  parser_->app->set_help_flag("-h,--help", "show this help")->group(kLastHeading);
}

Flags::Flags(std::string name, std::unique_ptr<Parser> parser)
    : name_(std::move(name)), parser_(std::move(parser)) {}

Flags::~Flags() = default;

void Flags::SetVersion(std::function<std::string()> version) {
  parser_->app
      ->set_version_flag(
          "--version", [this, version = std::move(version)] { return name_ + " " + version(); },
          "show version, commit, compiler, backends and instruction sets")
      ->group(kLastHeading);
}

void Flags::Add(const std::string& names, Value value, std::string help, const FlagRule& rule) {
  CLI::Option* option = std::visit(
      [&](auto* target) { return AddTo(parser_->app, names, target, help, rule); }, value);
  option->group(heading_);
  parser_->choices[option] = rule.one_of;
  // Only where it is set: the help would name it otherwise.
  const std::string variable = EnvironmentName(*option);
  if (!variable.empty() && std::getenv(variable.c_str()) != nullptr) option->envname(variable);
}

void Flags::AddConfig(const std::string& names, std::string help,
                      std::function<Result<Settings>(const std::string&)> read) {
  Add(names, &config_path_, std::move(help));
  read_config_ = std::move(read);
}

Status Flags::ApplyConfig() const {
  if (config_path_.empty()) return OkStatus();
  REPRISE_ASSIGN(const Settings settings, read_config_(config_path_));
  for (const auto& [name, values] : settings) {
    CLI::Option* option = parser_->app->get_option_no_throw("--" + name);
    if (option == nullptr) {
      return InvalidArgument(config_path_ + ": there is no setting '" + name + "'" +
                             Suggest("--" + name, LongNames()) + " (see " + name_ + " --help)");
    }
    if (option->count() > 0) continue;
    try {
      for (const std::string& value : values) option->add_result(value);
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      return InvalidArgument(config_path_ + ": " + error.what());
    }
  }
  return OkStatus();
}

Flags* Flags::AddCommand(const std::string& name, const std::string& summary) {
  auto parser = std::make_unique<Parser>();
  parser->app = parser_->app->add_subcommand(name, summary);
  parser->app->footer("");
  parser_->app->require_subcommand(1);
  parser_->app->footer("'" + name_ + " COMMAND --help' shows the options of a command.");
  commands_.emplace_back(new Flags(name_ + " " + name, std::move(parser)));
  commands_.back()->AddHelp();
  return commands_.back().get();
}

// A first word that is no command deserves a better sentence than the library's.
Status Flags::CheckCommands(int argc, const char* const* argv) const {
  if (commands_.empty() || (argc > 1 && argv[1][0] == '-')) return OkStatus();
  std::vector<std::string> known;
  for (const auto& command : commands_) {
    known.push_back(command->parser_->app->get_name());
    if (argc > 1 && known.back() == argv[1]) return command->CheckCommands(argc - 1, argv + 1);
  }
  const std::string list = " (known: " + Join(known) + ")";
  if (argc < 2) return InvalidArgument(name_ + " needs a command" + list);
  return InvalidArgument(name_ + " has no command '" + argv[1] + "'" + Suggest(argv[1], known) +
                         list);
}

std::vector<std::string> Flags::LongNames() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : parser_->app->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// An option that is none deserves a better sentence than the library's, too.
std::string Flags::DescribeExtras(const std::vector<std::string>& extras,
                                  const std::string& otherwise) const {
  for (const std::string& extra : extras) {
    const std::string word = extra.substr(0, extra.find('='));
    if (!word.starts_with("-")) continue;
    const std::string dashed = word.starts_with("--") ? word : "-" + word;  // -port for --port
    return name_ + " has no option '" + word + "'" + Suggest(dashed, LongNames());
  }
  return extras.empty() ? otherwise : "unexpected argument '" + extras.front() + "'";
}

CommandText Flags::Describe() const {
  const CLI::App& app = *parser_->app;
  CommandText text = {name_, app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    OptionText one;
    for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
    if (option->get_positional()) one.place = option->get_name(true, false);
    if (option->get_type_size() != 0) one.value = option->get_type_name();
    const auto choices = parser_->choices.find(option);
    if (choices != parser_->choices.end()) {
      one.choices = choices->second;
      one.variable = EnvironmentName(*option);
    }
    one.help = option->get_description();
    one.heading = option->get_group();
    one.required = option->get_required();
    one.many = option->get_expected_max() > 1;
    text.options.push_back(std::move(one));
  }
  for (const auto& command : commands_) text.commands.push_back(command->Describe());
  return text;
}

const Flags* Flags::Named() const {
  for (const auto& command : commands_) {
    if (command->parser_->app->parsed()) return command->Named();
  }
  return this;
}

Status Flags::Run(int argc, const char* const* argv) {
  std::vector<const char*> words(argv, argv + argc);
  // "help COMMAND" is "COMMAND --help".
  if (argc > 1 && std::string_view(argv[1]) == "help" && !commands_.empty()) {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  const int count = static_cast<int>(words.size());
  REPRISE_TRY(CheckCommands(count, words.data()));
  try {
    parser_->app->parse(count, words.data());
  } catch (const CLI::CallForHelp&) {
    return Print(HelpText(Named()->Describe()));
  } catch (const CLI::CallForVersion& version) {
    return Print(version.what() + std::string("\n"));
  } catch (const CLI::ExtrasError& error) {
    const std::vector<std::string> extras = parser_->app->remaining(true);
    return InvalidArgument(Named()->DescribeExtras(extras, error.what()) + " (see " +
                           Named()->name_ + " --help)");
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(std::string(error.what()) + " (see " + Named()->name_ + " --help)");
  }
  REPRISE_TRY(Named()->ApplyConfig());
  const Action& action = Named()->action_;
  return action ? action() : OkStatus();
}

}  // namespace reprise::cli
