// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <bit>
#include <cstdint>

#include "kernels/cuda/packed/packed.h"

// A unit (packed.h) as operands of tensor cores: what a lane reads of it, and the f16 weights that
// it makes of that.
namespace reprise::cuda {

__device__ __forceinline__ __half2 HalvesOf(uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}
__device__ __forceinline__ uint32_t BitsOf(__half2 halves) {
  return *reinterpret_cast<const uint32_t*>(&halves);
}
template <typename T>
__device__ __forceinline__ T Read(const uint8_t* at) {
  return *reinterpret_cast<const T*>(at);
}
// (v & mask) | other.
__device__ __forceinline__ uint32_t AndOr(uint32_t v, uint32_t mask, uint32_t other) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(v), "r"(mask), "r"(other));
  return r;
}

// f16 numbers in [1024, 2048) have their integer in the low bits.
inline constexpr uint32_t kThousands = 0x64006400;

// What a lane has of one row of a unit. Weights(j, low, high): those of step j, the pair of its
// first eight columns and that of the others.
template <PackedForm kForm>
struct UnitRow;

template <>
struct UnitRow<PackedForm::kBytes> {
  uint4 q;
  uint32_t scales;

  __device__ __forceinline__ void Load(const uint8_t* unit, int lane) {
    q = Read<uint4>(unit + lane * 16);
    scales = Read<uint32_t>(unit + 512 + lane / 4 * 4);
  }
  template <int j>
  __device__ __forceinline__ void Weights(uint32_t& low, uint32_t& high) const {
    const uint32_t word = j == 0 ? q.x : j == 1 ? q.y : j == 2 ? q.z : q.w;
    const __half2 both = HalvesOf(scales);
    const __half2 scale = j < 2 ? __low2half2(both) : __high2half2(both);
    const __half2 bias = HalvesOf(0x64806480);  // 1024 + 128
    low = BitsOf(
        __hmul2_rn(__hsub2_rn(HalvesOf(__byte_perm(word, 0x64646464, 0x4140)), bias), scale));
    high = BitsOf(
        __hmul2_rn(__hsub2_rn(HalvesOf(__byte_perm(word, 0x64646464, 0x4342)), bias), scale));
  }
};

template <>
struct UnitRow<PackedForm::kNibbles> {
  uint2 q;
  uint2 pairs;

  __device__ __forceinline__ void Load(const uint8_t* unit, int lane) {
    q = Read<uint2>(unit + lane * 8);
    pairs = Read<uint2>(unit + 256 + lane / 4 * 8);
  }
  template <int j>
  __device__ __forceinline__ void Weights(uint32_t& low, uint32_t& high) const {
    const uint32_t word = j < 2 ? q.x : q.y;
    const uint32_t v = j % 2 == 0 ? word : word >> 8;
    const __half2 both = HalvesOf(j < 2 ? pairs.x : pairs.y);
    const __half2 scale = __low2half2(both), shift = __high2half2(both);
    const __half2 first =
        __hsub2_rn(HalvesOf(AndOr(v, 0x000F000F, kThousands)), HalvesOf(kThousands));
    // 1024 + 16 q: a sixteenth of it, less 64.
    const __half2 second = __hfma2(HalvesOf(AndOr(v, 0x00F000F0, kThousands)), HalvesOf(0x2C002C00),
                                   HalvesOf(0xD400D400));
    low = BitsOf(__hfma2(first, scale, shift));
    high = BitsOf(__hfma2(second, scale, shift));
  }
};

template <>
struct UnitRow<PackedForm::kFives> {
  uint2 q;
  uint32_t upper;  // bytes 0 and 2: bits of first and second values, a bit for each pair
  uint2 pairs;

