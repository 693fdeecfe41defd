// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/wgmma.cuh"

// What kernels for Hopper add to mma.cuh: products of whole warpgroups (wgmma.cuh), copies by the
// copy engine, and the barriers between them.
namespace reprise::cuda {

__device__ __forceinline__ void WarpgroupFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WarpgroupCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void WarpgroupWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Rows of 128 bytes in shared memory, swizzled by 128 bytes, K along the row: as a copy with a map
// of tensor_map.h leaves them. The tile begins at a multiple of 1024 bytes; a step of 16 along K is
// 32 bytes on.
__device__ __forceinline__ uint64_t TileDescriptor(uint32_t tile) {
  constexpr uint64_t kEightRows = 1024 >> 4;
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return uint64_t((tile & 0x3FFFF) >> 4) | uint64_t{1} << 16 | kEightRows << 32 | kSwizzle128;
}
__device__ __forceinline__ uint64_t TileDescriptor(const void* tile) {
  return TileDescriptor(SharedAddress(tile));
}

__device__ __forceinline__ void InitBarrier(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(count));
}
// Behind InitBarrier, by the thread that called it, where the copy engine or another block of the
// cluster arrives at them: threads of this block see them behind __syncthreads() alone.
__device__ __forceinline__ void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void ExpectBytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void ExpectBytes(uint64_t* barrier, int bytes) {
  ExpectBytes(SharedAddress(barrier), bytes);
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void Arrive(uint64_t* barrier) { Arrive(SharedAddress(barrier)); }
// At the barrier that lies at this place in block `rank` of the cluster. Nothing that the thread
// wrote itself is seen behind it: that would wait for all of its memory.
__device__ __forceinline__ void ArriveAt(uint32_t barrier, int rank) {
  asm volatile(
      "{.reg .b32 place;\nmapa.shared::cluster.u32 place, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [place];}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// All threads of all blocks of a cluster have come here; what they wrote is another matter.
__device__ __forceinline__ void MeetCluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::
                   : "memory");
}
// The same in two halves, behind which other blocks' barriers may be used, too: what lies between
// need not wait. No memory has to be in order for it: that would wait for all that is on its way on
// this multiprocessor.
__device__ __forceinline__ void SayBegun() {
  asm volatile("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed.aligned;" ::
                   : "memory");
}
__device__ __forceinline__ void WaitForCluster() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
// Where something of this block's shared memory lies in block `rank` of the cluster.
__device__ __forceinline__ uint32_t PlaceIn(int rank, const void* shared) {
  uint32_t place;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(SharedAddress(shared)), "r"(rank));
  return place;
}
// To a place in a block of the cluster, one of whose barriers counts the bytes.
__device__ __forceinline__ void Send(uint32_t place, float value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(place),
      "f"(value), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void Send(uint32_t place, float2 value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          place),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
}
// How often a warp arrives at a barrier for what its threads have read or written. Once, behind
// __syncwarp(); but compute-sanitizer's racecheck follows only what the arriving thread did itself,
// so in a build for it (README.md of the backend) every thread arrives.
#ifdef REPRISE_RACECHECK
inline constexpr int kWarpArrivals = 32;
#else
inline constexpr int kWarpArrivals = 1;
#endif
__device__ __forceinline__ void ArriveAsWarp(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 < kWarpArrivals) Arrive(barrier);
}
// Arrives when the copies that this thread has asked for so far (cp.async) are there.
__device__ __forceinline__ void ArriveWhenCopied(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}
// Hopper's wait sleeps; before it one could only ask.
#if REPRISE_SINCE_HOPPER
#define REPRISE_BARRIER_WAIT "mbarrier.try_wait.parity.shared::cta.b64"
#else
#define REPRISE_BARRIER_WAIT "mbarrier.test_wait.parity.shared.b64"
#endif
__device__ __forceinline__ void WaitBarrier(uint32_t barrier, int parity) {
  asm volatile("{\n.reg .pred done;\nagain:\n" REPRISE_BARRIER_WAIT
               " done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}
__device__ __forceinline__ void WaitBarrier(uint64_t* barrier, int parity) {
  WaitBarrier(SharedAddress(barrier), parity);
}

// The same for a whole warp, which is known to be together again behind it.
__device__ __forceinline__ void WarpWaitBarrier(uint64_t* barrier, int parity) {
  int done = 0;
  do {
    asm volatile("{\n.reg .pred done;\n" REPRISE_BARRIER_WAIT
                 " done, [%1], %2;\n"
                 "selp.b32 %0, 1, 0, done;\n}"
                 : "=r"(done)
                 : "r"(SharedAddress(barrier)), "r"(parity)
                 : "memory");
  } while (!__all_sync(~0u, done));
}

#undef REPRISE_BARRIER_WAIT

// Copies the box at (column, row) of a map to shared memory; the barrier counts its bytes.
__device__ __forceinline__ void CopyBox(uint32_t shared, const void* map, int column, int row,
                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}
__device__ __forceinline__ void CopyBox(void* shared, const void* map, int column, int row,
                                        uint64_t* barrier) {
  CopyBox(SharedAddress(shared), map, column, row, SharedAddress(barrier));
}
// The same of a map with three dimensions.
__device__ __forceinline__ void CopyBox(uint32_t shared, const void* map, int column, int row,
                                        int plane, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(plane)
      : "memory");
}
// The same to this place in each of `blocks`, a bit for every block of the cluster, and their
// barriers.
__device__ __forceinline__ void CopyBoxTo(uint16_t blocks, uint32_t shared, const void* map,
                                          int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "h"(blocks)
      : "memory");
}

// Writes a box of shared memory to the place (column, row) of a map; what lies outside is left out.
__device__ __forceinline__ void StoreBox(const void* map, const void* shared, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(SharedAddress(shared)), "r"(column), "r"(row)
      : "memory");
}
__device__ __forceinline__ void CommitStores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Returns when the shared memory of all stores so far has been read.
__device__ __forceinline__ void WaitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Makes what threads wrote to shared memory visible to the copy engine.
__device__ __forceinline__ void FenceCopies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// A barrier of the 128 threads of one warpgroup; `number` is 1 or more.
__device__ __forceinline__ void WarpgroupBarrier(int number) {
  asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory");
}

}  // namespace reprise::cuda
