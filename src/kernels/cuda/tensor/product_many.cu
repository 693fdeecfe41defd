// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/cuda/tensor/product_many.h"
#include "kernels/cuda/tensor/tensor_map.h"
#include "kernels/cuda/tensor/tiles.cuh"

// Blocks that stay: each takes tile after tile of 128 rows of x by 128 rows of the matrix, or 64
// where there would be too few tiles for all multiprocessors. One warpgroup asks for the operands,
// stage by stage; two compute 64 rows each. After every slice of 512 along K the accumulators are
// added to the totals and begin anew.
namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kTileRows = 128;
constexpr int kDepth = 64;
constexpr int kSliceStages = kTensorSlice / kDepth;
constexpr int kConsumers = 2;  // warpgroups
constexpr int kThreads = (1 + kConsumers) * 128;
constexpr int kRowsBytes = kTileRows * kDepth * 2;
// Tiles along the rows of x that are run together, so that what they read stays in the L2 cache.
constexpr int kBand = 16;

// Shared memory of a block whose tiles have so many columns.
template <int kColumns>
struct Layout {
  static constexpr int kStages = kColumns == 128 ? 5 : 8;
  static constexpr int kStageBytes = kRowsBytes + kColumns * kDepth * 2;
  static constexpr int kOutBytes = kTileRows * kColumns * 4;
  static constexpr size_t kShared = size_t{kStages} * kStageBytes + kOutBytes + 1024;  // to align
};

struct Call {
  HalfRows x;
  HalfMatrix weight;
  HalfGroups groups;
  const float* bias;
  View out;
  int row_tiles;  // at most
  int column_tiles;
  int steps;   // of kDepth along K
  bool boxes;  // results leave through the copy engine, which writes four of them or none
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

// What becomes of the sums of a tile: of rows `row` and `row` + 8 of it a thread has two in each
// group of eight columns.
template <int kColumns>
struct Outputs {
  static constexpr int kEach = kColumns / 2;

  Tile tile;
  int column;  // the thread's first
  float scale[2];

  __device__ __forceinline__ void Find(const Call& call, int tile_column, int row) {
    column = tile_column * kColumns + threadIdx.x % 4 * 2;
    const float matrix_scale = ScaleOf(call.weight, call.groups, tile.matrix);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = tile.begin + row + 8 * half;
      scale[half] = at < tile.end ? call.x.scale[at] * matrix_scale : 0.0f;
    }
  }
  __device__ __forceinline__ void Finish(const Call& call, float (&total)[kEach]) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) total[i] *= scale[i % 4 / 2];
    if (call.bias == nullptr) return;
    const int last = static_cast<int>(call.weight.rows) - 1;
#pragma unroll
    for (int j = 0; j < kEach / 2; ++j) {  // columns that are not there are nobody's
      const float bias = call.bias[min(column + j / 2 * 8 + j % 2, last)];
      total[j / 2 * 4 + j % 2] += bias;
      total[j / 2 * 4 + j % 2 + 2] += bias;
    }
  }
  // To shared memory: boxes of 64 rows of 32 floats, chunks of 16 bytes swizzled.
  __device__ __forceinline__ void Stage(const float (&total)[kEach], int row, float* boxes) const {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      const int j = i / 2, at = (row + i % 2 * 8) % 64;
      const int chunk = (j % 4 * 2 + t / 2) ^ (at & 7);
      *reinterpret_cast<float2*>(boxes + (j / 4 * 64 + at) * 32 + chunk * 4 + t % 2 * 2) =
          make_float2(total[2 * i], total[2 * i + 1]);
    }
  }
  __device__ __forceinline__ void Store(const Call& call, const float (&total)[kEach],
                                        int row) const {
    const int columns = static_cast<int>(call.weight.rows);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t at = tile.begin + row + i % 4 / 2 * 8;
      const int c = column + i / 4 * 8 + i % 2;
      if (at < tile.end && c < columns) call.out.data[at * call.out.stride + c] = total[i];
    }
  }
};

