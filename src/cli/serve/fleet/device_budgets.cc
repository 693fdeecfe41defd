// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/device_budgets.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/make_backend.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

bool IsAuto(const ModelOptions& model) { return model.devices.empty() && model.device == "auto"; }

// A GPU's first use and its programs take some that nobody counts.
constexpr size_t kGpuPart = 32;

// The device of a list that names only one, however often.
Result<std::string> OnlyDevice(std::string_view list) {
  const std::string_view first = list.substr(0, list.find(','));
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (list.substr(begin, end - begin) != first || first == "auto") {
      return Unimplemented("--devices " + std::string(list) +
                           ": where a server has several models, each lies on one device; give "
                           "the model --device, or a server of its own");
    }
    begin = end + 1;
  }
  return std::string(first);
}

// A backend with one thread, which says what there is. `name`: its own, "cuda:0" of
// "cuda:0 NVIDIA H200".
Result<DeviceBudgets::Budget> Measure(const std::string& device, const ServeOptions& server,
                                      std::string* name) {
  REPRISE_ASSIGN(const std::unique_ptr<Backend> backend, MakeBackend({device, /*threads=*/1, 0}));
  *name = backend->name().substr(0, backend->name().find(' '));
  const size_t wanted = size_t(server.memory_mib) << 20;
  const size_t free = FindAvailableMemory(backend->memory()).bytes;
  DeviceBudgets::Budget budget{free / 5 * 4, backend->working_bytes()};
  if (&backend->memory() == &HostMemory()) {
    if (wanted > 0) budget.bytes = wanted;
    return budget;
  }
  const size_t vram = server.model.vram_mib ? size_t(*server.model.vram_mib) << 20 : wanted;
  budget.bytes = free - free / kGpuPart;
  if (vram > 0) budget.bytes = std::min(budget.bytes, vram);
  return budget;
}

// "cuda" is the first GPU.
std::string Canonical(std::string device) { return device == "cuda" ? "cuda:0" : device; }

}  // namespace

Result<std::string> DeviceBudgets::DeviceOf(const ModelOptions& model) const {
  std::string device = IsAuto(model) ? auto_ : model.device;
  if (!model.devices.empty()) {
    REPRISE_ASSIGN(device, OnlyDevice(model.devices));
  }
  device = Canonical(device);
  if (!budgets_.contains(device)) {
    return InvalidArgument("none of the server's models was to lie on the device " + device);
  }
  return device;
}

Result<DeviceBudgets> DeviceBudgets::Open(const ServeOptions& server,
                                          std::span<const ServeOptions> models) {
  DeviceBudgets budgets;
  std::vector<const ModelOptions*> all;
  if (!server.models_dir.empty()) all.push_back(&server.model);  // of those that come later
  for (const ServeOptions& one : models) all.push_back(&one.model);
  std::string name;
  if (std::ranges::any_of(all, [](const ModelOptions* model) { return IsAuto(*model); })) {
    REPRISE_ASSIGN(const Budget budget, Measure("auto", server, &name));
    budgets.auto_ = name;
    budgets.budgets_[name] = budget;
  }
  for (const ModelOptions* model : all) {
    std::string device = model->device;
    if (!model->devices.empty()) {
      REPRISE_ASSIGN(device, OnlyDevice(model->devices));
    }
    device = Canonical(device);
    if (IsAuto(*model) || budgets.budgets_.contains(device)) continue;
    REPRISE_ASSIGN(budgets.budgets_[device], Measure(device, server, &name));
  }
  return budgets;
}

}  // namespace reprise::cli
