// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/tensor/mma.cuh"

// Products of a whole warpgroup: acc (+)= A [64, 16] B; `first`: without what was in acc. acc[4 j +
// e] is row 16 w + g + 8 (e / 2), column 8 j + 2 t + e % 2 of the warpgroup's tile. They run on
// after the call: WarpgroupFence before the first, WarpgroupCommit and WarpgroupWait behind the
// last.
namespace reprise::cuda {

// The instruction has its sizes, its type and the numbers of its operands in its text.
#define REPRISE_WGMMA_REGISTERS_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define REPRISE_WGMMA_REGISTERS_32 \
  REPRISE_WGMMA_REGISTERS_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REPRISE_WGMMA_REGISTERS_40 \
  REPRISE_WGMMA_REGISTERS_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39"
#define REPRISE_WGMMA_REGISTERS_48 \
  REPRISE_WGMMA_REGISTERS_40       \
  ", %40, %41, %42, %43, %44, %45, %46, %47"
#define REPRISE_WGMMA_REGISTERS_52 \
  REPRISE_WGMMA_REGISTERS_48       \
  ", %48, %49, %50, %51"
#define REPRISE_WGMMA_REGISTERS_56 \
  REPRISE_WGMMA_REGISTERS_52       \
  ", %52, %53, %54, %55"
#define REPRISE_WGMMA_REGISTERS_64 \
  REPRISE_WGMMA_REGISTERS_56       \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define REPRISE_WGMMA_REGISTERS_68 \
  REPRISE_WGMMA_REGISTERS_64       \
  ", %64, %65, %66, %67"
#define REPRISE_WGMMA_REGISTERS_76 \
  REPRISE_WGMMA_REGISTERS_64       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75"
#define REPRISE_WGMMA_REGISTERS_84 \
  REPRISE_WGMMA_REGISTERS_76       \
  ", %76, %77, %78, %79, %80, %81, %82, %83"
#define REPRISE_WGMMA_REGISTERS_96 \
  REPRISE_WGMMA_REGISTERS_84       \
  ", %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REPRISE_WGMMA_REGISTERS_104 \
  REPRISE_WGMMA_REGISTERS_96        \
  ", %96, %97, %98, %99, %100, %101, %102, %103"
#define REPRISE_WGMMA_SUMS(i) "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3])
#define REPRISE_WGMMA_SUMS_8(i) REPRISE_WGMMA_SUMS(i), REPRISE_WGMMA_SUMS(i + 4)
#define REPRISE_WGMMA_SUMS_16(i) REPRISE_WGMMA_SUMS_8(i), REPRISE_WGMMA_SUMS_8(i + 8)
#define REPRISE_WGMMA_SUMS_32(i) REPRISE_WGMMA_SUMS_16(i), REPRISE_WGMMA_SUMS_16(i + 16)
#define REPRISE_WGMMA(columns, type, registers, operands, add, ...)                                \
  asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, " add                                             \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" registers \
               "}, " operands ";\n}"                                                               \
               : __VA_ARGS__)

// B [2 n, 16]^T in f16 for an accumulator of n; both from shared memory.
#define REPRISE_WGMMA_F16(columns, sums, next, last, ...)                                    \
  __device__ __forceinline__ void WarpgroupMmaF16(float(&acc)[sums], uint64_t a, uint64_t b, \
                                                  bool first) {                              \
    REPRISE_WGMMA(#columns, "f16", REPRISE_WGMMA_REGISTERS_##sums,                           \
                  "%" #sums ", %" #next ", p, 1, 1, 0, 0", "%" #last, __VA_ARGS__            \
                  : "l"(a), "l"(b), "r"(int(first)));                                        \
  }
REPRISE_WGMMA_F16(32, 16, 17, 18, REPRISE_WGMMA_SUMS_16(0))
REPRISE_WGMMA_F16(64, 32, 33, 34, REPRISE_WGMMA_SUMS_32(0))
REPRISE_WGMMA_F16(80, 40, 41, 42, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_8(32))
REPRISE_WGMMA_F16(96, 48, 49, 50, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_16(32))
REPRISE_WGMMA_F16(104, 52, 53, 54, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_16(32),
                  REPRISE_WGMMA_SUMS(48))
REPRISE_WGMMA_F16(112, 56, 57, 58, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_16(32),
                  REPRISE_WGMMA_SUMS_8(48))
REPRISE_WGMMA_F16(128, 64, 65, 66, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_32(32))
REPRISE_WGMMA_F16(136, 68, 69, 70, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_32(32),
                  REPRISE_WGMMA_SUMS(64))
REPRISE_WGMMA_F16(152, 76, 77, 78, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_32(32),
                  REPRISE_WGMMA_SUMS_8(64), REPRISE_WGMMA_SUMS(72))
REPRISE_WGMMA_F16(168, 84, 85, 86, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_32(32),
                  REPRISE_WGMMA_SUMS_16(64), REPRISE_WGMMA_SUMS(80))
