// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "cli/loaded_model.h"
#include "engine/adapters/adapter_shelf.h"

namespace reprise::cli {

// What an option --lora says: NAME=PATH[:SCALE], where the name may be left out.
struct Lora {
  std::string name;  // empty: not given
  std::string path;
  double scale = 1;
};
Result<Lora> ParseLora(const std::string& text);

// Reads adapters for the model, on threads of its own: the model may compute meanwhile, or sleep.
AdapterShelf::Reader MakeAdapterReader(LoadedModel* loaded);

// The adapter of an option; null: the option is empty.
Result<AdapterPtr> LoadLora(LoadedModel* loaded, const std::string& text);

}  // namespace reprise::cli
