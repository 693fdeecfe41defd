// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/layout.h"

#include <cstring>

#include "base/check.h"
#include "tensor/blocks.h"

namespace reprise::cuda {
namespace {

// Bytes of a unit's quants and extra plane, of a block's sub-block scales and of its f16 scales.
struct Widths {
  int quant;
  int extra;
  int sub;
  int scale;
};

Widths WidthsOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return {32, 0, 0, 2};
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return {16, 0, 0, 2};
    case DType::kQ4_1:
      return {16, 0, 0, 4};
    case DType::kQ5_0:
      return {16, 4, 0, 2};
    case DType::kQ5_1:
      return {16, 4, 0, 4};
    case DType::kQ2_K:
      return {8, 0, 16, 4};
    case DType::kQ3_K:
      return {8, 4, 16, 2};
    case DType::kQ4_K:
      return {16, 0, 16, 4};
    case DType::kQ5_K:
      return {16, 4, 16, 4};
    case DType::kQ6_K:
      return {16, 8, 16, 2};
    case DType::kIQ4_XS:
      return {16, 0, 8, 2};
    case DType::kIQ2_XXS:
      return {8, 0, 0, 2};
    default:
      break;
  }
  CHECK(!"a quantised type");
  return {};
}

int64_t RoundUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// One block of a row: where its parts lie in the planes.
struct Place {
  uint8_t* quants;  // of the row
  uint8_t* extra;   // of the row
  int64_t unit;     // the block's first
  uint8_t* sub;
  uint16_t* scale;
};

Place PlaceOf(const QuantisedLayout& layout, std::byte* packed, int64_t row, int64_t block) {
  const Widths widths = WidthsOf(layout.dtype);
  uint8_t* base = reinterpret_cast<uint8_t*>(packed);
  uint8_t* scale = base + layout.scale + row * layout.scale_stride + block * widths.scale;
  return {base + row * layout.quant_stride, base + layout.extra + row * layout.extra_stride,
          block * (TraitsOf(layout.dtype).block_elements / 32),
          base + layout.sub + row * layout.sub_stride + block * widths.sub,
          reinterpret_cast<uint16_t*>(scale)};
}

// Word w of a unit in a plane of kWords words a unit.
template <int kWords>
uint8_t* WordOf(uint8_t* plane, int64_t unit, int w) {
  return plane + unit / 4 * (16 * kWords) + 16 * w + unit % 4 * 4;
}

// Puts kBits bits of each of the 32 values of a unit into its words of a plane (nibbles, pairs or
// bits of layout.h): value (h, i, c) is number 2 i + h of those that share byte c.
template <int kBits>
void PutUnit(const uint8_t* values, uint8_t* plane, int64_t unit) {
  constexpr int kShare = 8 / kBits;
  uint8_t words[kBits][4] = {};
  for (int n = 0; n < 8; ++n) {
    const uint8_t* four = values + 16 * (n % 2) + 4 * (n / 2);
    for (int c = 0; c < 4; ++c) {
      words[n / kShare][c] = uint8_t(words[n / kShare][c] | four[c] << (n % kShare * kBits));
    }
  }
  for (int w = 0; w < kBits; ++w) std::memcpy(WordOf<kBits>(plane, unit, w), words[w], 4);
}

template <int kBits>
void TakeUnit(uint8_t* plane, int64_t unit, uint8_t* values) {
  constexpr int kShare = 8 / kBits;
  for (int n = 0; n < 8; ++n) {
    const uint8_t* word = WordOf<kBits>(plane, unit, n / kShare);
    uint8_t* four = values + 16 * (n % 2) + 4 * (n / 2);
    for (int c = 0; c < 4; ++c) {
      four[c] = uint8_t(word[c] >> (n % kShare * kBits) & ((1 << kBits) - 1));
    }
  }
}

// Where some bits of an element lie in a block: from bit `shift` of a byte on.
struct Spot {
  uint8_t* at;
  int shift;
};

