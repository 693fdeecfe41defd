// SPDX-License-Identifier: Apache-2.0
#include "tensor/factored.h"

#include <cstring>

#include "base/check.h"
#include "tensor/blocks.h"

namespace reprise {
namespace {

constexpr Levels kLevelsIQ1 = {{-7, 1, 9, 0, -9, -1, 7, 0}};  // 8 * (step + delta), by delta's sign
constexpr Levels kLevelsIQ2 = {{0x08, 0x19, 0x2b, 0, -0x08, -0x19, -0x2b, 0}};
constexpr Levels kLevelsIQ3XXS = {
    {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}};
constexpr Levels kLevelsIQ3S = {{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}};
constexpr Levels kLevelsTernary = {{-1, 0, 1, 2}};

uint32_t LoadWord(const uint8_t* bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
         uint32_t{bytes[3]} << 24;
}

int NibbleOf(const uint8_t* bytes, int i) { return bytes[i / 2] >> (i % 2 * 4) & 15; }

// Seven signs and the eighth that makes the number of negative ones even.
uint32_t EvenSigns(uint32_t seven) {
  return seven | static_cast<uint32_t>(__builtin_parity(seven)) << 7;
}

void SetScale(int first, int count, int scale, FactoredBlock* out) {
  for (int s = first; s < first + count; ++s) out->scale[s] = uint8_t(2 * scale + 1);
}

// Eight values of a point of codes of two bits.
void PutEight(uint32_t point, uint32_t signs, int8_t* value) {
  for (int i = 0; i < 8; ++i) {
    value[i] = kLevelsIQ2.value[(point >> (2 * i) & 3) | (signs >> i & 1) << 2];
  }
}

// Four values of a point of codes of four bits.
void PutFour(const Levels& levels, uint32_t point, uint32_t signs, int8_t* value) {
  for (int i = 0; i < 4; ++i) {
    value[i] = levels.value[(point >> (4 * i) & 7) | (signs >> i & 1) << 3];
  }
}

// Eight steps with the same delta.
void PutSteps(uint32_t point, bool negative, int8_t* value) {
  for (int i = 0; i < 8; ++i) {
    value[i] = kLevelsIQ1.value[(point >> (2 * i) & 3) | (negative ? 4 : 0)];
  }
}

void Take(const BlockIQ2_XXS& block, FactoredBlock* out) {
  out->d = block.d;
  for (int s = 0; s < 8; ++s) {
    const uint8_t* indices = block.qs + 8 * s;
    const uint32_t word = LoadWord(indices + 4);
    SetScale(2 * s, 2, static_cast<int>(word >> 28), out);
    for (int g = 0; g < 4; ++g) {
      PutEight(kIQ2Grid[indices[g]], EvenSigns(word >> (7 * g) & 127), out->value + 32 * s + 8 * g);
    }
  }
}

void Take(const BlockIQ2_XS& block, FactoredBlock* out) {
  out->d = block.d;
  for (int s = 0; s < 16; ++s) SetScale(s, 1, NibbleOf(block.scales, s), out);
  for (int g = 0; g < 32; ++g) {
    const uint32_t word = block.qs[g];
    PutEight(kIQ2XSGrid[word & 511], EvenSigns(word >> 9), out->value + 8 * g);
  }
}

void Take(const BlockIQ2_S& block, FactoredBlock* out) {
  out->d = block.d;
  for (int s = 0; s < 16; ++s) SetScale(s, 1, NibbleOf(block.scales, s), out);
  for (int g = 0; g < 32; ++g) {
    const int index = block.qs[g] | (block.qh[g / 4] >> (g % 4 * 2) & 3) << 8;
    PutEight(kIQ2SGrid[index], block.signs[g], out->value + 8 * g);
  }
}

void Take(const BlockIQ3_XXS& block, FactoredBlock* out) {
  out->d = block.d;
  for (int s = 0; s < 8; ++s) {
    const uint32_t word = LoadWord(block.words + 4 * s);
    SetScale(2 * s, 2, static_cast<int>(word >> 28), out);
    for (int g = 0; g < 8; ++g) {
      const uint32_t signs = EvenSigns(word >> (g / 2 * 7) & 127) >> (g % 2 * 4);
      PutFour(kLevelsIQ3XXS, kIQ3XXSGrid[block.qs[8 * s + g]], signs, out->value + 32 * s + 4 * g);
    }
  }
}

void Take(const BlockIQ3_S& block, FactoredBlock* out) {
  out->d = block.d;
  for (int s = 0; s < 8; ++s) SetScale(2 * s, 2, NibbleOf(block.scales, s), out);
  for (int g = 0; g < 64; ++g) {
    const int index = block.qs[g] | (block.qh[g / 8] >> (g % 8) & 1) << 8;
    const uint32_t signs = static_cast<uint32_t>(block.signs[g / 2]) >> (g % 2 * 4);
    PutFour(kLevelsIQ3S, kIQ3SGrid[index], signs, out->value + 4 * g);
  }
}

void Take(const BlockIQ1_S& block, FactoredBlock* out) {
  out->d = block.d;
  for (int s = 0; s < 8; ++s) {
    const int high = block.qh[s];
    SetScale(2 * s, 2, high >> 12 & 7, out);
    for (int g = 0; g < 4; ++g) {
      const int index = block.qs[4 * s + g] | (high >> (3 * g) & 7) << 8;
      PutSteps(kIQ1Grid[index], high >> 15 != 0, out->value + 32 * s + 8 * g);
    }
  }
}

void Take(const BlockIQ1_M& block, FactoredBlock* out) {
  uint16_t words[4];
  std::memcpy(words, block.scales, sizeof words);
  out->d = 0;
  for (int i = 0; i < 4; ++i) out->d = uint16_t(out->d | words[i] >> 12 << (4 * i));
  for (int s = 0; s < 16; ++s) SetScale(s, 1, words[s / 4] >> (s % 4 * 3) & 7, out);
  for (int g = 0; g < 32; ++g) {
    const int nibble = NibbleOf(block.qh, g);
    PutSteps(kIQ1Grid[block.qs[g] | (nibble & 7) << 8], (nibble & 8) != 0, out->value + 8 * g);
  }
}

// Digit k of a byte of TQ1_0, less one.
int8_t Digit(uint8_t byte, int k) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  return int8_t(((byte * kPowers[k] & 255) * 3 >> 8) - 1);
}

void Take(const BlockTQ1_0& block, FactoredBlock* out) {
  out->d = block.d;
  std::memset(out->scale, 1, sizeof out->scale);
  int8_t* value = out->value;
  for (int k = 0; k < 5; ++k) {
    for (int l = 0; l < 32; ++l) *value++ = Digit(block.qs[l], k);
  }
  for (int k = 0; k < 5; ++k) {
    for (int l = 32; l < 48; ++l) *value++ = Digit(block.qs[l], k);
  }
  for (int k = 0; k < 4; ++k) {
    for (int l = 0; l < 4; ++l) *value++ = Digit(block.qh[l], k);
  }
}

void Take(const BlockTQ2_0& block, FactoredBlock* out) {
  out->d = block.d;
  std::memset(out->scale, 1, sizeof out->scale);
  for (int e = 0; e < 256; ++e) {
    out->value[e] = int8_t((block.qs[32 * (e / 128) + e % 32] >> (e % 128 / 32 * 2) & 3) - 1);
  }
}

}  // namespace

const Levels& LevelsOf(DType dtype) {
  switch (dtype) {
    case DType::kIQ1_S:
    case DType::kIQ1_M:
      return kLevelsIQ1;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return kLevelsIQ2;
    case DType::kIQ3_XXS:
      return kLevelsIQ3XXS;
    case DType::kIQ3_S:
      return kLevelsIQ3S;
    default:
      return kLevelsTernary;
  }
}

float UnitOf(DType dtype) {
  switch (dtype) {
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return 0.125f;
    case DType::kIQ3_XXS:
      return 0.25f;
    default:
      return 1.0f;
  }
}

void TakeApart(DType dtype, const void* block, FactoredBlock* out) {
  out->unit = UnitOf(dtype);
  switch (dtype) {
#define REPRISE_TAKE(name, ...) \
  case DType::k##name:          \
    return Take(*static_cast<const Block##name*>(block), out);
    REPRISE_CODED_TYPES(REPRISE_TAKE)
#undef REPRISE_TAKE
    default:
      CHECK(!"a type of few values");
  }
}

}  // namespace reprise
