// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace reprise {

// A tensor where it lies in a file. A view: name and bytes belong to what was parsed.
// Invariant: bytes.size() == TensorBytes(dtype, shape). Bytes may be unaligned.
struct StoredTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
  int file = 0;  // which file of a checkpoint of several
};

// A name from a file as it may be shown: quoted, control characters escaped, cut to a line.
std::string Quoted(std::string_view name);

}  // namespace reprise