template <int kColumns>
__device__ __forceinline__ void Multiply(float (&acc)[kColumns / 2], uint64_t a, uint64_t b,
                                         bool first) {
  if constexpr (kColumns == 128) WarpgroupMma128<Half::kF16>(acc, a, b, first);
  if constexpr (kColumns == 64) WarpgroupMma64<Half::kF16>(acc, a, b, first);
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads, 1)
    ManyKernel(const __grid_constant__ CUtensorMap x_map,
               const __grid_constant__ CUtensorMap weight_map,
               const __grid_constant__ CUtensorMap out_map, const __grid_constant__ Call call) {
  if (!kForHopper) return;
  using Room = Layout<kColumns>;
  constexpr int kStages = Room::kStages;
  extern __shared__ uint8_t raw[];
  uint8_t* stages = raw + (-SharedAddress(raw) & 1023);  // known to be shared memory
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      InitBarrier(&full[s], 1);
      InitBarrier(&empty[s], kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  WaitForInputs();
  LetNextStart();
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
            static_cast<int>(tile.matrix * call.weight.rows) + place.column * kColumns;
        for (int step = 0; step < call.steps; ++step) {
          WaitBarrier(&empty[stage], parity ^ 1);
          uint8_t* to = stages + stage * Room::kStageBytes;
          ExpectBytes(&full[stage], Room::kStageBytes);
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
  const int row = warpgroup * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
  float* mine = reinterpret_cast<float*>(stages + kStages * Room::kStageBytes) +
                warpgroup * 64 * kColumns;  // its results on their way out
  for (int index = blockIdx.x; index < tile_count; index += gridDim.x) {
    Outputs<kColumns> outputs;
    if (call.groups.count > 0) {
      outputs.tile = TileOf<kTileRows>(call.x, call.groups, PlaceOf(call, index).row);
      if (outputs.tile.matrix < 0 || outputs.tile.begin >= outputs.tile.end) continue;
    }
    float acc[kColumns / 2];
    float total[kColumns / 2];
#pragma unroll
    for (float& sum : total) sum = -0.0f;  // which changes nothing that is added to it
    for (int slice = 0; slice * kSliceStages < call.steps; ++slice) {
      const int count = min(kSliceStages, call.steps - slice * kSliceStages);
      int previous = 0;
      for (int s = 0; s < count; ++s) {
        WaitBarrier(&full[stage], parity);
        const uint8_t* at = stages + stage * Room::kStageBytes;
        const uint64_t a = TileDescriptor(at + warpgroup * 64 * kDepth * 2);
        const uint64_t b = TileDescriptor(at + kRowsBytes);
        WarpgroupFence();
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) {
          Multiply<kColumns>(acc, a + 2 * k, b + 2 * k, s == 0 && k == 0);
        }
        WarpgroupCommit();
        if (s > 0) {
          WarpgroupWait<1>();
          if (threadIdx.x % 128 == 0) Arrive(&empty[previous]);
        } else if (slice == 0) {
          // Meanwhile: it takes as long as a stage.
          const TilePlace place = PlaceOf(call, index);
          if (call.groups.count == 0) {
            outputs.tile = TileOf<kTileRows>(call.x, call.groups, place.row);
          }
          outputs.Find(call, place.column, row);
        }
        previous = stage;
        next_stage();
      }
      WarpgroupWait<0>();
      if (threadIdx.x % 128 == 0) Arrive(&empty[previous]);
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) total[i] += acc[i];
    }
    outputs.Finish(call, total);
    // A tile that ends before the next group's rows must not write to those.
    const int64_t rows = outputs.tile.end - outputs.tile.begin;
    if (!call.boxes || (call.groups.count > 0 && rows < kTileRows)) {
      outputs.Store(call, total, row);
      continue;
    }
    if (threadIdx.x % 128 == 0) WaitStoresRead();
    WarpgroupBarrier(1 + warpgroup);
    outputs.Stage(total, row, mine);
    FenceCopies();
    WarpgroupBarrier(1 + warpgroup);
    if (threadIdx.x % 128 == 0) {
      for (int box = 0; box < kColumns / 32; ++box) {
        StoreBox(&out_map, mine + box * 64 * 32, outputs.column + 32 * box,
                 static_cast<int>(outputs.tile.begin) + warpgroup * 64);
      }
      CommitStores();
    }
  }
  if (threadIdx.x % 128 == 0) WaitStoresRead();
}

template <int kColumns>
void Launch(Stream stream, const HalfRows& x, const HalfMatrix& weight, const HalfGroups& groups,
            const float* bias, const View& out) {
  constexpr size_t kShared = Layout<kColumns>::kShared;
  const int64_t matrices = std::max(1, groups.count);
  const int64_t row_tiles = TileBound(out.rows, kTileRows, groups);
  const int64_t column_tiles = CeilDiv<int64_t>(weight.rows, kColumns);
  const Call call{x,
                  weight,
                  groups,
                  bias,
                  out,
                  static_cast<int>(row_tiles),
                  static_cast<int>(column_tiles),
                  static_cast<int>(CeilDiv<int64_t>(weight.stride, kDepth)),
                  Aligned16(out.data, out.stride) && weight.rows % 4 == 0};
  const CUtensorMap x_map = MakeTensorMap(x.data, x.rows, x.stride, x.stride, kTileRows);
  const CUtensorMap weight_map =
      MakeTensorMap(weight.data, matrices * weight.rows, weight.stride, weight.stride, kColumns);
  const CUtensorMap out_map =
      call.boxes ? MakeFloatMap(out.data, out.rows, weight.rows, out.stride, 64) : CUtensorMap{};
  static const bool allowed = (AllowShared(ManyKernel<kColumns>, kShared), true);
  (void)allowed;
  const int64_t blocks = std::min<int64_t>(row_tiles * column_tiles, ThisGpu().multiprocessors);
  LaunchEarly(ManyKernel<kColumns>, unsigned(blocks), kThreads, kShared, stream, x_map, weight_map,
              out_map, call);
}

int64_t Tiles(int64_t rows, int64_t columns, int width) {
  return CeilDiv<int64_t>(rows, kTileRows) * CeilDiv<int64_t>(columns, width);
}

// Narrow tiles read more, but all multiprocessors have one.
bool AreNarrow(int64_t rows, int64_t columns) {
  return Tiles(rows, columns, 128) < ThisGpu().multiprocessors;
}

}  // namespace

int64_t ManyRowsTiles(int64_t rows, int64_t columns) {
  return Tiles(rows, columns, AreNarrow(rows, columns) ? 64 : 128);
}

void ManyRowsProduct(Stream stream, const HalfRows& x, const HalfMatrix& weight,
                     const HalfGroups& groups, const float* bias, const View& out) {
  const bool narrow = groups.count == 0 && AreNarrow(out.rows, weight.rows);
  (narrow ? Launch<64> : Launch<128>)(stream, x, weight, groups, bias, out);
}

}  // namespace reprise::cuda
