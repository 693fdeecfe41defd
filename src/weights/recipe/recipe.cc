// SPDX-License-Identifier: Apache-2.0
#include "weights/recipe/recipe.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/half.h"

namespace reprise {
namespace {

template <typename T>
T Load(const StoredPart& part, int64_t i) {
  T value;
  std::memcpy(&value, part.bytes.data() + size_t(i) * sizeof(T), sizeof(T));
  return value;
}

// Four bits of exponent, three of mantissa, no infinity.
float MakeE4M3(int byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  float value = exponent == 0 ? std::ldexp(float(mantissa), -9)
                              : std::ldexp(float(8 + mantissa), exponent - 10);
  if ((byte & 127) == 127) value = std::numeric_limits<float>::quiet_NaN();
  return byte >= 128 ? -value : value;
}

float E4M3(uint8_t byte) {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values;
    for (int i = 0; i < 256; ++i) values[size_t(i)] = MakeE4M3(i);
    return values;
  }();
  return kValues[byte];
}

constexpr float kE2M1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// Element i of a part of floats.
float FloatAt(const StoredPart& part, int64_t i) {
  if (part.type == "F32") return Load<float>(part, i);
  if (part.type == "F8_E4M3") return E4M3(Load<uint8_t>(part, i));
  const uint16_t bits = Load<uint16_t>(part, i);
  return part.type == "F16" ? F16ToF32(bits) : BF16ToF32(bits);
}

// A product as the result's type has it: exact in f32 where the result is narrower.
float Rounded(DType result, float value) {
  if (result == DType::kF16) return F16ToF32(F32ToF16(value));
  if (result == DType::kBF16) return BF16ToF32(F32ToBF16(value));
  return value;
}

// Integer `i` of a line of words of `bits` each.
int Packed(const StoredPart& part, int64_t word, int64_t i, int bits) {
  const auto value = Load<uint32_t>(part, word);
  return int(value >> (i % (32 / bits) * bits) & ((1u << bits) - 1));
}

void MakeBytes(const Recipe& recipe, int64_t row, float* out) {
  const int64_t along = (recipe.cols + recipe.block_cols - 1) / recipe.block_cols;
  const int64_t first = row / recipe.block_rows * along;
  float scale = 0;
  for (int64_t c = 0; c < recipe.cols; ++c) {
    if (c % recipe.block_cols == 0) scale = FloatAt(recipe.scale, first + c / recipe.block_cols);
    const auto byte = Load<uint8_t>(recipe.data, row * recipe.cols + c);
    const float q = recipe.kind == Recipe::Kind::kFp8 ? E4M3(byte) : float(int8_t(byte));
    out[c] = Rounded(recipe.result, q * scale);
  }
}

// The group of a column; none where the file says nonsense.
int64_t GroupOf(const Recipe& recipe, int64_t col) {
  if (!recipe.order.present()) return col / recipe.block_cols;
  const int64_t group = Load<int32_t>(recipe.order, col);
  return group >= 0 && group < recipe.groups ? group : -1;
}

// (q(col) - zero(group)) * scale(group) for all columns.
template <typename Q, typename Zero, typename Scale>
void MakeIntegers(const Recipe& recipe, const Q& q, const Zero& zero, const Scale& scale,
                  float* out) {
  int64_t current = -2;
  int minus = 0;
  float times = 0;
  for (int64_t c = 0; c < recipe.cols; ++c) {
    const int64_t group = GroupOf(recipe, c);
    if (group != current) {
      current = group;
      minus = group < 0 ? 0 : zero(group);
      times = group < 0 ? std::numeric_limits<float>::quiet_NaN() : scale(group);
    }
    out[c] = Rounded(recipe.result, float(q(c) - minus) * times);
  }
}

void MakeIntegerRow(const Recipe& recipe, int64_t row, float* out) {
  const int bits = recipe.bits, per_word = 32 / bits, middle = 1 << (bits - 1);
  const int64_t words = recipe.cols / per_word;
  MakeIntegers(
      recipe,
      [&](int64_t c) { return Packed(recipe.data, row * words + c / per_word, c, bits) - middle; },
      [&](int64_t group) {
        if (!recipe.zeros.present()) return 0;
        return Packed(recipe.zeros, row / per_word * recipe.groups + group, row, bits) - middle;
      },
      [&](int64_t group) { return FloatAt(recipe.scale, row * recipe.groups + group); }, out);
}

void MakeAwqRow(const Recipe& recipe, int64_t row, float* out) {
  constexpr int kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of row r % 8 in a word
  const int64_t words = recipe.rows / 8, word = row / 8;
  const int place = kPlace[row % 8];
  MakeIntegers(
      recipe, [&](int64_t c) { return Packed(recipe.data, c * words + word, place, 4); },
      [&](int64_t group) { return Packed(recipe.zeros, group * words + word, place, 4); },
      [&](int64_t group) { return FloatAt(recipe.scale, group * recipe.rows + row); }, out);
}

void MakeGptqRow(const Recipe& recipe, int64_t row, float* out) {
  const int bits = recipe.bits, per_word = 32 / bits;
  const int64_t zero_words = recipe.rows / per_word;
  MakeIntegers(
      recipe,
      [&](int64_t c) { return Packed(recipe.data, c / per_word * recipe.rows + row, c, bits); },
      [&](int64_t group) {
        const int zero = Packed(recipe.zeros, group * zero_words + row / per_word, row, bits);
        return (zero + recipe.zero_shift) & ((1 << bits) - 1);
      },
      [&](int64_t group) { return FloatAt(recipe.scale, group * recipe.rows + row); }, out);
}

void MakeNvfp4Row(const Recipe& recipe, int64_t row, float* out) {
  const bool divided = recipe.kind == Recipe::Kind::kNvfp4;
  const float global = FloatAt(recipe.global, 0);
  float scale = 0;
  for (int64_t c = 0; c < recipe.cols; ++c) {
    if (c % 16 == 0) {
      scale = FloatAt(recipe.scale, (row * recipe.cols + c) / 16);
      scale = divided ? scale / global : scale * global;
    }
    const auto byte = Load<uint8_t>(recipe.data, (row * recipe.cols + c) / 2);
    const int level = byte >> (c % 2 * 4) & 15;
    out[c] = Rounded(recipe.result, kE2M1[level == 8 && !divided ? 0 : level] * scale);
  }
}

// As gguf-py reads a byte: no sign, and 127 is nothing.
float UnsignedE4M3(uint8_t byte) {
  constexpr float kLargest = 480;  // of 255, which is no number elsewhere
  return byte == 0x7F ? 0 : byte == 0xFF ? kLargest : E4M3(byte & 0x7F);
}

void MakeNvfp4Blocks(const Recipe& recipe, int64_t row, float* out) {
  const float global =
      recipe.global.present() ? FloatAt(recipe.global, row / (recipe.rows / recipe.groups)) : 1;
  const int64_t blocks = recipe.cols / kNvfp4BlockValues;
  const auto* block = reinterpret_cast<const uint8_t*>(recipe.data.bytes.data()) +
                      size_t(row * blocks) * kNvfp4BlockBytes;
  const auto value = [&](int level, float scale) {
    return Rounded(recipe.result, kE2M1[level == 8 ? 0 : level] * scale);
  };
  for (int64_t b = 0; b < blocks; ++b, block += kNvfp4BlockBytes) {
    for (int part = 0; part < 4; ++part, out += 16) {
      const float scale = UnsignedE4M3(block[part]) * global;
      for (int j = 0; j < 8; ++j) {
        const uint8_t levels = block[4 + 8 * part + j];
        out[j] = value(levels & 15, scale);
        out[j + 8] = value(levels >> 4, scale);
      }
    }
  }
}

}  // namespace

