// SPDX-License-Identifier: Apache-2.0
#include "cli/lora/lora.h"

#include <charconv>
#include <cmath>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/make_backend.h"
#include "model/adapter/adapter.h"
#include "model/adapter/adapter_file.h"

namespace reprise::cli {

Result<Lora> ParseLora(const std::string& text) {
  Lora lora;
  lora.path = text;
  const size_t equals = text.find('=');
  if (equals != std::string::npos && text.find('/') > equals) {
    lora.name = text.substr(0, equals);
    lora.path = text.substr(equals + 1);
    if (lora.name.empty()) return InvalidArgument("--lora " + text + " has no name before '='");
  }
  const size_t colon = lora.path.rfind(':');
  if (colon != std::string::npos) {
    const char* end = lora.path.data() + lora.path.size();
    const auto [at, error] = std::from_chars(lora.path.data() + colon + 1, end, lora.scale);
    if (error == std::errc() && at == end && std::isfinite(lora.scale)) {
      lora.path.resize(colon);
    } else {
      lora.scale = 1;  // a part of the path
    }
  }
  if (lora.path.empty()) return InvalidArgument("--lora " + text + " names no file");
  return lora;
}

namespace {

// What packs adapters beside a running model, for each of its devices: on a GPU with memory and
// copies of its own there, taken when the first adapter comes. One thread at a time packs or gives
// adapters back.
struct Packer {
  struct Device {
    std::string name;
    std::unique_ptr<Backend> backend;
  };
  std::mutex mutex;
  std::vector<Device> devices;

  void Add(std::string_view name, Backend& backend) {
    devices.push_back({std::string(name.substr(0, name.find(' '))), backend.WithThreads(1)});
  }
  Status Open() {
    for (Device& device : devices) {
      if (device.backend != nullptr) continue;
      REPRISE_ASSIGN(device.backend, MakeBackend({device.name, 4, 0}));
    }
    return OkStatus();
  }
};

Result<AdapterPtr> ReadAdapter(const std::shared_ptr<Packer>& packer, const std::string& path,
                               double scale, const AdaptableModel& model) {
  REPRISE_ASSIGN(const AdapterFile file, AdapterFile::Open(path));
  const std::lock_guard lock(packer->mutex);
  REPRISE_TRY(packer->Open());
  std::vector<ScratchArena> scratch;
  scratch.reserve(packer->devices.size());  // contexts refer to them
  std::vector<OpContext> contexts;
  for (const Packer::Device& device : packer->devices) {
    scratch.emplace_back(device.backend->memory());
    contexts.push_back({device.backend.get(), &scratch.back()});
  }
  auto adapter = Adapter::Load(file, scale, model, contexts);
  for (const Packer::Device& device : packer->devices) {
    device.backend->memory().Synchronize();  // what the model is asked for does not wait for copies
  }
  if (!adapter.ok()) return adapter.status().Annotate(path);
  const Adapter* const read = adapter->get();
  return AdapterPtr(read, [packer, held = std::move(*adapter)](const Adapter*) mutable {
    const std::lock_guard giving_back(packer->mutex);
    held.reset();
  });
}

}  // namespace

AdapterShelf::Reader MakeAdapterReader(LoadedModel* loaded) {
  Devices* const devices = loaded->devices();
  if (devices != nullptr && devices->split()) {
    return [](const std::string&, double) -> Result<AdapterPtr> {
      return Unimplemented(
          "adapters (--lora) are not for devices that compute every layer together; leave "
          "--tensor-parallel out");
    };
  }
  const auto packer = std::make_shared<Packer>();
  for (int i = 0; devices != nullptr && i < devices->count(); ++i) {
    packer->Add(devices->name(i), *devices->at(i).backend);
  }
  if (devices == nullptr) packer->Add(loaded->backend().name(), loaded->backend());
  return [packer, model = loaded->adaptable()](const std::string& path, double scale) {
    return ReadAdapter(packer, path, scale, *model);
  };
}

Result<AdapterPtr> LoadLora(LoadedModel* loaded, const std::string& text) {
  if (text.empty()) return AdapterPtr();
  REPRISE_ASSIGN(const Lora lora, ParseLora(text));
  return MakeAdapterReader(loaded)(lora.path, lora.scale);
}

}  // namespace reprise::cli
