// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/reference/gpu/tensor_core.h"

// The instructions that kernels with tensor cores are made of. Fragments of m16n8k16, thread
// (g, t) = (lane / 4, lane % 4):
//  A [16, 16]  a[0]: row g, k 2t..; a[1]: row g + 8, k 2t..; a[2], a[3]: the same, k 2t + 8..
//  B [16, 8]   b[0]: column g, k 2t..; b[1]: k 2t + 8..
//  C [16, 8]   c[0], c[1]: row g, columns 2t, 2t + 1; c[2], c[3]: row g + 8
namespace reprise::cuda {

using reference::Half;

template <Half kType>
__device__ __forceinline__ void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (kType == Half::kBF16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Four 8x8 matrices of 16-bit values; lane i of each group of 8 gives the address of a row.
__device__ __forceinline__ void LoadMatrix4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row)));
}
__device__ __forceinline__ void LoadMatrix4Transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row)));
}

// 16 bytes from global to shared memory; zeros where not `valid` (the address is not read then).
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void CopyAsync8(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(SharedAddress(shared)), "l"(global)
               : "memory");
}
__device__ __forceinline__ void CommitAsync() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void WaitAsync() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <Half kType>
__device__ __forceinline__ bool IsFinite16(uint16_t bits) {
  constexpr uint16_t kExponent = kType == Half::kBF16 ? 0x7F80 : 0x7C00;
  return (bits & kExponent) != kExponent;
}

// Two floats rounded to nearest even; `low` in the low half.
template <Half kType>
__device__ __forceinline__ uint32_t Pack2(float low, float high) {
  uint32_t packed;
  if constexpr (kType == Half::kBF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}
// As reference::RoundRow: the power of two that keeps a row with this largest magnitude finite.
__device__ __forceinline__ float RowScale(float largest) {
  const bool large = largest >= 65520.0f && !isinf(largest);
  return large ? ldexpf(1.0f, ilogbf(largest) + 1 - 15) : 1.0f;
}
template <Half kType>
__device__ __forceinline__ uint16_t Round16(float x) {
  return static_cast<uint16_t>(Pack2<kType>(x, 0.0f));
}

}  // namespace reprise::cuda