// The spots of element e in the blocks of a file.
Spot WordBit(uint8_t* qh, int e) { return {qh + e / 8, e % 8}; }
Spot QuarterPair(uint8_t* qs, int e) {  // Q2_K and Q3_K
  return {qs + 32 * (e / 128) + e % 32, e % 128 / 32 * 2};
}
Spot ColumnBit(uint8_t* bits, int e) { return {bits + e % 32, e / 32}; }  // Q3_K, Q5_K
Spot QuarterNibble(uint8_t* qs, int e) {                                  // Q4_K and Q5_K
  return {qs + 32 * (e / 64) + e % 32, e / 32 % 2 * 4};
}
Spot LowOfQ6(uint8_t* ql, int e) {
  const int k = e % 128 / 32;
  return {ql + 64 * (e / 128) + 32 * (k & 1) + e % 32, k / 2 * 4};
}
Spot HighOfQ6(uint8_t* qh, int e) { return {qh + 32 * (e / 128) + e % 32, e % 128 / 32 * 2}; }
Spot UnitNibble(uint8_t* qs, int e) {  // IQ4_XS
  return {qs + 16 * (e / 32) + e % 16, e / 16 % 2 * 4};
}

using InBlock = Spot (*)(uint8_t* bytes, int e);

// Moves kBits bits of each of kCount elements from a block to a plane (kPack) or back.
template <bool kPack, InBlock kInBlock, int kBits, int kCount>
void Move(uint8_t* block, uint8_t* plane, int64_t unit) {
  constexpr unsigned kMask = (1u << kBits) - 1;
  uint8_t values[kCount];
  if (kPack) {
    for (int e = 0; e < kCount; ++e) {
      const Spot spot = kInBlock(block, e);
      values[e] = uint8_t(*spot.at >> spot.shift & kMask);
    }
    for (int u = 0; u < kCount / 32; ++u) PutUnit<kBits>(values + 32 * u, plane, unit + u);
  } else {
    for (int u = 0; u < kCount / 32; ++u) TakeUnit<kBits>(plane, unit + u, values + 32 * u);
    for (int e = 0; e < kCount; ++e) {
      const Spot spot = kInBlock(block, e);
      *spot.at = uint8_t((*spot.at & ~(kMask << spot.shift)) | unsigned{values[e]} << spot.shift);
    }
  }
}

template <bool kPack>
void Copy(void* block, void* plane, size_t bytes) {
  std::memcpy(kPack ? plane : block, kPack ? block : plane, bytes);
}

// Words that are the same in a block and in its planes, kWords a unit.
template <bool kPack, int kWords>
void CopyWords(void* block, uint8_t* plane, int64_t unit, int units) {
  for (int w = 0; w < kWords * units; ++w) {
    Copy<kPack>(static_cast<uint8_t*>(block) + 4 * w,
                WordOf<kWords>(plane, unit + w / kWords, w % kWords), 4);
  }
}

// d, m or dmin, which may lie at any address of a block.
template <bool kPack>
void CopyScale(void* d, const Place& place, int index) {
  Copy<kPack>(d, place.scale + index, sizeof(uint16_t));
}

template <bool kPack>
void Convert(BlockQ8_0* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyWords<kPack, 8>(block->qs, place.quants, place.unit, 1);
}

template <bool kPack>
void Convert(BlockQ4_0* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyWords<kPack, 4>(block->qs, place.quants, place.unit, 1);
}

template <bool kPack>
void Convert(BlockIQ4_NL* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyWords<kPack, 4>(block->qs, place.quants, place.unit, 1);
}

template <bool kPack>
void Convert(BlockQ4_1* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyScale<kPack>(&block->m, place, 1);
  CopyWords<kPack, 4>(block->qs, place.quants, place.unit, 1);
}

template <bool kPack>
void Convert(BlockQ5_0* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyWords<kPack, 4>(block->qs, place.quants, place.unit, 1);
  Move<kPack, WordBit, 1, 32>(block->qh, place.extra, place.unit);
}

template <bool kPack>
void Convert(BlockQ5_1* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyScale<kPack>(&block->m, place, 1);
  CopyWords<kPack, 4>(block->qs, place.quants, place.unit, 1);
  Move<kPack, WordBit, 1, 32>(block->qh, place.extra, place.unit);
}

