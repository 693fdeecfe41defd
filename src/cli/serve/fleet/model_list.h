// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"
#include "cli/serve/serve_options.h"
#include "hub/names/model_name.h"

namespace reprise::cli {

// A model of a folder.
struct FoundModel {
  std::string path;
  std::vector<std::string> names;  // for clients; empty: as its file is named
};

// The models of a folder: GGUF files, of those in several parts the first, folders with a
// config.json, and files NAME.hf that name a model of the hub ("hf:ORG/REPO:Q4_K_M") which lies in
// its cache; in the order of their names. Files that belong to another model (mmproj*, mtp-*) are
// left out, and models of the hub that are not in the cache, with a warning. Fails if the folder
// cannot be read or has none.
Result<std::vector<FoundModel>> FindModels(const std::string& folder);

// The file in `folder` that names this model of the hub.
std::string HubFilePath(const std::string& folder, const hub::ModelName& name);
// What clients call it: as it is named here, and as Ollama's name it.
std::vector<std::string> NamesOf(const hub::ModelName& name);

// The options that each of several models may have, beside those of every command that runs one.
// `aliases`: beside its name.
void DefineOneModel(Flags* flags, ServeOptions* model, std::vector<std::string>* aliases);

// The options of one model: those of the server, but for what `settings` says. `name`: for clients.
// Refuses settings that are the server's, by name.
Result<ServeOptions> ReadModel(const ServeOptions& server, const std::string& name,
                               const Flags::Settings& settings);

}  // namespace reprise::cli
