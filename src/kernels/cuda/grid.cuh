// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Small things that launches share.
namespace reprise::cuda {

template <typename T>
constexpr T CeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

// Dynamic shared memory above 48 KiB has to be asked for once per kernel.
template <typename Kernel>
void AllowShared(Kernel kernel, size_t bytes) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
}

}  // namespace reprise::cuda
