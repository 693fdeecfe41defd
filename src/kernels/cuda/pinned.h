// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/status.h"
#include "device/cuda/cuda_memory.h"
#include "kernels/cuda/view.h"

struct CUevent_st;

namespace reprise::cuda {

// Memory of the host that the GPU's kernels and copy engine read and write themselves, so that
// copies are asked for and not waited for. Grows and stays.
//
// Thread safety: none.
class Pinned {
 public:
  explicit Pinned(CudaMemory& memory);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  // At least so many bytes; what was in it is gone. Waits until what was marked is done.
  Status Prepare(size_t bytes);
  std::byte* data() const { return data_; }
  // Everything asked of the stream so far may still use it.
  void Mark(Stream stream);
  // All of that is known to be done: asking takes a microsecond, for which a decoded token waits.
  void Settle() { marked_ = false; }

 private:
  CudaMemory& memory_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool marked_ = false;
  CUevent_st* used_ = nullptr;
};

}  // namespace reprise::cuda