REPRISE_WGMMA_F16(192, 96, 97, 98, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_32(32),
                  REPRISE_WGMMA_SUMS_32(64))
REPRISE_WGMMA_F16(208, 104, 105, 106, REPRISE_WGMMA_SUMS_32(0), REPRISE_WGMMA_SUMS_32(32),
                  REPRISE_WGMMA_SUMS_32(64), REPRISE_WGMMA_SUMS_8(96))
#undef REPRISE_WGMMA_F16
// B [64, 16]^T; both from shared memory.
template <Half kType>
__device__ __forceinline__ void WarpgroupMma64(float (&acc)[32], uint64_t a, uint64_t b,
                                               bool first) {
  if constexpr (kType == Half::kBF16) {
    REPRISE_WGMMA("64", "bf16", REPRISE_WGMMA_REGISTERS_32, "%32, %33, p, 1, 1, 0, 0", "%34",
                  REPRISE_WGMMA_SUMS_32(0)
                  : "l"(a), "l"(b), "r"(int(first)));
  } else {
    REPRISE_WGMMA("64", "f16", REPRISE_WGMMA_REGISTERS_32, "%32, %33, p, 1, 1, 0, 0", "%34",
                  REPRISE_WGMMA_SUMS_32(0)
                  : "l"(a), "l"(b), "r"(int(first)));
  }
}
// A from registers; B [16, 64] from shared memory, rows of 64 values, or B [64, 16]^T.
template <Half kType, bool kTransposed = false>
__device__ __forceinline__ void WarpgroupMmaRows64(float (&acc)[32], const uint32_t (&a)[4],
                                                   uint64_t b, bool first) {
  if constexpr (kType == Half::kBF16) {
    if constexpr (kTransposed) {
      REPRISE_WGMMA("64", "bf16", REPRISE_WGMMA_REGISTERS_32,
                    "{%32, %33, %34, %35}, %36, p, 1, 1, 0", "%37", REPRISE_WGMMA_SUMS_32(0)
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(first)));
    } else {
      REPRISE_WGMMA("64", "bf16", REPRISE_WGMMA_REGISTERS_32,
                    "{%32, %33, %34, %35}, %36, p, 1, 1, 1", "%37", REPRISE_WGMMA_SUMS_32(0)
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(first)));
    }
  } else {
    if constexpr (kTransposed) {
      REPRISE_WGMMA("64", "f16", REPRISE_WGMMA_REGISTERS_32,
                    "{%32, %33, %34, %35}, %36, p, 1, 1, 0", "%37", REPRISE_WGMMA_SUMS_32(0)
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(first)));
    } else {
      REPRISE_WGMMA("64", "f16", REPRISE_WGMMA_REGISTERS_32,
                    "{%32, %33, %34, %35}, %36, p, 1, 1, 1", "%37", REPRISE_WGMMA_SUMS_32(0)
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(first)));
    }
  }
}
// A from registers, B [8, 16]^T from shared memory, as it is (no swizzle).
template <Half kType>
__device__ __forceinline__ void WarpgroupMmaRows8(float (&acc)[4], const uint32_t (&a)[4],
                                                  uint64_t b, bool first) {
  if constexpr (kType == Half::kBF16) {
    REPRISE_WGMMA("8", "bf16", "%0, %1, %2, %3", "{%4, %5, %6, %7}, %8, p, 1, 1, 0", "%9",
                  REPRISE_WGMMA_SUMS(0)
                  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(first)));
  } else {
    REPRISE_WGMMA("8", "f16", "%0, %1, %2, %3", "{%4, %5, %6, %7}, %8, p, 1, 1, 0", "%9",
                  REPRISE_WGMMA_SUMS(0)
                  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(first)));
  }
}

// Integers: c = A [64, 32] B [32, 32]^T, A from registers, B from shared memory, rows of 128 bytes.
__device__ __forceinline__ void WarpgroupMmaBytes32(int (&c)[16], const uint32_t (&a)[4],
                                                    uint64_t b) {
#define REPRISE_WGMMA_OUT(i) "=r"(c[i]), "=r"(c[i + 1]), "=r"(c[i + 2]), "=r"(c[i + 3])
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {" REPRISE_WGMMA_REGISTERS_16
      "}, {%16, %17, %18, %19}, %20, p;\n}"
      : REPRISE_WGMMA_OUT(0), REPRISE_WGMMA_OUT(4), REPRISE_WGMMA_OUT(8), REPRISE_WGMMA_OUT(12)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#undef REPRISE_WGMMA_OUT
}

#undef REPRISE_WGMMA
#undef REPRISE_WGMMA_SUMS_32
#undef REPRISE_WGMMA_SUMS_16
#undef REPRISE_WGMMA_SUMS
#undef REPRISE_WGMMA_REGISTERS_64
#undef REPRISE_WGMMA_REGISTERS_48
#undef REPRISE_WGMMA_REGISTERS_32
#undef REPRISE_WGMMA_REGISTERS_16

}  // namespace reprise::cuda
