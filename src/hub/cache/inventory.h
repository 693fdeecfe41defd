// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/cache/cache_folder.h"
#include "hub/names/model_name.h"

namespace reprise::hub {

// A model in the cache that Reprise can open.
struct CachedModel {
  std::string name;  // "ORG/REPO:Q4_K_M", as FindInCache takes it
  uint64_t bytes = 0;
  int64_t fetched_s = 0;  // when its first file was written, in Unix time
};

struct Inventory {
  std::vector<CachedModel> models;  // by name
  uint64_t bytes = 0;               // of all blobs of repositories with models
  // Downloads that were not finished, by repository.
  struct Unfinished {
    std::string repo;
    uint64_t bytes = 0;
  };
  std::vector<Unfinished> unfinished;
};
Inventory ListModels(const CacheFolder& cache);

// Removes one model from all snapshots (with a revision: from that one), and the blobs that nothing
// links to then; without a wanted file the whole repository, with what was not finished. Returns
// the bytes that are free now. Fails while another process fetches a part of it.
Result<uint64_t> RemoveModel(const CacheFolder& cache, const ModelName& name);

// Reads every blob of a repository and compares it with the digest that is its name. Calls
// `damaged` with a sentence for each that is not sound. Returns the bytes read.
Result<uint64_t> VerifyRepo(const CacheFolder& cache, const std::string& repo,
                            const std::function<void(const std::string& sentence)>& damaged);

}  // namespace reprise::hub
