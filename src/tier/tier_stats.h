// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace reprise {

// What a lower tier says about itself: counters since the start, and what is so now.
struct TierStats {
  std::string_view kind;  // "disk", "store"; empty: there is none
  bool present() const { return !kind.empty(); }
  bool failing = false;    // its last write or read failed; it is tried again later
  uint64_t bytes_max = 0;  // 0: the tier's own affair
  uint64_t bytes = 0;      // of all records that are known
  uint64_t records = 0;
  uint64_t bytes_queued = 0;  // taken from memory, not written yet
  uint64_t stores = 0;        // records written
  uint64_t stores_failed = 0;
  uint64_t stores_aborted = 0;  // their state went away before it was copied
  uint64_t bytes_written = 0;
  uint64_t looks = 0;  // prompts that it was asked about, where others write to it
  uint64_t looks_failed = 0;
  uint64_t fetches = 0;  // requests that began with what was read
  uint64_t fetches_failed = 0;
  uint64_t bytes_read = 0;
  uint64_t fetch_ns = 0;    // time of the threads that read
  uint64_t evicted = 0;     // records that made room
  uint64_t replaced = 0;    // records that a conversation had passed
  uint64_t damaged = 0;     // records that were not as they were written
  uint64_t unreadable = 0;  // found at the start: damaged, of another key or version
};

}  // namespace reprise