template <bool kPack>
void Convert(BlockQ2_K* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyScale<kPack>(&block->dmin, place, 1);
  Copy<kPack>(block->scales, place.sub, 16);
  Move<kPack, QuarterPair, 2, 256>(block->qs, place.quants, place.unit);
}

template <bool kPack>
void Convert(BlockQ3_K* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  Move<kPack, QuarterPair, 2, 256>(block->qs, place.quants, place.unit);
  Move<kPack, ColumnBit, 1, 256>(block->hmask, place.extra, place.unit);
  for (int s = 0; s < 16; ++s) {
    uint8_t* low = block->scales + s % 8;
    uint8_t* high = block->scales + 8 + s % 4;
    const int low_shift = s / 8 * 4, high_shift = s / 4 * 2;
    if (kPack) {
      place.sub[s] = uint8_t((*low >> low_shift & 15) + ((*high >> high_shift & 3) << 4) - 32);
    } else {
      const unsigned six = uint8_t(place.sub[s] + 32);
      *low = uint8_t((*low & ~(15u << low_shift)) | (six & 15) << low_shift);
      *high = uint8_t((*high & ~(3u << high_shift)) | six >> 4 << high_shift);
    }
  }
}

// Eight scales and eight minima of six bits, as bytes.
template <bool kPack>
void ConvertSixBits(uint8_t* scales, uint8_t* sub) {
  if (kPack) {
    for (int s = 0; s < 4; ++s) {
      sub[s] = scales[s] & 63;
      sub[8 + s] = scales[4 + s] & 63;
      sub[4 + s] = uint8_t((scales[8 + s] & 15) | scales[s] >> 6 << 4);
      sub[12 + s] = uint8_t(scales[8 + s] >> 4 | scales[4 + s] >> 6 << 4);
    }
  } else {
    for (int s = 0; s < 4; ++s) {
      scales[s] = uint8_t(sub[s] | sub[4 + s] >> 4 << 6);
      scales[4 + s] = uint8_t(sub[8 + s] | sub[12 + s] >> 4 << 6);
      scales[8 + s] = uint8_t((sub[4 + s] & 15) | sub[12 + s] << 4);
    }
  }
}

template <bool kPack>
void Convert(BlockQ4_K* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyScale<kPack>(&block->dmin, place, 1);
  ConvertSixBits<kPack>(block->scales, place.sub);
  Move<kPack, QuarterNibble, 4, 256>(block->qs, place.quants, place.unit);
}

template <bool kPack>
void Convert(BlockQ5_K* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyScale<kPack>(&block->dmin, place, 1);
  ConvertSixBits<kPack>(block->scales, place.sub);
  Move<kPack, QuarterNibble, 4, 256>(block->qs, place.quants, place.unit);
  Move<kPack, ColumnBit, 1, 256>(block->qh, place.extra, place.unit);
}

template <bool kPack>
void Convert(BlockQ6_K* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  Copy<kPack>(block->scales, place.sub, 16);
  Move<kPack, LowOfQ6, 4, 256>(block->ql, place.quants, place.unit);
  Move<kPack, HighOfQ6, 2, 256>(block->qh, place.extra, place.unit);
}

template <bool kPack>
void Convert(BlockIQ4_XS* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  Move<kPack, UnitNibble, 4, 256>(block->qs, place.quants, place.unit);
  uint16_t high = kPack ? block->scales_h : uint16_t{0};
  for (int s = 0; s < 8; ++s) {
    uint8_t* low = block->scales_l + s / 2;
    const int low_shift = s % 2 * 4;
    if (kPack) {
      place.sub[s] = uint8_t((*low >> low_shift & 15) + ((high >> (2 * s) & 3) << 4) - 32);
    } else {
      const unsigned six = uint8_t(place.sub[s] + 32);
      *low = uint8_t((*low & ~(15u << low_shift)) | (six & 15) << low_shift);
      high = uint16_t(high | six >> 4 << (2 * s));
    }
  }
  block->scales_h = high;
}

