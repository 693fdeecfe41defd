// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/interleave.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/coded/blocks.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"

namespace reprise::cpu {
namespace {

constexpr int kRows = kInterleavedRows;

struct Field {
  int offset;      // in the file's block
  int unit_bytes;  // 0 ends the list
  int units;
  bool spread = false;  // the bit permutation of qh
};

template <DType kType>
struct Layout;

#define REPRISE_LAYOUT(name, ...)                     \
  template <>                                         \
  struct Layout<DType::k##name> {                     \
    using Block = Block##name;                        \
    static constexpr bool kCoded = false;             \
    static constexpr Field kFields[] = {__VA_ARGS__}; \
  }
#define REPRISE_CODED_LAYOUT(name, ...)               \
  template <>                                         \
  struct Layout<DType::k##name> {                     \
    using Block = Coded##name;                        \
    static constexpr bool kCoded = true;              \
    static constexpr Field kFields[] = {__VA_ARGS__}; \
  }
#define REPRISE_AT(name, field) int(offsetof(Block##name, field))
#define REPRISE_CODED_AT(name, field) int(offsetof(Coded##name, field))

REPRISE_LAYOUT(Q8_0, {REPRISE_AT(Q8_0, d), 2, 1}, {REPRISE_AT(Q8_0, qs), 4, 8});
REPRISE_LAYOUT(Q4_0, {REPRISE_AT(Q4_0, d), 2, 1}, {REPRISE_AT(Q4_0, qs), 4, 4});
REPRISE_LAYOUT(Q4_1, {REPRISE_AT(Q4_1, d), 2, 1}, {REPRISE_AT(Q4_1, m), 2, 1},
               {REPRISE_AT(Q4_1, qs), 4, 4});
REPRISE_LAYOUT(Q5_0, {REPRISE_AT(Q5_0, d), 2, 1}, {REPRISE_AT(Q5_0, qh), 4, 1, true},
               {REPRISE_AT(Q5_0, qs), 4, 4});
REPRISE_LAYOUT(Q5_1, {REPRISE_AT(Q5_1, d), 2, 1}, {REPRISE_AT(Q5_1, m), 2, 1},
               {REPRISE_AT(Q5_1, qh), 4, 1, true}, {REPRISE_AT(Q5_1, qs), 4, 4});
REPRISE_LAYOUT(IQ4_NL, {REPRISE_AT(IQ4_NL, d), 2, 1}, {REPRISE_AT(IQ4_NL, qs), 4, 4});
REPRISE_LAYOUT(MXFP4, {REPRISE_AT(MXFP4, e), 1, 1}, {REPRISE_AT(MXFP4, qs), 4, 4});
REPRISE_LAYOUT(Q2_K, {REPRISE_AT(Q2_K, d), 2, 1}, {REPRISE_AT(Q2_K, dmin), 2, 1},
               {REPRISE_AT(Q2_K, scales), 1, 16}, {REPRISE_AT(Q2_K, qs), 4, 16});
REPRISE_LAYOUT(Q3_K, {REPRISE_AT(Q3_K, d), 2, 1}, {REPRISE_AT(Q3_K, scales), 1, 12},
               {REPRISE_AT(Q3_K, hmask), 4, 8}, {REPRISE_AT(Q3_K, qs), 4, 16});
REPRISE_LAYOUT(Q4_K, {REPRISE_AT(Q4_K, d), 2, 1}, {REPRISE_AT(Q4_K, dmin), 2, 1},
               {REPRISE_AT(Q4_K, scales), 1, 12}, {REPRISE_AT(Q4_K, qs), 4, 32});
REPRISE_LAYOUT(Q5_K, {REPRISE_AT(Q5_K, d), 2, 1}, {REPRISE_AT(Q5_K, dmin), 2, 1},
               {REPRISE_AT(Q5_K, scales), 1, 12}, {REPRISE_AT(Q5_K, qh), 4, 8},
               {REPRISE_AT(Q5_K, qs), 4, 32});
REPRISE_LAYOUT(Q6_K, {REPRISE_AT(Q6_K, d), 2, 1}, {REPRISE_AT(Q6_K, scales), 1, 16},
               {REPRISE_AT(Q6_K, ql), 4, 32}, {REPRISE_AT(Q6_K, qh), 4, 16});
REPRISE_LAYOUT(IQ4_XS, {REPRISE_AT(IQ4_XS, d), 2, 1}, {REPRISE_AT(IQ4_XS, scales_h), 2, 1},
               {REPRISE_AT(IQ4_XS, scales_l), 1, 4}, {REPRISE_AT(IQ4_XS, qs), 4, 32});
REPRISE_CODED_LAYOUT(IQ1_S, {REPRISE_CODED_AT(IQ1_S, d), 2, 1},
                     {REPRISE_CODED_AT(IQ1_S, scales), 1, 4}, {REPRISE_CODED_AT(IQ1_S, qs), 4, 16});
