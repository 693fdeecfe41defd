// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/cuda/tensor/product_many.h"
#include "kernels/cuda/tensor/tensor_map.h"
#include "kernels/cuda/tensor/tiles.cuh"

// Blocks that stay: each takes tile after tile of 128 rows of x by 128 rows of the matrix. One
// warpgroup asks for the operands, stage by stage; two compute 64 rows each. After every slice of
// 512 along K the accumulators are added to the totals and begin anew.
namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kTileRows = 128;
constexpr int kTileColumns = 128;
constexpr int kDepth = 64;
constexpr int kStages = 5;
constexpr int kSliceStages = kTensorSlice / kDepth;
constexpr int kConsumers = 2;  // warpgroups
constexpr int kThreads = (1 + kConsumers) * 128;
constexpr int kRowsBytes = kTileRows * kDepth * 2;
constexpr int kColumnsBytes = kTileColumns * kDepth * 2;
constexpr int kStageBytes = kRowsBytes + kColumnsBytes;
constexpr int kOutBytes = kTileRows * kTileColumns * 4;
constexpr size_t kShared = size_t{kStages} * kStageBytes + kOutBytes + 1024;  // and room to align
// Tiles along the rows of x that are run together, so that what they read stays in the L2 cache.
constexpr int kBand = 16;

struct Call {
  HalfRows x;
  HalfMatrix weight;
  HalfGroups groups;
  const float* bias;
  View out;
  int row_tiles;  // at most
  int column_tiles;
  int steps;   // of kDepth along K
  bool boxes;  // results leave through the copy engine
};

// Tile number `index`: bands of kBand row tiles, inside a band column by column.
struct TilePlace {
  int row;
  int column;
};
__device__ __forceinline__ TilePlace PlaceOf(const Call& call, int index) {
  const int band = index / (kBand * call.column_tiles);
  const int first = band * kBand;
  const int width = min(kBand, call.row_tiles - first);
  const int inside = index - band * kBand * call.column_tiles;
  return {first + inside % width, inside / width};
}

