// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/tensor/hopper.cuh"

// What products with packed weights need beside tensor/hopper.cuh.
namespace reprise::cuda {

// Copies `bytes` bytes, a multiple of 16 as both addresses are, to shared memory; the barrier
// counts them.
__device__ __forceinline__ void CopyBytes(uint32_t shared, const void* global, int bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}
// Four values to a place in a block of the cluster, one of whose barriers counts the bytes.
__device__ __forceinline__ void Send(uint32_t place, float4 value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(place),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
      : "memory");
}

// A word of memory that says that what was written before it is there.
__device__ __forceinline__ void StoreRelease(uint32_t* to, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// A [64, 16] from registers, four of `a`, with B [2 n, 16]^T from shared memory, both f16, for an
// accumulator of n.
#define REPRISE_SUMS(i) "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3])
#define REPRISE_SUMS_16(i) \
  REPRISE_SUMS(i), REPRISE_SUMS(i + 4), REPRISE_SUMS(i + 8), REPRISE_SUMS(i + 12)
#define REPRISE_MMA_ROWS(columns, sums, registers, operands, first_operand, ...)                  \
  __device__ __forceinline__ void WarpgroupMmaRows(float(&acc)[sums], const uint32_t* a,          \
                                                   uint64_t b, bool first) {                      \
    asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, " first_operand                                \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.f16.f16 {" registers \
                 "}, " operands ", p, 1, 1, 0;\n}"                                                \
                 : __VA_ARGS__                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(first)));          \
  }
REPRISE_MMA_ROWS(8, 4, "%0, %1, %2, %3", "{%4, %5, %6, %7}, %8", "%9", REPRISE_SUMS(0))
REPRISE_MMA_ROWS(16, 8, "%0, %1, %2, %3, %4, %5, %6, %7", "{%8, %9, %10, %11}, %12", "%13",
                 REPRISE_SUMS(0), REPRISE_SUMS(4))
REPRISE_MMA_ROWS(32, 16, "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15",
                 "{%16, %17, %18, %19}, %20", "%21", REPRISE_SUMS_16(0))
REPRISE_MMA_ROWS(64, 32,
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31",
                 "{%32, %33, %34, %35}, %36", "%37", REPRISE_SUMS_16(0), REPRISE_SUMS_16(16))
REPRISE_MMA_ROWS(128, 64,
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63",
                 "{%64, %65, %66, %67}, %68", "%69", REPRISE_SUMS_16(0), REPRISE_SUMS_16(16),
                 REPRISE_SUMS_16(32), REPRISE_SUMS_16(48))
REPRISE_MMA_ROWS(160, 80,
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79",
                 "{%80, %81, %82, %83}, %84", "%85", REPRISE_SUMS_16(0), REPRISE_SUMS_16(16),
                 REPRISE_SUMS_16(32), REPRISE_SUMS_16(48), REPRISE_SUMS_16(64))
#undef REPRISE_MMA_ROWS
#undef REPRISE_SUMS_16
#undef REPRISE_SUMS

}  // namespace reprise::cuda
