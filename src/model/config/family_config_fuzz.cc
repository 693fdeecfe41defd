// SPDX-License-Identifier: Apache-2.0
// Any config.json to every family: a model object and the list of its tensors, or one sentence.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/family.h"
#include "weights/metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  const auto config = ParseConfigJson({reinterpret_cast<const char*>(data), size});
  if (!config.ok() || !config->root().is_object()) return 0;
  for (const Family* const* family = kFamilies; *family != nullptr; ++family) {
    ConfigReader reader(config->root());
    const auto model = (*family)->make(&reader, DType::kF16);
    if (!model.ok()) {
      if (model.status().message().empty()) __builtin_trap();
      continue;
    }
    TensorPlan plan("model.");
    (*model)->DeclareTensors(&plan);
    if (plan.element_count() <= 0 || (*model)->state_spec().layers.empty()) __builtin_trap();
    const StateLayout layout((*model)->state_spec());
    if (layout.block_bytes() == 0 && layout.state_bytes() == 0) __builtin_trap();
  }
  return 0;
}
