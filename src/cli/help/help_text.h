// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/help/command_text.h"

namespace reprise::cli {

// What --help prints: the summary, the usage, arguments by place, then options under their
// headings, in lines of at most 100 columns. An option that has a place and a name is shown once.
std::string HelpText(const CommandText& command);

}  // namespace reprise::cli
