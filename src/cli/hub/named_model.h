// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace reprise::cli {

struct FetchOptions {
  bool update = false;  // ask the hub even if the cache has the model
  bool anyway = false;  // fetch it even if it does not fit
  int retries = 5;
  int64_t retry_pause_ms = 500;
};

// The path of a model named "hf:ORG/REPO[:WANTED]" (or without "hf:"): from the cache of the hub's
// tools, or fetched into it, with progress on stderr. Before that it is judged whether the model
// fits this machine; one that does not is not fetched.
Result<std::string> FetchModel(const std::string& name, const FetchOptions& options = {});

// What clients call the model at this path: "ORG/REPO" of a folder in the hub's cache, otherwise
// the file's name without its extension.
std::string ServedName(const std::string& path);

}  // namespace reprise::cli
