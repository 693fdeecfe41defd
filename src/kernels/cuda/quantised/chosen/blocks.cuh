// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantised/chosen/chosen.h"

// What kernels that take one row through its experts share, whatever form the weights have: how
// work is divided among blocks, and whose weights a slot has.
namespace reprise::cuda::chosen {

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kSlots = 32;      // at most
constexpr int kColumns = 4096;  // of an input, at most: one stage, and eight a thread
constexpr int kDepth = 4;       // stages that a warp has asked for, at most
// Just less than half of a multiprocessor's, where there is as much: a block of the next kernel
// waits beside each.
inline size_t BlockShared() { return ThisGpu().half_shared(); }

// x / by, for x * by < 2^32.
struct Divisor {
  int by;
  uint32_t inverse;

  __host__ static Divisor Of(int by) { return {by, uint32_t((uint64_t{1} << 32) / by + 1)}; }
  __device__ __forceinline__ int Divide(int x) const {
    return by == 1 ? x : static_cast<int>(__umulhi(static_cast<unsigned>(x), inverse));
  }
};

// `count` pieces of work for the blocks, in whole ones.
struct Division {
  int each, more;  // pieces of a block, and blocks that have one more

  __device__ int Begin(int block) const { return block * each + min(block, more); }
  __device__ int Count(int block) const { return each + (block < more ? 1 : 0); }
  __host__ int most() const { return each + (more > 0 ? 1 : 0); }
};

// expert_of: of slots, shared. The plan was written by another kernel of this step, maybe just now:
// it is read where all see it, which is not the first cache.
__device__ __forceinline__ void FindExperts(const int32_t* begin, int experts, int* expert_of) {
#pragma unroll 1
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) {
    const int first = __ldcg(begin + e), end = __ldcg(begin + e + 1);
    for (int s = first; s < end; ++s) expert_of[s] = e;
  }
}

inline int BlocksFor(int pieces) { return std::min(pieces, ThisGpu().multiprocessors); }
inline Division Divide(int pieces) {
  const int blocks = BlocksFor(pieces);
  return {pieces / blocks, pieces % blocks};
}

// Where a kernel is launched; or only whether there is room for it is asked.
struct Target {
  Stream stream = nullptr;
  bool launch = false;
};

}  // namespace reprise::cuda::chosen

namespace reprise::cuda {

// Whether there is a kernel, or its launch; packed/chosen.cu.
bool LaunchChosenPacked(const chosen::Target& target, const ChosenGates& gates);
bool LaunchChosenPacked(const chosen::Target& target, const ChosenSum& sum);

}  // namespace reprise::cuda
