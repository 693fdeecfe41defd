// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"

namespace reprise::cli {

// A TOML file of settings:
//
//   port = 8080
//   cache-mib = 512         # the name of the option --cache-mib; cache_mib and
//   [cache]                 #   [cache] mib = 512 mean the same
//   mib = 512
//   [[keys]]                # an array of tables is a list of records
//   name = "alice"
//   [models.small]          # options of one of several models
//   model = "small.gguf"
struct ConfigFile {
  using Record = std::map<std::string, std::string>;  // values as text

  Flags::Settings settings;
  std::vector<std::pair<std::string, Flags::Settings>> models;  // by name
  std::map<std::string, std::vector<Record>> records;           // by the name of the array
};

// Fails with the line of what is wrong.
Result<ConfigFile> ReadConfigFile(const std::string& path);

}  // namespace reprise::cli
