// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace reprise::cli {

struct FetchOptions {
  bool update = false;  // ask the hub even if the cache has the model
  bool anyway = false;  // fetch it even if it does not fit
  int retries = 5;
  int64_t retry_pause_ms = 500;
  // Instead of stderr, and of Ctrl-C: for a server.
  std::function<void(const std::string& line)> say = nullptr;
  std::function<void(uint64_t done, uint64_t total)> progress = nullptr;  // bytes
  const std::atomic<bool>* cancelled = nullptr;
};

// The path of a model named "hf:ORG/REPO[:WANTED]" (or without "hf:"): from the cache of the hub's
// tools, or fetched into it, with progress on stderr. Before that it is judged whether the model
// fits this machine; one that does not is not fetched.
Result<std::string> FetchModel(const std::string& name, const FetchOptions& options = {});

// The path of such a model if the cache has all of it; nothing is fetched.
Result<std::string> FindFetchedModel(const std::string& name);

// What clients call the model at this path: "ORG/REPO" of a folder in the hub's cache, otherwise
// the file's name without its extension.
std::string ServedName(const std::string& path);

}  // namespace reprise::cli
