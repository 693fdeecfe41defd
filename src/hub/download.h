// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "hub/cache/cache_folder.h"
#include "hub/hub.h"

namespace reprise::hub {

// Brings one file into the cache: whole and checked, or not at all.
//
// 1. What arrives is written to DIGEST.incomplete, under the file's lock. A later call continues
//    where an earlier one ended, in this process or another.
// 2. Only when the size and the digest are those of the listing is it flushed and renamed. What
//    has the right size and the wrong digest is dropped; the second time in a row this fails.
// 3. A cut connection, silence, 429 and 5xx are tried again from the byte that was reached.
struct Download {
  const Settings& settings;
  const CacheFolder& cache;
  const ModelName& name;
  std::string commit;
  Say say;
  // Bytes of this file that are there; the first call has those of an earlier attempt.
  std::function<void(uint64_t bytes)> progress;
};

Status DownloadFile(const Download& download, const HubFile& file);

}  // namespace reprise::hub
