// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "cli/help/command_text.h"

namespace reprise::cli {

// One page of section 1, "reprise-bench-decode" for "reprise bench decode", in mdoc(7): what --help
// says, with the environment and related pages. `date` as in "November 18, 2026", or empty.
std::string ManualPage(const CommandText& command, const std::string& above,
                       const std::string& date);

// Writes the page of `root` and of every command below it into `folder`, which must exist. Fails
// with the name of the file that cannot be written.
Status WriteManualPages(const CommandText& root, const std::string& folder,
                        const std::string& date);

// "2026-11-18" as manual pages write it, "November 18, 2026"; empty for anything else.
std::string ManualDate(const std::string& iso);

}  // namespace reprise::cli
