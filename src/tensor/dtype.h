// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace reprise {

// Element types of weights and state. Quantised types store blocks of `block_elements` values in
// `block_bytes` bytes (tensor/blocks.h has the bits); plain types are blocks of one.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kIQ2_XXS,
  kMXFP4,
};
inline constexpr int kDTypeCount = 18;

struct DTypeTraits {
  std::string_view name;  // lower case, as on the command line: "q8_0"
  int block_elements;
  int block_bytes;
  int gguf_id;  // ggml_type
};

const DTypeTraits& TraitsOf(DType dtype);
inline std::string_view NameOf(DType dtype) { return TraitsOf(dtype).name; }
inline bool IsQuantised(DType dtype) { return TraitsOf(dtype).block_elements > 1; }

std::optional<DType> FindDType(std::string_view name);
std::optional<DType> FindDTypeByGgufId(int64_t id);

// Bytes of a row. REQUIRES: elements >= 0 and a multiple of the type's block.
size_t RowBytes(DType dtype, int64_t elements);

}  // namespace reprise
