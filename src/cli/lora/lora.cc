// SPDX-License-Identifier: Apache-2.0
#include "cli/lora/lora.h"

#include <charconv>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>

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

// What packs adapters beside a running model: on a GPU with memory and copies of its own there,
// taken when the first adapter comes. One thread at a time packs or gives adapters back.
struct Packer {
  std::mutex mutex;
  std::string device;
  std::unique_ptr<Backend> backend;

  Status Open() {
    if (backend != nullptr) return OkStatus();
    REPRISE_ASSIGN(backend, MakeBackend({device, 1, 0}));
    return OkStatus();
  }
};

Result<AdapterPtr> ReadAdapter(const std::shared_ptr<Packer>& packer, const std::string& path,
                               double scale, const AdaptableModel& model) {
  REPRISE_ASSIGN(const AdapterFile file, AdapterFile::Open(path));
  const std::lock_guard lock(packer->mutex);
  REPRISE_TRY(packer->Open());
  Backend& backend = *packer->backend;
  ScratchArena scratch(backend.memory());
  auto adapter = Adapter::Load(file, scale, model, {&backend, &scratch});
  backend.memory().Synchronize();  // what the model is asked for does not wait for these copies
  if (!adapter.ok()) return adapter.status().Annotate(path);
  const Adapter* const read = adapter->get();
  return AdapterPtr(read, [packer, held = std::move(*adapter)](const Adapter*) mutable {
    const std::lock_guard giving_back(packer->mutex);
    held.reset();
  });
}

}  // namespace

Result<AdapterShelf::Reader> MakeAdapterReader(LoadedModel* loaded) {
  if (loaded->awake() && loaded->model().devices() != nullptr) {
    return Unimplemented("adapters (--lora) are for models on one device; leave --devices out");
  }
  const auto packer = std::make_shared<Packer>();
  packer->backend = loaded->backend().WithThreads(1);
  const std::string name(loaded->backend().name());  // "cuda:0 NVIDIA H200"
  packer->device = name.substr(0, name.find(' '));
  return AdapterShelf::Reader(
      [packer, model = loaded->adaptable()](const std::string& path, double scale) {
        return ReadAdapter(packer, path, scale, *model);
      });
}

Result<AdapterPtr> LoadLora(LoadedModel* loaded, const std::string& text) {
  if (text.empty()) return AdapterPtr();
  REPRISE_ASSIGN(const Lora lora, ParseLora(text));
  REPRISE_ASSIGN(const AdapterShelf::Reader read, MakeAdapterReader(loaded));
  return read(lora.path, lora.scale);
}

}  // namespace reprise::cli
