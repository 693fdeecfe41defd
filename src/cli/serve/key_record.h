// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api/tenants.h"
#include "base/status.h"
#include "cli/serve/config_file.h"

namespace reprise::cli {

// One of the [[keys]] of a configuration: key, name, share, admin, weight, and what it may use
// (requests-per-minute, tokens-per-minute, tokens-per-day). `path` is the file, for errors.
Result<api::Tenants::Key> ReadKey(const std::string& path, const ConfigFile::Record& record);

}  // namespace reprise::cli
