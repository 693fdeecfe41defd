// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "cli/chat/session.h"

namespace reprise::cli {

// What /set changes, one "name value" a line.
std::string DescribeSettings(const Session::Options& options);

// Fails, and changes nothing, if the name is unknown or the value is out of range.
Status ChangeSetting(const std::string& name, const std::string& value, int64_t vocab_size,
                     Session::Options* options);

}  // namespace reprise::cli
