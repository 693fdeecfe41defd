// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::unicode {

// Generated data of nfc.cc.

struct Decomposition {  // full canonical, without Hangul
  uint32_t code;
  uint16_t begin;  // in kDecompositionPool
  uint16_t count;
};

struct Composition {  // primary composites, without Hangul
  uint32_t first;
  uint32_t second;
  uint32_t composed;
};

// 0: a starter that NFC never changes and that composes with nothing before it. 255: any other
// starter. Else the canonical combining class.
inline constexpr uint8_t kNfcUnsafeStarter = 255;
extern const uint8_t kNfcIndex[];   // [0x110000 / 256]
extern const uint8_t kNfcBlocks[];  // [blocks, 256]

extern const Decomposition kDecompositions[];  // by code
extern const size_t kDecompositionCount;
extern const uint32_t kDecompositionPool[];
extern const Composition kCompositions[];  // by (first, second)
extern const size_t kCompositionCount;

}  // namespace reprise::unicode
