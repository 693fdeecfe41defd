// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"
#include "cli/serve/serve_options.h"

namespace reprise::cli {

// The models of a folder: GGUF files, of those in several parts the first, and folders with a
// config.json; in the order of their names. Files that belong to another model (mmproj*, mtp-*) are
// left out. Fails if the folder cannot be read or has none.
Result<std::vector<std::string>> FindModels(const std::string& folder);

// The options that each of several models may have, beside those of every command that runs one.
// `aliases`: beside its name.
void DefineOneModel(Flags* flags, ServeOptions* model, std::vector<std::string>* aliases);

// The options of one model: those of the server, but for what `settings` says. `name`: for clients.
// Refuses settings that are the server's, by name.
Result<ServeOptions> ReadModel(const ServeOptions& server, const std::string& name,
                               const Flags::Settings& settings);

}  // namespace reprise::cli
