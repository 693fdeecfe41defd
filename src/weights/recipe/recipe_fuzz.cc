// SPDX-License-Identifier: Apache-2.0
// A quantization_config, a zero byte, a safetensors file: whatever is found must be readable.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "weights/format/safetensors.h"
#include "weights/recipe/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = all.find('\0');
  if (end == std::string_view::npos) return 0;
  const std::string own = FromModelOptFile(all.substr(0, end));
  CHECK(own.empty() || JsonDocument::Parse(own).ok());
  const auto config = JsonDocument::Parse(all.substr(0, end));
  const auto file = SafetensorsFile::Parse(std::as_bytes(std::span(data, size)).subspan(end + 1));
  if (!config.ok() || !config->root().is_object() || !file.ok()) return 0;
  std::vector<StoredPart> parts;
  for (const StoredTensor& tensor : file->tensors()) parts.push_back(PartOf(tensor, 0));
  for (const SafetensorsFile::Foreign& tensor : file->foreign()) {
    parts.push_back({tensor.name, tensor.type, tensor.shape, tensor.bytes, 0});
  }
  for (const auto& recipe : FindRecipes(config->root(), parts)) {
    if (recipe->cols > 1 << 20) continue;
    std::vector<float> row(static_cast<size_t>(recipe->cols));
    MakeRow(*recipe, 0, row.data());
    MakeRow(*recipe, recipe->rows - 1, row.data());
  }
  return 0;
}
