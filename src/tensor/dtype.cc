// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include "base/check.h"

namespace reprise {
namespace {

constexpr DTypeTraits kTraits[kDTypeCount] = {
    {"f32", 1, 4, 0},         {"f16", 1, 2, 1},         {"bf16", 1, 2, 30},
    {"i32", 1, 4, 26},        {"q8_0", 32, 34, 8},      {"q4_0", 32, 18, 2},
    {"q4_1", 32, 20, 3},      {"q5_0", 32, 22, 6},      {"q5_1", 32, 24, 7},
    {"q2_k", 256, 84, 10},    {"q3_k", 256, 110, 11},   {"q4_k", 256, 144, 12},
    {"q5_k", 256, 176, 13},   {"q6_k", 256, 210, 14},   {"iq4_nl", 32, 18, 20},
    {"iq4_xs", 256, 136, 23}, {"iq2_xxs", 256, 66, 16}, {"mxfp4", 32, 17, 39},
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