  __device__ __forceinline__ void Load(const uint8_t* unit, int lane) {
    q = Read<uint2>(unit + lane * 8);
    upper = __byte_perm(Read<uint16_t>(unit + 256 + lane * 2), 0, 0x4140);
    pairs = Read<uint2>(unit + 320 + lane / 4 * 8);
  }
  template <int j>
  __device__ __forceinline__ void Weights(uint32_t& low, uint32_t& high) const {
    const uint32_t word = j < 2 ? q.x : q.y;
    const uint32_t v = j % 2 == 0 ? word : word >> 8;
    const __half2 both = HalvesOf(j < 2 ? pairs.x : pairs.y);
    const __half2 scale = __low2half2(both), shift = __high2half2(both);
    const uint32_t fifth = j <= 2 ? upper << (4 - (j <= 2 ? 2 * j : 4)) : upper >> 2;
    const uint32_t a = AndOr(fifth, 0x00100010, AndOr(v, 0x000F000F, kThousands));
    const uint32_t b = AndOr(upper << (7 - 2 * j), 0x01000100, AndOr(v, 0x00F000F0, kThousands));
    const __half2 first = __hsub2_rn(HalvesOf(a), HalvesOf(kThousands));
    const __half2 second =
        __hfma2(HalvesOf(b), HalvesOf(0x2C002C00), HalvesOf(0xD400D400));  // as of nibbles
    low = BitsOf(__hfma2(first, scale, shift));
    high = BitsOf(__hfma2(second, scale, shift));
  }
};

template <>
struct UnitRow<PackedForm::kSixes> {
  uint2 q;
  uint32_t upper;
  uint2 scales;

  __device__ __forceinline__ void Load(const uint8_t* unit, int lane) {
    q = Read<uint2>(unit + lane * 8);
    upper = Read<uint32_t>(unit + 256 + lane * 4);
    scales = Read<uint2>(unit + 384 + lane / 4 * 8);
  }
  template <int j>
  __device__ __forceinline__ void Weights(uint32_t& low, uint32_t& high) const {
    const uint32_t word = j < 2 ? q.x : q.y;
    const uint32_t v = j % 2 == 0 ? word : word >> 8;
    const __half2 both = HalvesOf(j < 2 ? scales.x : scales.y);
    const __half2 scale = j % 2 == 0 ? __low2half2(both) : __high2half2(both);
    const uint32_t a =
        AndOr(Moved<SixPlace(2 * j) - 4>(), 0x00300030, AndOr(v, 0x000F000F, kThousands));
    const uint32_t b =
        AndOr(Moved<SixPlace(2 * j + 1) - 8>(), 0x03000300, AndOr(v, 0x00F000F0, kThousands));
    const __half2 first = __hsub2_rn(HalvesOf(a), HalvesOf(0x64206420));  // 1024 + 32
    // 1024 + 16 q: a sixteenth of it, less 64 + 32.
    const __half2 second = __hfma2(HalvesOf(b), HalvesOf(0x2C002C00), HalvesOf(0xD600D600));
    low = BitsOf(__hmul2_rn(first, scale));
    high = BitsOf(__hmul2_rn(second, scale));
  }

 private:
  template <int kBits>
  __device__ __forceinline__ uint32_t Moved() const {
    return kBits >= 0 ? upper >> (kBits >= 0 ? kBits : 0) : upper << (kBits < 0 ? -kBits : 0);
  }
};

// Two units, those of rows 0-7 and 8-15, as A of four steps along K.
template <PackedForm kForm>
struct UnitPair {
  UnitRow<kForm> row[2];

  __device__ __forceinline__ void Load(const uint8_t* units, int lane) {
    row[0].Load(units, lane);
    row[1].Load(units + UnitBytes(kForm), lane);
  }
  __device__ __forceinline__ void Fragments(uint32_t (&a)[16]) const {
    Step<0>(a);
    Step<1>(a);
    Step<2>(a);
    Step<3>(a);
  }

 private:
  template <int j>
  __device__ __forceinline__ void Step(uint32_t (&a)[16]) const {
    row[0].template Weights<j>(a[4 * j], a[4 * j + 2]);
    row[1].template Weights<j>(a[4 * j + 1], a[4 * j + 3]);
  }
};

}  // namespace reprise::cuda
