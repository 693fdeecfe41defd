// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Copies from global to shared memory that run on their own, in groups.
namespace reprise::cuda {

// Those of 16 bytes are neighbours of others that are asked for in the same turn: the last cache
// brings whole lines.
template <int kBytes>
__device__ void CopyAsync(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n" ::"r"(to), "l"(global)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;\n" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  }
}
// Zeros where not `valid`; the address is not read then.
template <int kBytes>
__device__ void CopyAsync(void* shared, const void* global, bool valid) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(global),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(global),
                 "n"(kBytes), "r"(bytes)
                 : "memory");
  }
}
// Into the last cache, where it is worth the while.
__device__ inline void PrefetchL2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(global));
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits until at most the latest kPending groups are on their way.
template <int kPending>
__device__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace reprise::cuda
