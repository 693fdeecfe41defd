// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace reprise {

// A block of the types whose values are few (REPRISE_CODED_TYPES: points of grids, ternary ones),
// taken apart into factors. It is the one reading of their bits: rows are dequantised from it, the
// reference multiplies its integers, and kernels pack codes of them.
//
// Value e is d * unit * scale[e / 16] * value[e]. `unit` is the power of two that makes the others
// integers, so every product but the last is exact, and the last is exact but for overflow: an
// order of rounding is not to be chosen.
struct FactoredBlock {
  uint16_t d;  // f16
  float unit;
  uint8_t scale[16];  // odd, at most 31; 1 for ternary types
  int8_t value[256];  // one of LevelsOf
};

// The values that a type has, by code. For IQ1, IQ2 and TQ these are codes of three bits, for IQ3
// of four; places that no value uses are 0.
struct Levels {
  int8_t value[16];
};

// REQUIRES: dtype is one of REPRISE_CODED_TYPES.
const Levels& LevelsOf(DType dtype);
float UnitOf(DType dtype);
void TakeApart(DType dtype, const void* block, FactoredBlock* out);

}  // namespace reprise
