// SPDX-License-Identifier: Apache-2.0
#include "model/placement/placement.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"

namespace reprise {
namespace {

// Of all that take from one memory, each has its part.
double RoomOf(const std::vector<DeviceRoom>& devices, size_t index, size_t home) {
  const DeviceRoom& device = devices[index];
  const auto sharing = std::count_if(devices.begin(), devices.end(), [&](const DeviceRoom& other) {
    return other.shares_with == device.shares_with;
  });
  const DeviceRoom& first = devices[size_t(device.shares_with)];
  const double room = double(first.free) / double(sharing) - double(device.working) -
                      double(index == size_t(Placement::kHome) ? home : 0);
  return std::max(room, 1.0);
}

struct Parts {
  const std::vector<LayerBytes>& layers;
  const std::vector<DeviceRoom>& devices;
  size_t home = 0;
  Placement* placement;

  // What a layer takes on its own device.
  double BytesOf(size_t layer) const {
    const bool apart = !placement->experts.empty() && placement->experts[layer] >= 0;
    return double(layers[layer].rest + layers[layer].state) +
           double(apart ? 0 : layers[layer].experts);
  }

  // Layers [begin, end) in order to these devices, by their weights: a layer goes where its middle
  // falls.
  void Divide(size_t begin, size_t end, std::span<const int> to,
              const std::vector<double>& weights) {
    double all = 0;
    for (size_t i = begin; i < end; ++i) all += BytesOf(i);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    double before = 0;
    for (size_t i = begin; i < end; ++i) {
      const double middle = before + BytesOf(i) / 2;
      before += BytesOf(i);
      size_t device = 0;
      for (double upto = weights[0]; device + 1 < to.size() && middle * sum > upto * all;) {
        upto += weights[++device];
      }
      placement->layers[i] = to[device];
    }
  }

  // How many layers from the first on fit, in order, into these devices.
  size_t Fill(std::span<const int> to) const {
    size_t layer = 0;
    for (const int device : to) {
      double left = RoomOf(devices, size_t(device), home);
      while (layer < layers.size() && BytesOf(layer) <= left) left -= BytesOf(layer++);
    }
    return layer;
  }
  // The same, and where each goes.
  void Put(std::span<const int> to) {
    size_t layer = 0;
    for (const int device : to) {
      double left = RoomOf(devices, size_t(device), home);
      while (layer < layers.size() && BytesOf(layer) <= left) {
        left -= BytesOf(layer);
        placement->layers[layer++] = device;
      }
    }
  }
};

Status PlaceByHand(const PlacementOptions& options, size_t device_count, Placement* placement) {
  const size_t sum = std::accumulate(options.layers.begin(), options.layers.end(), size_t{0});
  if (options.layers.size() != device_count || sum != placement->layers.size()) {
    return InvalidArgument("--layers wants a number for each of the " +
                           std::to_string(device_count) + " devices, " +
                           std::to_string(placement->layers.size()) +
                           " in all, which is how many " + "layers the model has");
  }
  size_t layer = 0;
  for (size_t device = 0; device < device_count; ++device) {
    for (size_t i = 0; i < options.layers[device]; ++i) placement->layers[layer++] = int(device);
  }
  return OkStatus();
}

}  // namespace

Result<Placement> Place(const std::vector<LayerBytes>& layers, size_t home,
                        const std::vector<DeviceRoom>& devices, const PlacementOptions& options) {
  CHECK(!devices.empty());
  std::vector<int> gpus, cpus;
  for (size_t i = 0; i < devices.size(); ++i) {
    (devices[i].gpu ? gpus : cpus).push_back(int(i));
    if (i > 0 && devices[i].gpu && !devices[i - 1].gpu) {
      return InvalidArgument("--devices: the CPU comes behind the GPUs");
    }
  }
  const bool wants_cpu = options.gpu_layers >= 0 || options.cpu_experts != 0;
  if ((wants_cpu && cpus.empty()) || (options.gpu_layers >= 0 && gpus.empty())) {
    return InvalidArgument(
        "--gpu-layers and --cpu-experts divide a model between GPUs and the CPU: name both, as in "
        "--devices cuda:0,cpu");
  }
  Placement placement;
  placement.layers.assign(layers.size(), Placement::kHome);
  Parts parts{layers, devices, home, &placement};
  const auto move_experts = [&](size_t count) {
    placement.experts.assign(layers.size(), -1);  // with the others of the layer
    for (size_t i = 0; i < std::min(count, layers.size()); ++i) placement.experts[i] = cpus.back();
  };
  if (options.cpu_experts > 0) move_experts(size_t(options.cpu_experts));
  const bool as_needed = options.cpu_experts == PlacementOptions::kAllThatMustBe && !gpus.empty();
  for (size_t n = 0; as_needed; ++n) {
    move_experts(n);
    if (n == layers.size() || parts.Fill(gpus) == layers.size()) break;
  }
  const auto rooms_of = [&](std::span<const int> some) {
    std::vector<double> rooms;
    for (const int device : some) {
      rooms.push_back(devices[size_t(device)].gpu ? RoomOf(devices, size_t(device), home) : 1);
    }
    return rooms;
  };
  if (!options.layers.empty()) {
    REPRISE_TRY(PlaceByHand(options, devices.size(), &placement));
  } else if (gpus.empty() || cpus.empty()) {
    const std::vector<int>& all = gpus.empty() ? cpus : gpus;
    parts.Divide(0, layers.size(), all, rooms_of(all));
  } else {
    const size_t fit = parts.Fill(gpus);
    const size_t on_gpus =
        options.gpu_layers >= 0 ? std::min(size_t(options.gpu_layers), layers.size()) : fit;
    if (on_gpus < layers.size()) {
      parts.Divide(on_gpus, layers.size(), cpus, std::vector<double>(cpus.size(), 1));
    }
    if (on_gpus == fit && options.gpu_layers < 0) {
      parts.Put(gpus);
    } else {
      parts.Divide(0, on_gpus, gpus, rooms_of(gpus));
    }
  }
  for (size_t i = 0; i < placement.experts.size(); ++i) {
    const bool none = placement.experts[i] < 0 || layers[i].experts == 0;
    if (none) placement.experts[i] = placement.layers[i];
  }
  return placement;
}

std::vector<uint64_t> BytesByDevice(const std::vector<LayerBytes>& layers, size_t home,
                                    const std::vector<DeviceRoom>& devices,
                                    const Placement& placement) {
  std::vector<uint64_t> bytes(devices.size());
  bytes[Placement::kHome] += home;
  for (size_t i = 0; i < layers.size(); ++i) {
    bytes[size_t(placement.OfLayer(int(i)))] += layers[i].rest + layers[i].state;
    bytes[size_t(placement.OfExperts(int(i)))] += layers[i].experts;
  }
  for (size_t i = 0; i < devices.size(); ++i) bytes[i] += devices[i].working;
  return bytes;
}

}  // namespace reprise
