// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/devices/devices.h"

namespace reprise {

struct DeviceOptions {
  // "auto" (a GPU if this program and this machine have one, else the CPU), "cpu", "cuda" or
  // "cuda:<number>".
  std::string device = "auto";
  int threads = 0;        // of the CPU; 0: one per core that this process may use
  size_t memory_max = 0;  // bytes of a GPU's memory that may be used; 0: what is free
  // Of several devices. kRows: REQUIRES that they compute alike.
  Devices::Split split = Devices::Split::kLayers;
};

// The one place where a backend is chosen. Fails with one sentence if the device was asked for by
// name and cannot be had.
Result<std::unique_ptr<Backend>> MakeBackend(const DeviceOptions& options);

// The devices of a list, "cuda:0,cuda:1,cpu", where a model lies on several of them. A CPU that is
// named more than once is as many devices, each with memory that is closed to the ops of the others
// (kernels/devices/closed_memory.h); a GPU that is, with memory of its own. "auto": all GPUs, then
// the CPU. `options.memory_max` is for each GPU.
Result<std::unique_ptr<Devices>> MakeDevices(std::string_view list, const DeviceOptions& options);

// The backends that this program was built with, by name: "cpu", and "cuda" where it has it.
std::vector<std::string> BuiltBackends();

// What "auto" says when it takes the CPU: nothing where there is no GPU, or this program was built
// for none; else why the one that is there is not used.
std::string WhyNotTheGpu(const Status& refused);

}  // namespace reprise
