// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "cli/help/command_text.h"

namespace reprise::cli {

// The script that teaches a shell to complete the commands, options and values of `root`: "bash",
// "zsh" or "fish". Values without choices complete as files; numbers do not complete.
Result<std::string> Completion(const std::string& shell, const CommandText& root);

}  // namespace reprise::cli
