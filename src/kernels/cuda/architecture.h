// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

namespace reprise::cuda {

// Bytes of shared memory that a block may ask for on every GPU since 8.0: what is launched there
// without a question fits.
inline constexpr size_t kBlockSharedLeast = 99 << 10;

// What a GPU has and its kernels were compiled for. Every choice among forms of a kernel asks for
// what the form needs, never for the name of a GPU.
struct Architecture {
  bool known = false;  // this program has code for it
  // Since Hopper (9.0).
  bool early_launch = false;  // kernels that start while the one in front still runs
  bool clusters = false;      // blocks that write to each other's shared memory
  bool copy_engine = false;   // copies of boxes and runs, behind barriers that count bytes
  // Hopper's alone.
  bool wgmma = false;  // products of warpgroups, and registers that they pass on
  int multiprocessors = 0;
  size_t block_shared = 0;  // bytes of shared memory that a block may ask for

  // The same where two blocks shall fit on a multiprocessor, less what kernels have of it beside.
  size_t half_shared() const { return std::min<size_t>(112 << 10, block_shared - (1 << 10)); }
  // Whether stacks of quantised matrices, as those of experts are, meet 16-bit activations here, as
  // single ones do everywhere (packed/): part of the numerics.
  bool packs_stacks() const { return wgmma; }
};
// Of the GPU that this thread uses (UseGpu); each is asked once. For tests: where the environment
// has REPRISE_GPU_AS, a compute capability such as 8.6, it has nothing that such a GPU has not got.
const Architecture& ThisGpu();

// `gpu` without what a GPU of this compute capability has not got; none for which there is no code.
std::optional<Architecture> As(Architecture gpu, std::string_view capability);

}  // namespace reprise::cuda
