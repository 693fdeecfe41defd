// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise {

// Where a model lies: every layer on one of its devices (kernels/devices/devices.h), with its K/V
// and its state; the routed experts of a layer on another, if so; the vocabulary, both ends of the
// model, at home, on the first.
struct Placement {
  static constexpr int kHome = 0;
  std::vector<int> layers;   // empty: all at home
  std::vector<int> experts;  // of each layer

  int OfLayer(int layer) const {
    return layer < 0 || layers.empty() ? kHome : layers[size_t(layer)];
  }
  int OfExperts(int layer) const {
    return layer < 0 || experts.empty() ? OfLayer(layer) : experts[size_t(layer)];
  }
};

// What was asked for. Devices are numbered in the order in which they were named.
struct PlacementOptions {
  std::vector<size_t> layers;                // of each device; empty: as memory allows
  int gpu_layers = -1;                       // on GPUs; the others on the CPU. -1: all that fit
  int cpu_experts = 0;                       // layers whose routed experts lie on the CPU
  static constexpr int kAllThatMustBe = -1;  // cpu_experts: as many as do not fit otherwise
  static constexpr int kAll = std::numeric_limits<int>::max();
};

// Bytes of a layer, as the devices would hold it.
struct LayerBytes {
  size_t rest = 0;     // what is no routed expert
  size_t experts = 0;  // routed experts
  size_t state = 0;    // of one sequence as long as will be asked for, and what it leaves behind
};

// A device that layers go to.
struct DeviceRoom {
  std::string name;
  bool gpu = false;
  int shares_with = 0;          // the first device of the same memory: itself, where none is
  uint64_t free = 0;            // bytes
  std::string_view limited_by;  // "this machine"
  size_t working = 0;           // what steps take of it
};

// Divides the layers: in order, those of one device together. GPUs are filled first, by what they
// have free; devices that are alike get equal parts. `home` bytes lie on the first.
// Fails with one sentence if that is not possible; whether it all fits is asked by WhatDoesNotFit.
Result<Placement> Place(const std::vector<LayerBytes>& layers, size_t home,
                        const std::vector<DeviceRoom>& devices, const PlacementOptions& options);

// What each device takes: weights, state, work.
std::vector<uint64_t> BytesByDevice(const std::vector<LayerBytes>& layers, size_t home,
                                    const std::vector<DeviceRoom>& devices,
                                    const Placement& placement);

}  // namespace reprise