__global__ void __launch_bounds__(kThreads, 1)
    ManyKernel(const __grid_constant__ CUtensorMap x_map,
               const __grid_constant__ CUtensorMap weight_map,
               const __grid_constant__ CUtensorMap out_map, const __grid_constant__ Call call) {
  if (!kForHopper) return;
  extern __shared__ uint8_t raw[];
  uint8_t* stages =
      reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~1023ull);
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      InitBarrier(&full[s], 1);
      InitBarrier(&empty[s], kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  const int tile_count = call.row_tiles * call.column_tiles;
  int stage = 0, parity = 0;
  const auto next_stage = [&] {
    if (++stage == kStages) stage = 0, parity ^= 1;
  };

  if (warpgroup == kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x / 32 % 4 != 0) return;
    for (int index = blockIdx.x; index < tile_count; index += gridDim.x) {
      const TilePlace place = PlaceOf(call, index);
      const Tile tile = TileOf<kTileRows>(call.x, call.groups, place.row);
      if (tile.matrix < 0 || tile.begin >= tile.end) continue;
      if (threadIdx.x % 32 == 0) {
        const int row = static_cast<int>(tile.begin);
        const int column =
            static_cast<int>(tile.matrix * call.weight.rows) + place.column * kTileColumns;
        for (int step = 0; step < call.steps; ++step) {
          WaitBarrier(&empty[stage], parity ^ 1);
          uint8_t* to = stages + stage * kStageBytes;
          ExpectBytes(&full[stage], kStageBytes);
          CopyBox(to, &x_map, step * kDepth, row, &full[stage]);
          CopyBox(to + kRowsBytes, &weight_map, step * kDepth, column, &full[stage]);
          next_stage();
        }
      }
      __syncwarp();
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int warp_row = warpgroup * 64 + threadIdx.x / 32 % 4 * 16;
  float* mine = reinterpret_cast<float*>(stages + kStages * kStageBytes) +
                warpgroup * 64 * kTileColumns;  // its results on their way out
  for (int index = blockIdx.x; index < tile_count; index += gridDim.x) {
    const TilePlace place = PlaceOf(call, index);
    const Tile tile = TileOf<kTileRows>(call.x, call.groups, place.row);
    if (tile.matrix < 0 || tile.begin >= tile.end) continue;
    float acc[64];
    float total[64];
    for (int slice = 0; slice * kSliceStages < call.steps; ++slice) {
      const int count = min(kSliceStages, call.steps - slice * kSliceStages);
      int previous = 0;
      for (int s = 0; s < count; ++s) {
        WaitBarrier(&full[stage], parity);
        const uint8_t* at = stages + stage * kStageBytes;
        const uint64_t a = TileDescriptor(at + warpgroup * 64 * kDepth * 2);
        const uint64_t b = TileDescriptor(at + kRowsBytes);
        WarpgroupFence();
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) {
          WarpgroupMma128<Half::kF16>(acc, a + 2 * k, b + 2 * k, s == 0 && k == 0);
        }
        WarpgroupCommit();
        if (s > 0) {
          WarpgroupWait<1>();
          if (threadIdx.x % 128 == 0) Arrive(&empty[previous]);
        }
        previous = stage;
        next_stage();
      }
      WarpgroupWait<0>();
      if (threadIdx.x % 128 == 0) Arrive(&empty[previous]);
#pragma unroll
      for (int i = 0; i < 64; ++i) total[i] = slice == 0 ? acc[i] : total[i] + acc[i];
    }
    const int64_t first_column = int64_t{place.column} * kTileColumns;
    const float matrix_scale = ScaleOf(call.weight, call.groups, tile.matrix);
    // A tile that ends before the next group's rows must not write to those.
    const bool boxes = call.boxes && (call.groups.count == 0 || tile.end - tile.begin == kTileRows);
    if (boxes) {
      if (threadIdx.x % 128 == 0) WaitStoresRead();
      WarpgroupBarrier(1 + warpgroup);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int inside = warp_row + g + 8 * half;
      const int64_t row = tile.begin + inside;
      const float scale = row < tile.end ? call.x.scale[row] * matrix_scale : 0.0f;
#pragma unroll
      for (int j = 0; j < kTileColumns / 8; ++j) {
        const int64_t column = first_column + 8 * j + 2 * t;
        float y[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          y[e] = total[4 * j + 2 * half + e] * scale;
          if (call.bias != nullptr && column + e < call.weight.rows) y[e] += call.bias[column + e];
        }
        if (boxes) {
          // Box j / 4 of this warpgroup: rows of 32 floats, chunks of 16 bytes swizzled.
          const int at = inside % 64;
          const int chunk = (j % 4 * 2 + t / 2) ^ (at & 7);
          float* to = mine + (j / 4 * 64 + at) * 32 + chunk * 4 + t % 2 * 2;
          *reinterpret_cast<float2*>(to) = make_float2(y[0], y[1]);
        } else if (row < tile.end) {
          float* to = call.out.data + row * call.out.stride;
          if (column < call.weight.rows) to[column] = y[0];
          if (column + 1 < call.weight.rows) to[column + 1] = y[1];
        }
      }
    }
    if (boxes) {
      FenceCopies();
      WarpgroupBarrier(1 + warpgroup);
      if (threadIdx.x % 128 == 0) {
        for (int box = 0; box < kTileColumns / 32; ++box) {
          StoreBox(&out_map, mine + box * 64 * 32, static_cast<int>(first_column) + 32 * box,
                   static_cast<int>(tile.begin) + warpgroup * 64);
        }
        CommitStores();
      }
    }
  }
  if (threadIdx.x % 128 == 0) WaitStoresRead();
}

}  // namespace

void ManyRowsProduct(Stream stream, const HalfRows& x, const HalfMatrix& weight,
                     const HalfGroups& groups, const float* bias, const View& out) {
  const int64_t matrices = std::max(1, groups.count);
  const int64_t row_tiles = TileBound(out.rows, kTileRows, groups);
  const int64_t column_tiles = CeilDiv<int64_t>(weight.rows, kTileColumns);
  const Call call{x,
                  weight,
                  groups,
                  bias,
                  out,
                  static_cast<int>(row_tiles),
                  static_cast<int>(column_tiles),
                  static_cast<int>(CeilDiv<int64_t>(weight.stride, kDepth)),
                  reinterpret_cast<uintptr_t>(out.data) % 16 == 0 && out.stride % 4 == 0};
  const CUtensorMap x_map = MakeTensorMap(x.data, x.rows, x.stride, x.stride, kTileRows);
  const CUtensorMap weight_map = MakeTensorMap(weight.data, matrices * weight.rows, weight.stride,
                                               weight.stride, kTileColumns);
  const CUtensorMap out_map =
      call.boxes ? MakeFloatMap(out.data, out.rows, weight.rows, out.stride, 64) : CUtensorMap{};
  static const bool allowed = (AllowShared(ManyKernel, kShared), true);
  (void)allowed;
  const int64_t blocks = std::min<int64_t>(row_tiles * column_tiles, ThisGpu().multiprocessors);
  ManyKernel<<<unsigned(blocks), kThreads, kShared, stream>>>(x_map, weight_map, out_map, call);
}

}  // namespace reprise::cuda
