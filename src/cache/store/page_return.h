// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "device/background.h"
#include "device/device_ptr.h"
#include "device/memory.h"

namespace reprise {

// PageReturn gives pages back on a thread of its own: for those of a large state the system takes
// milliseconds. For memory whose pages any thread may give back (DeviceMemory::copies_by_caller).
// Places are offsets behind `base`.
//
//   pages.Begin(offset, bytes);   returns at once
//   pages.Await(offset, bytes);   before any of them is used again
//
// Thread safety: one thread calls.
class PageReturn {
 public:
  static constexpr size_t kPieceBytes = size_t{4} << 20;  // at once: others want pages meanwhile

  PageReturn(DeviceMemory* memory, DevicePtr<std::byte> base) : memory_(memory), base_(base) {}

  void Begin(size_t offset, size_t bytes);
  // Returns when nothing of [offset, offset + bytes) is on its way back.
  void Await(size_t offset, size_t bytes);

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  void Work();
  bool Has(size_t begin, size_t end);

  DeviceMemory* const memory_;
  const DevicePtr<std::byte> base_;
  std::mutex mutex_;          // guards ranges_
  std::deque<Range> ranges_;  // on their way, the first one is next
  Background thread_;
};

}  // namespace reprise
