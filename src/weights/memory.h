// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/memory.h"

namespace reprise {

// How much memory this process may still take, so that a model that will not fit is refused before
// it is read, with the numbers, and not by the kernel's killer half an hour later.
struct AvailableMemory {
  uint64_t bytes = UINT64_MAX;  // UINT64_MAX: nothing is known
  std::string_view limited_by;  // "this machine", "the memory limit of this container (cgroup)"
};

// The least of MemAvailable (/proc/meminfo) and of what every control group around this process
// leaves (versions 1 and 2; page cache that can be dropped counts as free). `root` stands before
// /proc and /sys, for tests.
AvailableMemory FindAvailableMemory(const std::string& root = "");
// The same for the memory of a device; that of the host is as above.
AvailableMemory FindAvailableMemory(const DeviceMemory& memory);

// Fails with kResourceExhausted and both numbers if `bytes` do not fit. `purpose` is what they are
// for: "the weights".
Status CheckFits(uint64_t bytes, std::string_view purpose, const AvailableMemory& available);

std::string FormatBytes(uint64_t bytes);  // "21.3 GiB"

}  // namespace reprise
