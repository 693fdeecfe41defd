// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace reprise {

// What this process may compute with.
struct Processors {
  std::vector<int> cpus;  // its affinity mask, which cpusets have narrowed already; never empty
  int at_once = 1;        // of them, at the same time: control groups may grant less time than all
};

// The affinity mask, and the least of what every control group around this process grants (cpu.max
// of version 2, cpu.cfs_quota_us of version 1; a part of a CPU counts as one). `root` stands before
// /proc and /sys, for tests.
Processors FindProcessors(const std::string& root = "");

// Whether threads may be pinned, one to a CPU: only where they are as many as the CPUs that the
// process has for itself. A choice among more would be made without knowing who else runs there.
bool MayPin(const Processors& processors, int thread_count);

}  // namespace reprise
