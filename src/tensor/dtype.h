// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype_list.h"

namespace reprise {

// Element types of weights and state (tensor/dtype_list.h), and i32. Quantised types store blocks
// of `block_elements` values in `block_bytes` bytes (tensor/blocks.h has the bits); plain types are
// blocks of one.
enum class DType : uint8_t {
#define REPRISE_ENUMERATOR(name, ...) k##name,
  REPRISE_WEIGHT_TYPES(REPRISE_ENUMERATOR)
#undef REPRISE_ENUMERATOR
      kI32,
};
inline constexpr int kDTypeCount = static_cast<int>(DType::kI32) + 1;

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
