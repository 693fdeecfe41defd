// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "tensor/kv_row.h"

// K/V of type q8_0 on the device. Of a page, K and V of a head are codes [64, channels] and, behind
// them, scales [64, groups]. What codes and scales are, and that an element is their product
// rounded to f16, is specified in kernels/cpu/table.h.
namespace reprise::cuda {

inline constexpr int kPageRows = 64;

// K or V of a head in a page.
constexpr size_t PartBytes(int channels) { return kPageRows * KvRowBytes(DType::kQ8_0, channels); }

// Where the codes of a head lie, `part` being K or V of a layer in a block; and its scales.
template <typename Byte>
__device__ __forceinline__ Byte* CodesOfHead(Byte* part, int head, int channels) {
  return part + int64_t{head} * int64_t(PartBytes(channels));
}
__device__ __forceinline__ uint16_t* ScalesOfHead(std::byte* codes, int channels) {
  return reinterpret_cast<uint16_t*>(codes + int64_t{kPageRows} * channels);
}
__device__ __forceinline__ const uint16_t* ScalesOfHead(const std::byte* codes, int channels) {
  return reinterpret_cast<const uint16_t*>(codes + int64_t{kPageRows} * channels);
}

__device__ __forceinline__ float ElementOfQ8(uint16_t scale, int8_t code) {
  return __half2float(__float2half_rn(__half2float(__ushort_as_half(scale)) * float(code)));
}

// A group, one channel a lane of the whole warp; lanes that have none give 0 and store nothing.
// Returns whether its scale, and so all of it, is finite.
__device__ __forceinline__ bool StoreGroup(float x, bool has_channel, int8_t* code,
                                           uint16_t* scale) {
  // NaN is larger than infinity is larger than any number.
  const uint32_t most = __reduce_max_sync(kFullWarp, __float_as_uint(x) & 0x7FFFFFFF);
  uint16_t d = __half_as_ushort(__float2half_rn(__uint_as_float(most) / 127.0f));
  if (d >= 0x7C00) d = 0x7E00;
  float q = 0;
  if (d != 0 && d != 0x7E00) {
    q = x * (1.0f / __half2float(__ushort_as_half(d)));
    q = q < -127.0f ? -127.0f : q > 127.0f ? 127.0f : q;
  }
  if (has_channel) *code = static_cast<int8_t>(__float2int_rn(q));
  if (threadIdx.x % 32 == 0) *scale = d;
  return d != 0x7E00;
}

// K or V of a head to shared memory, as they lie, by `threads` threads; nothing waits for it.
__device__ __forceinline__ void StagePart(std::byte* to, const std::byte* from, int channels,
                                          int thread, int threads) {
  const int count = int(PartBytes(channels) / 16);
  for (int i = thread; i < count; i += threads) CopyAsync16(to + 16 * i, from + 16 * i, true);
}

// 16 codes of one group, and their scale.
struct CodesOf16 {
  uint4 codes;
  uint32_t scale;
};

// Channels [first, first + 16) of a row; those from `channels` on are 0.
__device__ __forceinline__ CodesOf16 ReadCodes(const std::byte* codes, int channels, int row,
                                               int first) {
  CodesOf16 read = {};
  if (first >= channels) return read;
  const std::byte* from = codes + row * channels + first;
  if (channels % 16 == 0) {
    read.codes = *reinterpret_cast<const uint4*>(from);
  } else {
    const auto four = [&](int at) {
      uint32_t word = 0;
      for (int i = 0; i < 4; ++i) {
        if (first + at + i < channels) word |= uint32_t(from[at + i]) << 8 * i;
      }
      return word;
    };
    read.codes = make_uint4(four(0), four(4), four(8), four(12));
  }
  read.scale = ScalesOfHead(codes, channels)[row * int(KvGroups(channels)) + first / kKvGroup];
  return read;
}

// Elements of four codes. A byte behind 0x64 is 1024 plus the byte as f16: exact, as is what is
// left when 1152 is taken away. The product is rounded once.
__device__ __forceinline__ uint2 ElementsOf4(uint32_t codes, __half2 scale) {
  const uint32_t shifted = codes ^ 0x80808080u;  // plus 128
  const __half2 offset = __half2half2(__ushort_as_half(0x6480));
  const auto of = [&](uint32_t selector) {
    const uint32_t pair = __byte_perm(shifted, 0x64646464u, selector);
    const __half2 code = __hsub2_rn(*reinterpret_cast<const __half2*>(&pair), offset);
    const __half2 element = __hmul2_rn(code, scale);
    return *reinterpret_cast<const uint32_t*>(&element);
  };
  return make_uint2(of(0x4140), of(0x4342));
}

// Calls store(half, value) for the lower and the upper eight elements, as f16.
template <typename Store>
__device__ __forceinline__ void Widen(const CodesOf16& read, const Store& store) {
  const __half2 scale = __half2half2(__ushort_as_half(static_cast<uint16_t>(read.scale)));
  const auto eight = [&](uint32_t low, uint32_t high) {
    const uint2 a = ElementsOf4(low, scale), b = ElementsOf4(high, scale);
    return make_uint4(a.x, a.y, b.x, b.y);
  };
  store(0, eight(read.codes.x, read.codes.y));
  store(1, eight(read.codes.z, read.codes.w));
}

}  // namespace reprise::cuda
