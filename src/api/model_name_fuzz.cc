// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the name of a model, found without a parser, is the one that the parser finds.
#include <cstdint>
#include <string_view>

#include "api/model_name.h"
#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string found = reprise::api::FindModelName(text);
  const auto parsed = reprise::JsonDocument::Parse(text);
  if (!parsed.ok() || !parsed->root().is_object() || found.empty()) return 0;
  const auto* model = parsed->root().Find("model");
  if (model != nullptr && model->is_string()) CHECK(model->as_string() == found);
  return 0;
}
