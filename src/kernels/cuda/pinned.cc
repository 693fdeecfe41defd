// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/pinned.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "base/check.h"

namespace reprise::cuda {

Pinned::Pinned(CudaMemory& memory) : memory_(memory) {
  memory_.Use();
  CHECK(cudaEventCreateWithFlags(&used_, cudaEventDisableTiming) == cudaSuccess);
}

Pinned::~Pinned() {
  memory_.Use();
  cudaEventDestroy(used_);
  cudaFreeHost(data_);
}

Status Pinned::Prepare(size_t bytes) {
  if (marked_) CHECK(cudaEventSynchronize(used_) == cudaSuccess);
  marked_ = false;
  if (bytes <= bytes_) return OkStatus();
  void* grown = nullptr;
  const size_t wanted = std::max(bytes, 2 * bytes_);
  if (memory_.refusals().Refused() || cudaMallocHost(&grown, wanted) != cudaSuccess) {
    cudaGetLastError();
    return ResourceExhausted("the host has no " + std::to_string(wanted >> 20) +
                             " MiB of memory that the GPU can reach");
  }
  cudaFreeHost(data_);
  data_ = static_cast<std::byte*>(grown);
  bytes_ = wanted;
  return OkStatus();
}

void Pinned::Mark(Stream stream) {
  CHECK(cudaEventRecord(used_, stream) == cudaSuccess);
  marked_ = true;
}

}  // namespace reprise::cuda
