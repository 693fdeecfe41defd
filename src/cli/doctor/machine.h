// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/processors.h"
#include "weights/memory.h"

namespace reprise::cli {

// NVIDIA GPUs as the kernel shows them, whether or not a driver can use them.
struct GpuHardware {
  int count = 0;                   // on the PCI bus
  std::vector<std::string> names;  // as the driver tells them; empty without it
  std::string driver;              // version; empty: none is loaded
  bool nouveau = false;            // the open driver without CUDA has the GPU
  bool device_files = false;       // /dev/nvidiactl and /dev/nvidia0 are there
  bool may_open = false;           // and this user may open them
};

// What this process has to compute with: facts only, from files of the kernel.
struct Machine {
  std::string cpu_name;  // "Intel(R) Xeon(R) ..."; empty: the kernel does not tell
  int cpus = 0;          // that are online; 0: the kernel does not tell
  Processors processors;
  uint64_t memory_total = 0;  // bytes; 0: the kernel does not tell
  uint64_t swap_total = 0;
  AvailableMemory available;
  GpuHardware gpu;
};

// `root` stands before /proc, /sys and /dev, for tests.
Machine ReadMachine(const std::string& root = "");

}  // namespace reprise::cli
