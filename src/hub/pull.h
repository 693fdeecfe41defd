// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/cache/cache_folder.h"
#include "hub/hub.h"
#include "hub/names/choice.h"
#include "hub/names/model_name.h"
#include "hub/settings.h"

namespace reprise::hub {

// What a pull would fetch.
struct PullPlan {
  ModelName name;
  Listing listing;
  Offer offer;
  ModelFiles files;         // all of them have a size and a digest
  uint64_t bytes_left = 0;  // to be fetched
};

struct PullEvents {
  Say say;
  // Bytes of the whole model that are there; the first call has what was there before.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// Asks the hub what there is. The plan has a listing and an offer, and no files yet.
Result<PullPlan> LookUp(const Settings& settings, const ModelName& name, const Say& say);
// Chooses from the offer what the name wants. Nothing of the weights is fetched; of a folder in
// shards its index is. Fails with a sentence that has the choices.
Status ChooseFiles(const Settings& settings, const Say& say, PullPlan* plan);

// Fetches what is missing, after a look at the free disk space, and returns the path to open: a
// GGUF file or a folder. The revision points to the snapshot when all of it is there.
// REQUIRES: ChooseFiles.
Result<std::string> Pull(const Settings& settings, const PullPlan& plan, const PullEvents& events);

// The path of the model if the cache has all of it, without asking the hub: in the snapshot of its
// revision. kNotFound: it must be pulled; another code: the name fits several.
// `any_snapshot`: older ones are as good (there is no network).
Result<std::string> FindInCache(const CacheFolder& cache, const ModelName& name,
                                bool any_snapshot = false);

}  // namespace reprise::hub