const Recipe kNvfp4Blocks = [] {
  Recipe recipe;
  recipe.kind = Recipe::Kind::kGgufNvfp4;
  return recipe;
}();

std::unique_ptr<Recipe> MakeNvfp4Recipe(const StoredTensor& blocks, const StoredTensor* scale) {
  auto recipe = std::make_unique<Recipe>();
  recipe->name = blocks.name;
  recipe->kind = Recipe::Kind::kGgufNvfp4;
  recipe->result = DType::kBF16;
  recipe->rows = blocks.shape.rows();
  recipe->cols = blocks.shape.cols();
  recipe->data = {blocks.name, "NVFP4", blocks.shape, blocks.bytes, blocks.file};
  if (scale == nullptr) return recipe;
  const int64_t slices = blocks.shape.rank() == 3 ? blocks.shape[0] : 1;
  recipe->groups = scale->shape.elements();
  if (scale->dtype != DType::kF32 || (recipe->groups != 1 && recipe->groups != slices)) return {};
  recipe->global = PartOf(*scale, scale->file);
  return recipe;
}

void MakeRow(const Recipe& recipe, int64_t row, float* out) {
  CHECK(row >= 0 && row < recipe.rows);
  switch (recipe.kind) {
    case Recipe::Kind::kFp8:
    case Recipe::Kind::kInt8:
      return MakeBytes(recipe, row, out);
    case Recipe::Kind::kIntegers:
      return MakeIntegerRow(recipe, row, out);
    case Recipe::Kind::kAwq:
      return MakeAwqRow(recipe, row, out);
    case Recipe::Kind::kGptq:
      return MakeGptqRow(recipe, row, out);
    case Recipe::Kind::kNvfp4:
    case Recipe::Kind::kModelOpt4:
      return MakeNvfp4Row(recipe, row, out);
    case Recipe::Kind::kGgufNvfp4:
      return MakeNvfp4Blocks(recipe, row, out);
  }
}

}  // namespace reprise
