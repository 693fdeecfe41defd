// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/view.h"

// What launches and kernels share: sizes of grids, vectors of 16 bytes, kernels that start early,
// the virtual lanes of kernels/cpu/table.h. For nvcc only.
namespace reprise::cuda {

inline constexpr unsigned kFullWarp = 0xFFFFFFFF;

// For what GPU this code is compiled. A kernel that needs what such a GPU has not got is empty
// there, and nobody launches it (ThisGpu).
// Since Hopper (9.0): early launches, clusters, the copy engine.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define REPRISE_SINCE_HOPPER 1
#else
#define REPRISE_SINCE_HOPPER 0
#endif
inline constexpr bool kSinceHopper = REPRISE_SINCE_HOPPER;
// Hopper's alone, and only in code for it and nothing later ("90a"): products of warpgroups.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kForWgmma = true;
#else
inline constexpr bool kForWgmma = false;
#endif

template <typename T>
constexpr T CeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

inline unsigned Blocks(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(CeilDiv(count, per_block));
}

// Rows that a grid takes in its y dimension; kernels walk on in steps of gridDim.y.
inline unsigned RowBlocks(int64_t rows) {
  return static_cast<unsigned>(rows < 65535 ? rows : 65535);
}

inline bool Aligned16(const void* data, int64_t stride) {
  return (reinterpret_cast<uintptr_t>(data) & 15) == 0 && stride % 4 == 0;
}

// A launch as a line of code: Kernel::Start with the arguments as the kernel declares them.
template <typename... Parameters, typename... Arguments>
void LaunchAs(const LaunchNeeds& needs, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
              Stream stream, Arguments&&... arguments) {
  [&](Parameters... declared) {
    void* places[] = {const_cast<void*>(static_cast<const void*>(&declared))...};
    Kernel::Of(reinterpret_cast<const void*>(kernel)).Start(needs, grid, threads, stream, places);
  }(static_cast<Arguments&&>(arguments)...);
}

// A launch that starts when everything in front of it has ended.
template <typename... Parameters, typename... Arguments>
void LaunchInTurn(void (*kernel)(Parameters...), dim3 grid, dim3 threads, size_t shared,
                  Stream stream, Arguments&&... arguments) {
  LaunchAs({.shared = shared}, kernel, grid, threads, stream,
           static_cast<Arguments&&>(arguments)...);
}

// A launch whose blocks may start while the kernel before it still runs, on GPUs that can. Until
// they have called WaitForInputs they may read only what no kernel of the step writes: weights, and
// state that nothing else in the step touches; and the arrays of the step (README.md, invariant 3).
// Every block must call it, whatever it does. All of them want as much shared memory as there is.
// In clusters of `team` blocks, if it is more than one: where ThisGpu has clusters.
template <typename... Parameters, typename... Arguments>
void LaunchTeamsEarly(int team, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                      size_t shared, Stream stream, Arguments&&... arguments) {
  LaunchAs({shared, team, true, LaunchNeeds::Division::kShared}, kernel, grid, threads, stream,
           static_cast<Arguments&&>(arguments)...);
}
template <typename... Parameters, typename... Arguments>
void LaunchEarly(void (*kernel)(Parameters...), dim3 grid, dim3 threads, size_t shared,
                 Stream stream, Arguments&&... arguments) {
  LaunchTeamsEarly(1, kernel, grid, threads, shared, stream,
                   static_cast<Arguments&&>(arguments)...);
}
__device__ __forceinline__ void WaitForInputs() {
#if REPRISE_SINCE_HOPPER
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Stays before the wait, where the compiler would bring it to its use.
__device__ __forceinline__ float LoadEarly(const float* from) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}
// The next kernel may take the room that this one leaves. At any time: it waits for all of this
// one, and so for everything that this one waits for.
__device__ __forceinline__ void LetNextStart() {
#if REPRISE_SINCE_HOPPER
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The 16 virtual lanes of a reduction lie in 16 neighbouring threads of a warp (all of them must
// call). Every thread gets the sum: the tree is that of the table, as addition commutes.
__device__ inline float SumLanes(float lane) {
#pragma unroll
  for (int half = 8; half > 0; half /= 2) lane += __shfl_xor_sync(kFullWarp, lane, half, 16);
  return lane;
}

}  // namespace reprise::cuda
