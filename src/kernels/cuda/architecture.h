// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace reprise::cuda {

// What a GPU has, and for what its kernels were compiled.
struct Architecture {
  bool known = false;   // this program has code for it
  bool hopper = false;  // with wgmma, the copy engine, clusters and kernels that start early
  int multiprocessors = 0;
  size_t block_shared = 0;  // bytes of shared memory that a block may ask for

  // The same where two blocks shall fit on a multiprocessor, less what kernels have of it beside.
  size_t half_shared() const { return std::min<size_t>(112 << 10, block_shared - (1 << 10)); }
};
// Of the GPU that this thread uses (UseGpu); each is asked once.
const Architecture& ThisGpu();

}  // namespace reprise::cuda
