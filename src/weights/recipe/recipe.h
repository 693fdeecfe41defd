// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "weights/format/stored_tensor.h"

namespace reprise {

// A tensor of a folder as it is stored, of whatever type.
struct StoredPart {
  std::string_view name;
  std::string_view type;  // as safetensors call it: "F8_E4M3"; empty: there is none
  Shape shape;
  std::span<const std::byte> bytes;
  int file = 0;

  bool present() const { return !type.empty(); }
};

// A tensor of a type that we compute with, or of I32.
StoredPart PartOf(const StoredTensor& tensor, int file);

// How the values of a matrix are made of several tensors of a quantised folder. W[r][c], exactly as
// the format's own code makes them, in `result`, the type that it makes:
//
//   kFp8        data F8_E4M3 [rows, cols], scale: one, one a row, or one a block of block_rows x
//               block_cols (weight_scale_inv, weight_scale);  data * scale
//   kInt8       data I8, scale one or one a row;  data * scale
//   kIntegers   data I32 [rows, cols * bits / 32], values along a row from the low bits up, less
//               2^(bits - 1); scale [rows, groups]; zeros likewise [rows * bits / 32, groups],
//               packed along rows;  (data - zero) * scale      (compressed-tensors, pack-quantized)
//   kAwq        data I32 [cols, rows / 8], eight rows a word in the order 0 2 4 6 1 3 5 7; zeros
//               likewise [groups, rows / 8]; scale [groups, rows];  (data - zero) * scale
//   kGptq       data I32 [cols * bits / 32, rows], along columns; zeros [groups, rows * bits / 32],
//               stored less zero_shift; scale [groups, rows]; order [cols], the group of a column
//   kNvfp4      data U8 [rows, cols / 2], two floats of four bits a byte, low one first; scale
//               F8_E4M3 [rows, cols / 16]; global F32;  data * (scale / global)
//   kModelOpt4  the same by ModelOpt, which has no negative zero;  data * (scale * global)
//   kGgufNvfp4  data blocks of 64 values of a GGUF file: four scales (E4M3 without a sign), then 32
//               bytes, of which byte j has values j and j + 8 of a sixteenth; global F32 for each
//               of `groups` equal parts of the rows, or none;  data * (scale * global)
//
// A group number outside [0, groups) makes a NaN, which the logits show.
// Thread safety: immutable. The parts are views of the folder's files.
struct Recipe {
  enum class Kind : uint8_t { kFp8, kInt8, kIntegers, kAwq, kGptq, kNvfp4, kModelOpt4, kGgufNvfp4 };

  std::string name;  // of the matrix
  Kind kind = Kind::kFp8;
  DType result = DType::kF32;
  int64_t rows = 0, cols = 0;
  int bits = 8;
  int zero_shift = 0;
  int64_t groups = 1;                      // along columns (kGgufNvfp4: along rows)
  int64_t block_rows = 1, block_cols = 1;  // that share a scale
  StoredPart data, scale, zeros, order, global;

  // Some of them may not be present.
  std::array<const StoredPart*, 5> parts() const {
    return {&data, &scale, &zeros, &order, &global};
  }
  StoredTensor tensor() const { return {name, result, {rows, cols}, data.bytes, data.file, this}; }
};

// What the reader of a GGUF file gives a tensor of NVFP4 in place of a recipe, until the checkpoint
// makes one (MakeNvfp4Recipe): its bytes are the blocks.
extern const Recipe kNvfp4Blocks;
inline constexpr int64_t kNvfp4BlockValues = 64;
inline constexpr size_t kNvfp4BlockBytes = 36;

// The recipe of such a tensor. `scale`, which may be null, is the F32 tensor beside it, of one
// value or of one for each slice. Null if it does not fit.
std::unique_ptr<Recipe> MakeNvfp4Recipe(const StoredTensor& blocks, const StoredTensor* scale);

// REQUIRES: 0 <= row < recipe.rows; `out` has room for cols.
void MakeRow(const Recipe& recipe, int64_t row, float* out);

// What hf_quant_config.json, ModelOpt's own file, says, as a quantization_config in JSON; empty if
// it says nothing.
std::string FromModelOptFile(std::string_view json);

// One sentence where the method of a quantization_config, or a setting of it, is none of the above.
Status CheckQuantisation(const JsonValue& quantization);

// The quantised matrices of a folder, from all its tensors; none where CheckQuantisation says no.
// What does not fit together is not a recipe: asking for the matrix is then answered as for any
// tensor that is missing or of another type.
// REQUIRES: quantization is an object.
std::vector<std::unique_ptr<Recipe>> FindRecipes(const JsonValue& quantization,
                                                 std::span<const StoredPart> tensors);

}  // namespace reprise