REPRISE_CODED_LAYOUT(IQ1_M, {REPRISE_CODED_AT(IQ1_M, d), 2, 1},
                     {REPRISE_CODED_AT(IQ1_M, scales), 1, 16},
                     {REPRISE_CODED_AT(IQ1_M, qs), 4, 16});
REPRISE_CODED_LAYOUT(IQ2_XXS, {REPRISE_CODED_AT(IQ2_XXS, d), 2, 1},
                     {REPRISE_CODED_AT(IQ2_XXS, scales), 1, 4},
                     {REPRISE_CODED_AT(IQ2_XXS, high), 4, 8},
                     {REPRISE_CODED_AT(IQ2_XXS, qs), 4, 16});
REPRISE_CODED_LAYOUT(IQ2_XS, {REPRISE_CODED_AT(IQ2_XS, d), 2, 1},
                     {REPRISE_CODED_AT(IQ2_XS, scales), 1, 8},
                     {REPRISE_CODED_AT(IQ2_XS, high), 4, 8}, {REPRISE_CODED_AT(IQ2_XS, qs), 4, 16});
REPRISE_CODED_LAYOUT(IQ3_XXS, {REPRISE_CODED_AT(IQ3_XXS, d), 2, 1},
                     {REPRISE_CODED_AT(IQ3_XXS, scales), 1, 4},
                     {REPRISE_CODED_AT(IQ3_XXS, qs), 4, 32});
REPRISE_CODED_LAYOUT(TQ1_0, {REPRISE_CODED_AT(TQ1_0, d), 2, 1},
                     {REPRISE_CODED_AT(TQ1_0, qs), 4, 16});
template <>
struct Layout<DType::kIQ2_S> : Layout<DType::kIQ2_XS> {};
template <>
struct Layout<DType::kIQ3_S> : Layout<DType::kIQ3_XXS> {};
template <>
struct Layout<DType::kTQ2_0> : Layout<DType::kTQ1_0> {};

#undef REPRISE_LAYOUT
#undef REPRISE_CODED_LAYOUT
#undef REPRISE_AT
#undef REPRISE_CODED_AT

// Bit 4i + j to bit 8j + i: a transposition of an 8 x 4 matrix of bits.
uint32_t Spread(uint32_t word) {
  uint32_t out = 0;
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 8; ++i) out |= (word >> (4 * i + j) & 1) << (8 * j + i);
  }
  return out;
}

uint32_t Unspread(uint32_t word) {
  uint32_t out = 0;
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 8; ++i) out |= (word >> (8 * j + i) & 1) << (4 * i + j);
  }
  return out;
}

template <typename Unit>
void Scatter(const char* source, int units, bool spread, int row, char* field) {
  for (int u = 0; u < units; ++u) {
    Unit unit;
    std::memcpy(&unit, source + u * sizeof(Unit), sizeof(Unit));
    if (spread) unit = static_cast<Unit>(Spread(static_cast<uint32_t>(unit)));
    std::memcpy(field + (size_t(u) * kRows + size_t(row)) * sizeof(Unit), &unit, sizeof(Unit));
  }
}

template <typename Unit>
void Gather(const char* field, int units, bool spread, int row, char* target) {
  for (int u = 0; u < units; ++u) {
    Unit unit;
    std::memcpy(&unit, field + (size_t(u) * kRows + size_t(row)) * sizeof(Unit), sizeof(Unit));
    if (spread) unit = static_cast<Unit>(Unspread(static_cast<uint32_t>(unit)));
    std::memcpy(target + u * sizeof(Unit), &unit, sizeof(Unit));
  }
}

// Block `source` of one row into its places in the group's block.
template <DType kType>
inline void ScatterBlock(const char* source, int row, char* block) {
  size_t at = 0;
  for (const Field& field : Layout<kType>::kFields) {
    const char* from = source + field.offset;
    switch (field.unit_bytes) {
      case 1:
        Scatter<uint8_t>(from, field.units, false, row, block + at);
        break;
      case 2:
        Scatter<uint16_t>(from, field.units, false, row, block + at);
        break;
      default:
        Scatter<uint32_t>(from, field.units, field.spread, row, block + at);
        break;
    }
    at += size_t(field.units * field.unit_bytes) * kRows;
  }
}

template <DType kType>
inline void GatherBlock(const char* block, int row, char* target) {
  size_t at = 0;
  for (const Field& field : Layout<kType>::kFields) {
    char* to = target + field.offset;
    switch (field.unit_bytes) {
      case 1:
        Gather<uint8_t>(block + at, field.units, false, row, to);
        break;
      case 2:
        Gather<uint16_t>(block + at, field.units, false, row, to);
        break;
      default:
        Gather<uint32_t>(block + at, field.units, field.spread, row, to);
        break;
    }
    at += size_t(field.units * field.unit_bytes) * kRows;
  }
}

constexpr size_t kLine = 64;

// Whole lines, for blocks of an odd size.
template <DType kType>
constexpr size_t kPackedBytes = sizeof(typename Layout<kType>::Block);

template <DType kType>
size_t InterleavedBytes(int64_t cols) {
  const size_t bytes = size_t(cols / TraitsOf(kType).block_elements) * kPackedBytes<kType> * kRows;
  return (bytes + kLine - 1) / kLine * kLine;
}

