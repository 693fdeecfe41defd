// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "api/responses/archive.h"
#include "base/status.h"
#include "cache/state_cache.h"
#include "cache/tier/tier.h"
#include "cli/serve/serve_options.h"
#include "model/model.h"

namespace reprise::cli {

// Where one model's state may lie below memory.
struct TierPlace {
  std::string folder;   // on the disk; empty: no disk
  int model_count = 1;  // that share the bytes of disk and host memory, in equal parts
};

// The tiers below `cache`, as the options name them: host memory, then a disk, then a store that
// servers share. Null if there are none. Refuses options that have no effect.
Result<std::unique_ptr<Tier>> OpenTiers(const ServeOptions& options, const TierPlace& place,
                                        const ModelCard& card, const StateCache& cache,
                                        DeviceMemory& memory);

// Responses that clients may continue, in the folder of the disk; null without a disk.
Result<std::shared_ptr<api::responses::ResponseArchive>> OpenArchive(const ServeOptions& options);

}  // namespace reprise::cli
