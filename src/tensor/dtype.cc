// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include "base/check.h"

namespace reprise {
namespace {

constexpr DTypeTraits kTraits[kDTypeCount] = {
#define REPRISE_TRAITS(name, text, elements, bytes, id) {text, elements, bytes, id},
    REPRISE_WEIGHT_TYPES(REPRISE_TRAITS)
#undef REPRISE_TRAITS
        {"i32", 1, 4, 26},
};

}  // namespace

const DTypeTraits& TraitsOf(DType dtype) { return kTraits[static_cast<size_t>(dtype)]; }

std::optional<DType> FindDType(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kTraits[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<DType> FindDTypeByGgufId(int64_t id) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kTraits[i].gguf_id == id) return static_cast<DType>(i);
  }
  return std::nullopt;
}

size_t RowBytes(DType dtype, int64_t elements) {
  const DTypeTraits& traits = TraitsOf(dtype);
  CHECK(elements >= 0 && elements % traits.block_elements == 0);
  return static_cast<size_t>(elements / traits.block_elements) *
         static_cast<size_t>(traits.block_bytes);
}

}  // namespace reprise