template <DType kType>
void PackInterleaved(const void* source, size_t stride, int rows, int64_t cols, void* group) {
  const int64_t blocks = cols / TraitsOf(kType).block_elements;
  const size_t file_bytes = size_t(TraitsOf(kType).block_bytes);
  char* out = static_cast<char*>(group);
  if (rows < kRows) std::memset(out, 0, InterleavedBytes<kType>(cols));
  for (int64_t b = 0; b < blocks; ++b, out += kPackedBytes<kType> * kRows) {
    const char* from = static_cast<const char*>(source) + size_t(b) * file_bytes;
    for (int row = 0; row < rows; ++row, from += stride) {
      if constexpr (Layout<kType>::kCoded) {
        typename Layout<kType>::Block coded;
        EncodeBlock(from, &coded, kType);
        if constexpr (requires { Entwine(&coded); }) Entwine(&coded);
        ScatterBlock<kType>(reinterpret_cast<const char*>(&coded), row, out);
      } else {
        ScatterBlock<kType>(from, row, out);
      }
    }
  }
}

template <DType kType>
void UnpackInterleaved(const void* group, int row, int64_t cols, float* out) {
  const int elements = TraitsOf(kType).block_elements;
  const char* blocks = static_cast<const char*>(group);
  for (int64_t b = 0; b < cols / elements; ++b, blocks += kPackedBytes<kType> * kRows) {
    typename Layout<kType>::Block block;
    GatherBlock<kType>(blocks, row, reinterpret_cast<char*>(&block));
    if constexpr (Layout<kType>::kCoded) {
      if constexpr (requires { Disentwine(&block); }) Disentwine(&block);
      DecodeBlock(block, out + b * elements, kType);
    } else {
      DequantiseRow(kType, &block, out + b * elements, elements);
    }
  }
}

template <DType kType>
size_t Lines(int64_t cols) {
  return (RowBytes(kType, cols) + kLine - 1) / kLine;
}

template <DType kType>
size_t QuadBytes(int64_t cols) {
  return Lines<kType>(cols) * kLine * kQuadGroupRows;
}

// Line `line` of a row of a group.
template <DType kType>
size_t LineAt(int row, size_t line, int64_t cols) {
  const size_t quad = size_t(row / kQuadRows) * Lines<kType>(cols);
  return ((quad + line) * kQuadRows + size_t(row % kQuadRows)) * kLine;
}

template <DType kType>
void PackQuads(const void* source, size_t stride, int rows, int64_t cols, void* group) {
  const size_t row_bytes = RowBytes(kType, cols);
  char* out = static_cast<char*>(group);
  std::memset(out, 0, QuadBytes<kType>(cols));
  for (int row = 0; row < rows; ++row) {
    const char* from = static_cast<const char*>(source) + size_t(row) * stride;
    for (size_t line = 0; line < Lines<kType>(cols); ++line) {
      const size_t bytes = std::min(kLine, row_bytes - line * kLine);
      std::memcpy(out + LineAt<kType>(row, line, cols), from + line * kLine, bytes);
    }
  }
}

template <DType kType>
void UnpackQuads(const void* group, int row, int64_t cols, float* out) {
  const int64_t per_line = int64_t{kLine} / TraitsOf(kType).block_bytes;
  for (int64_t i = 0; i < cols; i += per_line) {
    const size_t at = LineAt<kType>(row, size_t(i / per_line), cols);
    DequantiseRow(kType, static_cast<const char*>(group) + at, out + i,
                  std::min(per_line, cols - i));
  }
}

template <DType kType>
void Use(MatrixKernel* kernel) {
  if constexpr (kType == DType::kF32 || kType == DType::kF16 || kType == DType::kBF16) {
    kernel->format = "quads16";
    kernel->activations = ActivationFormat::kF32;
    kernel->group_rows = kQuadGroupRows;
    kernel->group_bytes = QuadBytes<kType>;
    kernel->pack = PackQuads<kType>;
    kernel->unpack_row = UnpackQuads<kType>;
  } else {
    kernel->format = "interleaved32";
    kernel->activations = TraitsOf(kType).block_elements == 32 ? ActivationFormat::kQ8Block32
                                                               : ActivationFormat::kQ8Block256;
    kernel->group_rows = kInterleavedRows;
    kernel->group_bytes = InterleavedBytes<kType>;
    kernel->pack = PackInterleaved<kType>;
    kernel->unpack_row = UnpackInterleaved<kType>;
  }
}

}  // namespace

void UseInterleaved(DType dtype, MatrixKernel* kernel) {
  switch (dtype) {
#define REPRISE_USE(name, ...) \
  case DType::k##name:         \
    return Use<DType::k##name>(kernel);
    REPRISE_WEIGHT_TYPES(REPRISE_USE)
#undef REPRISE_USE
    case DType::kI32:
      break;
  }
  CHECK(!"a type of weights");
}

}  // namespace reprise::cpu
