// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"

namespace reprise {

struct DeviceOptions {
  // "auto" (a GPU if this program and this machine have one, else the CPU), "cpu", "cuda" or
  // "cuda:<number>".
  std::string device = "auto";
  int threads = 0;        // of the CPU; 0: one per CPU that this process may use
  size_t memory_max = 0;  // bytes of a GPU's memory that may be used; 0: what is free
};

// The one place where a backend is chosen. Fails with one sentence if the device was asked for by
// name and cannot be had.
Result<std::unique_ptr<Backend>> MakeBackend(const DeviceOptions& options);

// The backends that this program was built with, by name: "cpu", and "cuda" where it has it.
std::vector<std::string> BuiltBackends();

// What "auto" says when it takes the CPU: nothing where there is no GPU, or this program was built
// for none; else why the one that is there is not used.
std::string WhyNotTheGpu(const Status& refused);

}  // namespace reprise