template <bool kPack>
void Convert(BlockIQ2_XXS* block, const Place& place) {
  CopyScale<kPack>(&block->d, place, 0);
  CopyWords<kPack, 2>(block->qs, place.quants, place.unit, 8);
}

template <bool kPack>
void ConvertBlock(DType dtype, std::byte* block, const Place& place) {
  switch (dtype) {
#define REPRISE_CONVERT(name) \
  case DType::k##name:        \
    return Convert<kPack>(reinterpret_cast<Block##name*>(block), place)
    REPRISE_CONVERT(Q8_0);
    REPRISE_CONVERT(Q4_0);
    REPRISE_CONVERT(Q4_1);
    REPRISE_CONVERT(Q5_0);
    REPRISE_CONVERT(Q5_1);
    REPRISE_CONVERT(Q2_K);
    REPRISE_CONVERT(Q3_K);
    REPRISE_CONVERT(Q4_K);
    REPRISE_CONVERT(Q5_K);
    REPRISE_CONVERT(Q6_K);
    REPRISE_CONVERT(IQ4_NL);
    REPRISE_CONVERT(IQ4_XS);
    REPRISE_CONVERT(IQ2_XXS);
#undef REPRISE_CONVERT
    default:
      break;
  }
  CHECK(!"a quantised type");
}

}  // namespace

QuantisedLayout LayoutOf(DType dtype, int64_t rows, int64_t cols) {
  const int block = TraitsOf(dtype).block_elements;
  CHECK(cols % block == 0);
  const Widths widths = WidthsOf(dtype);
  QuantisedLayout layout;
  layout.dtype = dtype;
  layout.rows = rows;
  layout.cols = cols;
  layout.quant_stride = RoundUp(cols / 32, 4) * widths.quant;
  layout.extra_stride = RoundUp(cols / 32, 4) * widths.extra;
  layout.sub_stride = RoundUp(cols / block * widths.sub, 16);
  layout.scale_stride = RoundUp(cols / block * widths.scale, 16);
  layout.extra = size_t(RoundUp(rows * layout.quant_stride, 256));
  layout.sub = layout.extra + size_t(RoundUp(rows * layout.extra_stride, 256));
  layout.scale = layout.sub + size_t(RoundUp(rows * layout.sub_stride, 256));
  layout.grid = layout.scale + size_t(RoundUp(rows * layout.scale_stride, 256));
  layout.bytes = layout.grid + (dtype == DType::kIQ2_XXS ? 256 * 8 : 0);
  return layout;
}

void PackRows(const QuantisedLayout& layout, const std::byte* source, size_t stride, int64_t begin,
              int64_t end, std::byte* packed) {
  const DTypeTraits& traits = TraitsOf(layout.dtype);
  for (int64_t row = begin; row < end; ++row) {
    const std::byte* blocks = source + size_t(row - begin) * stride;
    for (int64_t b = 0; b < layout.cols / traits.block_elements; ++b) {
      // The block is only read, but the same code writes it on the way back.
      std::byte copy[256];
      std::memcpy(copy, blocks + b * traits.block_bytes, size_t(traits.block_bytes));
      ConvertBlock<true>(layout.dtype, copy, PlaceOf(layout, packed, row, b));
    }
  }
}

void PackTables(const QuantisedLayout& layout, std::byte* packed) {
  if (layout.dtype != DType::kIQ2_XXS) return;
  for (int point = 0; point < 256; ++point) {
    for (int i = 0; i < 8; ++i) {
      packed[layout.grid + size_t(8 * point + i)] =
          std::byte{kIQ2Magnitudes[kIQ2Grid[point] >> (2 * i) & 3]};
    }
  }
}

void UnpackRow(const QuantisedLayout& layout, const std::byte* packed, int64_t row,
               std::byte* blocks) {
  const DTypeTraits& traits = TraitsOf(layout.dtype);
  for (int64_t b = 0; b < layout.cols / traits.block_elements; ++b) {
    const Place place = PlaceOf(layout, const_cast<std::byte*>(packed), row, b);  // only read
    ConvertBlock<false>(layout.dtype, blocks + b * traits.block_bytes, place);
  }
}

}  // namespace reprise::cuda
