// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace reprise::cli {

// What --help prints: the summary, the usage, arguments by place, then options under their
// headings, in lines of at most 100 columns. An option that has a place and a name is shown once.
class HelpFormat : public CLI::Formatter {
 public:
  // Of --help and --version, shown last.
  static constexpr char kLastHeading[] = "Help";

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace reprise::cli
