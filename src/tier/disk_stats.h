// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise {

// What a disk store says about itself: counters since the start, and what is so now.
struct DiskStats {
  bool present = false;  // there is one
  bool failing = false;  // its last write or read failed; it is tried again later
  uint64_t bytes_max = 0;
  uint64_t bytes = 0;  // of all records
  uint64_t records = 0;
  uint64_t bytes_queued = 0;  // taken from memory, not on the disk yet
  uint64_t stores = 0;        // records written
  uint64_t stores_failed = 0;
  uint64_t stores_aborted = 0;  // their state went away before it was copied
  uint64_t bytes_written = 0;
  uint64_t fetches = 0;  // requests that began with what was read
  uint64_t fetches_failed = 0;
  uint64_t bytes_read = 0;
  uint64_t fetch_ns = 0;    // time of the threads that read
  uint64_t evicted = 0;     // records that made room
  uint64_t damaged = 0;     // records that were not as they were written
  uint64_t unreadable = 0;  // found at the start: damaged, of another key or version
};

}  // namespace reprise
