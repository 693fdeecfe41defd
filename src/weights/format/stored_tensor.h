// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace reprise {

struct Recipe;  // weights/recipe/recipe.h

// A tensor where it lies in a file. A view: name and bytes belong to what was parsed. Bytes may be
// unaligned.
// Invariant: bytes.size() + scales.size() == TensorBytes(dtype, shape), unless there is a recipe.
struct StoredTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
  int file = 0;  // which file of a checkpoint of several
  // Of a matrix that is made of several tensors: `bytes` are those of the largest.
  const Recipe* recipe = nullptr;
  // MXFP4 of a Hugging Face folder, which has it in two tensors: `bytes` are the levels, byte j of
  // a block those of values 2j (low) and 2j + 1, `scales` the e of each block, in file
  // `scales_file`. Empty: `bytes` are blocks as in tensor/blocks.h.
  std::span<const std::byte> scales = {};
  int scales_file = 0;

  bool split() const { return !scales.empty(); }
};

// The blocks of values [begin, begin + count) of row `row` to `out`, as in tensor/blocks.h.
// REQUIRES: begin and count are multiples of the type's block.
void ReadBlocks(const StoredTensor& tensor, int64_t row, int64_t begin, int64_t count,
                std::byte* out);

// A name from a file as it may be shown: quoted, control characters escaped, cut to a line.
std::string Quoted(std::string_view name);

}  // namespace reprise
