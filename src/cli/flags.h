// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "cli/help/command_text.h"

namespace reprise::cli {

using Action = std::function<Status()>;

// What a value must be.
struct FlagRule {
  bool required = false;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> one_of = {};  // empty: anything
};

// Flags are the options of a command and its subcommands: declared first, filled by Run.
//
//   flags->Add("-n,--max-tokens", &options->max_tokens, "tokens of a reply", {.min = 1});
//   flags->Add("FILE", &options->path, "GGUF file", {.required = true});
//   flags->SetAction([options] { return Run(*options); });
//
// An option that is not on the command line is taken from the environment: REPRISE_MAX_TOKENS for
// --max-tokens. The library that parses is known to flags.cc alone: its header takes longer to
// compile than a command.
class Flags {
 public:
  // Where the value goes, which must outlive Run; what it holds before is the default. A bool is a
  // switch and takes no value; "--a,!--no-a" names its opposite. Numbers in a list are separated by
  // commas; a list of strings is filled by using the option several times.
  using Value =
      std::variant<bool*, int32_t*, int64_t*, uint64_t*, float*, double*, std::string*,
                   std::optional<int32_t>*, std::optional<uint64_t>*, std::optional<float>*,
                   std::vector<size_t>*, std::vector<std::string>*>;

  static constexpr char kOptions[] = "Options";  // the heading of what has none of its own

  Flags(const std::string& name, const std::string& summary);
  ~Flags();

  // `names` as in "-m,--model"; or a word, as in "FILE", for an argument that is given by position;
  // or both, as in "MODEL,-m,--model". The help shows the default unless it is empty or zero.
  void Add(const std::string& names, Value value, std::string help, const FlagRule& rule = {});

  // Values of options by their long names, without dashes.
  using Settings = std::vector<std::pair<std::string, std::vector<std::string>>>;
  // An option that names a file of settings. `read` is called with its path and gives what neither
  // the command line nor the environment has set; a name that is no option is an error.
  void AddConfig(const std::string& names, std::string help,
                 std::function<Result<Settings>(const std::string& path)> read);

  // A command that has subcommands needs one of them to be named. Owned by this.
  Flags* AddCommand(const std::string& name, const std::string& summary);

  // What --version prints behind the name of the program.
  void SetVersion(std::function<std::string()> version);

  // The help shows what is added from now on under this heading; "Options" where there is none.
  void SetHeading(const std::string& heading) { heading_ = heading; }

  // What the command does.
  void SetAction(Action action) { action_ = std::move(action); }

  // What was declared, as data, with the commands below.
  CommandText Describe() const;

  // Parses, then runs the action of the command that was named. Help ("help COMMAND", --help) and
  // the version are printed, not run. Fails with kInvalidArgument, and a sentence, if the arguments
  // are wrong; a misspelt one gets a suggestion.
  Status Run(int argc, const char* const* argv);

 private:
  struct Parser;

  Flags(std::string name, std::unique_ptr<Parser> parser);
  void AddHelp();
  Status CheckCommands(int argc, const char* const* argv) const;
  Status ApplyConfig() const;
  std::vector<std::string> LongNames() const;
  std::string DescribeExtras(const std::vector<std::string>& extras,
                             const std::string& otherwise) const;
  const Flags* Named() const;

  const std::string name_;  // with those of the commands above
  std::unique_ptr<Parser> parser_;
  std::string heading_ = kOptions;
  std::string config_path_;
  std::function<Result<Settings>(const std::string&)> read_config_;
  Action action_;
  std::vector<std::unique_ptr<Flags>> commands_;
};

}  // namespace reprise::cli
