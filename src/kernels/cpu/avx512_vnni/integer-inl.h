// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/avx512/integer-inl.h"

namespace reprise::cpu {
namespace {

// Dot products of four in one instruction.
struct IntegerVnni : IntegerAvx512 {
  static constexpr int kTokens32 = 6;
  static constexpr int kTokens256 = 4;
  static constexpr int kSignedBias = 128;
  static constexpr bool kPairSums = false;

  static Int Dot(Int acc, Int w, Int a) { return _mm512_dpbusd_epi32(acc, w, a); }
  // w + 128 is unsigned; the tile takes 128 * sum(a) off.
  static Int DotSigned(Int acc, Int w, Int a) {
    return _mm512_dpbusd_epi32(acc, _mm512_xor_si512(w, _mm512_set1_epi8(-128)), a);
  }
  static Int DotPairs(Int acc, Int a, Int b) { return _mm512_dpwssd_epi32(acc, a, b); }
};

}  // namespace
}  // namespace reprise::cpu
