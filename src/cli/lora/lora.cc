// SPDX-License-Identifier: Apache-2.0
#include "cli/lora/lora.h"

#include <charconv>
#include <cmath>
#include <memory>
#include <utility>

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

Result<AdapterShelf::Reader> MakeAdapterReader(LoadedModel* loaded) {
  if (loaded->awake() && loaded->model().devices() != nullptr) {
    return Unimplemented("adapters (--lora) are for models on one device; leave --devices out");
  }
  std::shared_ptr<Backend> packer = loaded->backend().WithThreads(1);
  if (packer == nullptr) {
    return Unimplemented("adapters (--lora) are not supported on " +
                         std::string(loaded->backend().name()) + "; use --device cpu");
  }
  return AdapterShelf::Reader(
      [packer, model = loaded->adaptable()](const std::string& path,
                                            double scale) -> Result<AdapterPtr> {
        REPRISE_ASSIGN(const AdapterFile file, AdapterFile::Open(path));
        ScratchArena scratch(packer->memory());
        auto adapter = Adapter::Load(file, scale, *model, {packer.get(), &scratch});
        if (!adapter.ok()) return adapter.status().Annotate(path);
        return adapter;
      });
}

Result<AdapterPtr> LoadLora(LoadedModel* loaded, const std::string& text) {
  if (text.empty()) return AdapterPtr();
  REPRISE_ASSIGN(const Lora lora, ParseLora(text));
  REPRISE_ASSIGN(const AdapterShelf::Reader read, MakeAdapterReader(loaded));
  return read(lora.path, lora.scale);
}

}  // namespace reprise::cli
