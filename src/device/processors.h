// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace reprise {

// What this process may compute with.
struct Processors {
  // Its affinity mask, which cpusets have narrowed already; never empty. CPUs that share a core
  // (SMT siblings) stand behind those that have one for themselves: one CPU of every core comes
  // first.
  std::vector<int> cpus;
  int at_once = 1;  // of them, at the same time: control groups may grant less time than all
  // The same CPUs by core; empty: each has its own.
  std::vector<std::vector<int>> cores = {};

  int core_count() const { return static_cast<int>(cores.empty() ? cpus.size() : cores.size()); }
};

// The affinity mask of this process, its cores as /sys/devices/system/cpu tells them (a CPU that it
// does not know has a core of its own), and the least of what every control group around this
// process grants (cpu.max of version 2, cpu.cfs_quota_us of version 1; a part of a CPU counts as
// one). `root` stands before /proc and /sys, for tests.
Processors FindProcessors(const std::string& root = "");
// The same of other CPUs than those of the mask.
Processors FindProcessors(const std::string& root, const std::vector<int>& mask);

// As many as compute by default: one for each core, no more than may run at once. Kernels fill the
// units of a core from one thread; a sibling would only share them.
int DefaultThreads(const Processors& processors);

// The CPUs that a thread of `thread_count` is bound to; empty: it is free. Threads are bound only
// where the process has all the time of its CPUs and nothing is left to choose: one to each CPU, or
// one to each core. A choice among more would be made without knowing who else runs there.
std::vector<int> CpusOfThread(const Processors& processors, int thread_count, int thread);

}  // namespace reprise
