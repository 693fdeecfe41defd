// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/cuda/tensor/product_many.h"
#include "kernels/cuda/tensor/product_some.h"
#include "kernels/cuda/tensor/tensor_map.h"

// A tile is 128 rows of weights by kTokens rows of x. A cluster takes tile after tile: in every
// wave each of its blocks has one slice of 512 along K, whose sums it leaves in its shared memory;
// then each block adds the slices of its share of the tile, in order, from the memory of all.
// Operands come through a ring which runs ahead over the ends of slices and tiles; weights of the
// first stages before the kernel in front has ended.
namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kWarp = 32;
constexpr int kGroups = 2;                              // warpgroups, 64 rows of weights each
constexpr int kAdders = 128;                            // threads that add slices
constexpr int kThreads = kGroups * 128 + kAdders + 32;  // and a warp that asks for operands
constexpr int kTileRows = kGroups * 64;
constexpr int kDepth = 64;
constexpr int kSliceStages = kTensorSlice / kDepth;
constexpr int kPitch = kTileRows + 4;  // floats of a token's sums: stores meet all banks
constexpr int kMost = 4;               // matrices of one launch
constexpr size_t kSharedMost = 224 << 10;

template <int kTokens>
struct Layout {
  static constexpr int kWeightBytes = kTileRows * kDepth * 2;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kDepth * 2;
  static constexpr int kBuffers = kTokens > 64 ? 1 : 2;  // of sums
  static constexpr size_t kSumsFloats = size_t{kTokens} * kPitch;
  static constexpr size_t kSumsBytes = kBuffers * kSumsFloats * 4;
  static constexpr int kStages =
      static_cast<int>(std::min<size_t>(8, (kSharedMost - kSumsBytes - 1024) / kStageBytes));
  static constexpr size_t kShared = kStages * kStageBytes + kSumsBytes + 1024;  // and to align
};

struct Matrix {
  float scale;
  const float* bias;
  View out;
  bool fours;  // of which four neighbours can be stored at once
  int rows;
  int begin;  // its first tile
};
struct Call {
  Matrix matrix[kMost];
  const float* scale;  // [tokens]
  int tokens;
  int token_tiles;
  int tiles;  // of all matrices and tokens
  int steps;  // of kDepth along K
  int slices;
};
struct Maps {
  CUtensorMap x;
  CUtensorMap weight[kMost];
};

// What a block does: tiles of its cluster, and of each waves of slices.
template <int kCluster>
struct Walk {
  int tile;
  int wave = 0;

  __device__ Walk() : tile(static_cast<int>(blockIdx.x) / kCluster) {}

  static __device__ int Rank() { return static_cast<int>(blockIdx.x) % kCluster; }
  __device__ int slice() const { return wave * kCluster + Rank(); }
  // Steps of this block's slice; none where the wave has fewer slices than blocks.
  __device__ int Steps(const Call& call) const {
    return max(0, min(kSliceStages, call.steps - slice() * kSliceStages));
  }
  __device__ void NextWave(const Call& call) {
    if (++wave * kCluster < call.slices) return;
    wave = 0;
    tile += static_cast<int>(gridDim.x) / kCluster;
  }
};

struct TilePlace {
  int matrix;
  int row;    // of its weights
  int token;  // the first
};
template <int kTokens>
__device__ __forceinline__ TilePlace PlaceOf(const Call& call, int tile) {
  const int weights = tile / call.token_tiles;
  int matrix = 0;
  while (matrix + 1 < kMost && weights >= call.matrix[matrix + 1].begin) ++matrix;
  return {matrix, (weights - call.matrix[matrix].begin) * kTileRows,
          tile % call.token_tiles * kTokens};
}

__device__ __forceinline__ void MeetCluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Arrives at this barrier of every block of the cluster, for a warp that is done with its part.
template <int kCluster>
__device__ __forceinline__ void ArriveEverywhere(uint64_t* barrier) {
  __syncwarp();
#pragma unroll
  for (int turn = 0; turn < kWarpArrivals; ++turn) {
    const int block = (threadIdx.x + turn) % kWarp;
    if (block >= kCluster) continue;
    asm volatile(
        "{.reg .b32 place;\nmapa.shared::cluster.u32 place, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [place];}" ::"r"(
            SharedAddress(barrier)),
        "r"(block)
        : "memory");
  }
}
// Waits for arrivals of other blocks, whose memory may be read then.
__device__ __forceinline__ void WaitForCluster(uint64_t* barrier, int parity) {
  int done = 0;
  do {
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
        "selp.b32 %0, 1, 0, done;\n}"
        : "=r"(done)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  } while (!__all_sync(~0u, done));
}
// Four floats of the shared memory of block `rank` of the cluster.
__device__ __forceinline__ float4 LoadRemote4(uint32_t mine, int rank) {
  float4 four;
  asm volatile(
      "{.reg .b32 place;\nmapa.shared::cluster.u32 place, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [place];}"
      : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
      : "r"(mine), "r"(rank)
      : "memory");
  return four;
}

template <int kTokens>
__device__ __forceinline__ void Multiply(float (&acc)[kTokens / 2], uint64_t weights, uint64_t x,
                                         bool first) {
  if constexpr (kTokens == 128) WarpgroupMma128<Half::kF16>(acc, weights, x, first);
  if constexpr (kTokens == 64) WarpgroupMma64<Half::kF16>(acc, weights, x, first);
  if constexpr (kTokens == 32) WarpgroupMma32<Half::kF16>(acc, weights, x, first);
}

// Leaves the sums of a slice: [token, row of weights].
template <int kTokens>
__device__ __forceinline__ void LeaveSums(const float (&acc)[kTokens / 2], float* sums) {
  const int lane = threadIdx.x % kWarp;
  const int row = threadIdx.x / kWarp * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) {
    const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
    sums[token * kPitch + row + i % 4 / 2 * 8] = acc[i];
  }
}

template <int kTokens, int kCluster>
struct Share {
  static constexpr int kFours = kTileRows / kCluster / 4;  // groups of four rows of weights
  static constexpr int kEach = CeilDiv(kTokens * kFours, kAdders);

  float4 total[kEach];

  __device__ __forceinline__ static int TokenOf(int i) {
    return (static_cast<int>(threadIdx.x) % kAdders + i * kAdders) / kFours;
  }
  __device__ __forceinline__ static int RowOf(int i) {
    const int four = (static_cast<int>(threadIdx.x) % kAdders + i * kAdders) % kFours;
    return (Walk<kCluster>::Rank() * kFours + four) * 4;
  }

  // Adds `count` slices, the first of which may be the first of all.
  __device__ __forceinline__ void AddSlices(const float* sums, int count, bool first) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (TokenOf(i) >= kTokens) break;
      const uint32_t at = SharedAddress(sums + TokenOf(i) * kPitch + RowOf(i));
      float4 slice[kCluster];
#pragma unroll
      for (int r = 0; r < kCluster; ++r) {
        if (r < count) slice[r] = LoadRemote4(at, r);
      }
#pragma unroll
      for (int r = 0; r < kCluster; ++r) {
        if (r >= count) break;
        const float4& s = slice[r];
        float4& t = total[i];
        t = first && r == 0 ? s : make_float4(t.x + s.x, t.y + s.y, t.z + s.z, t.w + s.w);
      }
    }
  }

  __device__ __forceinline__ void Store(const Call& call, const TilePlace& place) const {
    const Matrix& matrix = call.matrix[place.matrix];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int token = place.token + TokenOf(i);
      if (TokenOf(i) >= kTokens || token >= call.tokens) break;
      const float scale = call.scale[token] * matrix.scale;
      float y[4] = {total[i].x * scale, total[i].y * scale, total[i].z * scale, total[i].w * scale};
      const int row = place.row + RowOf(i);
      if (matrix.bias != nullptr) {  // of rows that are not there it is nobody's
#pragma unroll
        for (int e = 0; e < 4; ++e) y[e] += matrix.bias[min(row + e, matrix.rows - 1)];
      }
      float* to = matrix.out.data + token * matrix.out.stride + row;
      if (matrix.fours && row + 4 <= matrix.rows) {
        *reinterpret_cast<float4*>(to) = make_float4(y[0], y[1], y[2], y[3]);
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (row + e < matrix.rows) to[e] = y[e];
      }
    }
  }
};

// What is shared between the parts of a block besides operands and sums.
template <int kStages, int kBuffers>
struct Barriers {
  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t left[kBuffers];   // sums of a wave, by all blocks
  uint64_t added[kBuffers];  // by all blocks: they are read no more
};

// Asks for the operands of this block's slices, by one thread. What a stage costs here is time in
// which none is asked for, so places are found once a slice.
template <int kTokens, int kCluster, typename Barriers>
__device__ void AskForSlices(const Maps& maps, const Call& call, uint8_t* stages,
                             Barriers* barriers) {
  using Room = Layout<kTokens>;
  constexpr int kStages = Room::kStages;
  // The first stages: weights at once, x when it is there.
  int asked = 0;
  for (Walk<kCluster> walk; walk.tile < call.tiles && asked < kStages; walk.NextWave(call)) {
    const TilePlace place = PlaceOf<kTokens>(call, walk.tile);
    const int steps = walk.Steps(call);
    for (int step = 0; step < steps && asked < kStages; ++step, ++asked) {
      ExpectBytes(&barriers->full[asked], Room::kStageBytes);
      CopyBox(stages + asked * Room::kStageBytes, &maps.weight[place.matrix],
              (walk.slice() * kSliceStages + step) * kDepth, place.row, &barriers->full[asked]);
    }
  }
  WaitForInputs();
  int stage = 0, parity = 1, turn = 0;
  for (Walk<kCluster> walk; walk.tile < call.tiles; walk.NextWave(call)) {
    const TilePlace place = PlaceOf<kTokens>(call, walk.tile);
    const CUtensorMap* weights = &maps.weight[place.matrix];
    const int steps = walk.Steps(call);
    int column = walk.slice() * kTensorSlice;
    for (int step = 0; step < steps; ++step, ++turn, column += kDepth) {
      uint8_t* to = stages + stage * Room::kStageBytes;
      if (turn >= asked) {
        WaitBarrier(&barriers->empty[stage], parity);
        ExpectBytes(&barriers->full[stage], Room::kStageBytes);
        CopyBox(to, weights, column, place.row, &barriers->full[stage]);
      }
      CopyBox(to + Room::kWeightBytes, &maps.x, column, place.token, &barriers->full[stage]);
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
  }
}

// Computes the slices of this block.
template <int kTokens, int kCluster, typename Barriers>
__device__ void RunSlices(const Call& call, const uint8_t* stages, float* sums,
                          Barriers* barriers) {
  using Room = Layout<kTokens>;
  constexpr int kStages = Room::kStages;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  int stage = 0, parity = 0;
  int wave = 0;  // of all tiles
  for (Walk<kCluster> walk; walk.tile < call.tiles; walk.NextWave(call), ++wave) {
    float acc[kTokens / 2];
    const int steps = walk.Steps(call);
    int previous = 0;
    for (int step = 0; step < steps; ++step) {
      WarpWaitBarrier(&barriers->full[stage], parity);
      const uint8_t* at = stages + stage * Room::kStageBytes;
      const uint64_t weights = TileDescriptor(at + group * 64 * kDepth * 2);
      const uint64_t x = TileDescriptor(at + Room::kWeightBytes);
      WarpgroupFence();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k) {
        Multiply<kTokens>(acc, weights + 2 * k, x + 2 * k, step == 0 && k == 0);
      }
      WarpgroupCommit();
      if (step > 0) {
        WarpgroupWait<1>();
        if (threadIdx.x % 128 == 0) Arrive(&barriers->empty[previous]);
      }
      previous = stage;
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
    WarpgroupWait<0>();
    if (steps > 0 && threadIdx.x % 128 == 0) Arrive(&barriers->empty[previous]);
    __syncwarp();
    const int buffer = wave % Room::kBuffers;
    WaitForCluster(&barriers->added[buffer], wave / Room::kBuffers % 2 ^ 1);
    if (steps > 0) LeaveSums<kTokens>(acc, sums + buffer * Room::kSumsFloats);
    ArriveEverywhere<kCluster>(&barriers->left[buffer]);
  }
}

template <int kTokens, int kCluster, typename Barriers>
__device__ void AddSlices(const Call& call, const float* sums, Barriers* barriers) {
  using Room = Layout<kTokens>;
  WaitForInputs();
  LetNextStart();
  Share<kTokens, kCluster> share;
  int wave = 0;
  for (Walk<kCluster> walk; walk.tile < call.tiles; ++wave) {
    const bool first = walk.wave == 0;
    const int count = min(kCluster, call.slices - walk.wave * kCluster);
    const int tile = walk.tile;
    const int buffer = wave % Room::kBuffers;
    WaitForCluster(&barriers->left[buffer], wave / Room::kBuffers % 2);
    share.AddSlices(sums + buffer * Room::kSumsFloats, count, first);
    ArriveEverywhere<kCluster>(&barriers->added[buffer]);
    walk.NextWave(call);
    if (walk.tile != tile) share.Store(call, PlaceOf<kTokens>(call, tile));
  }
}

template <int kTokens, int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    SomeRowsKernel(const __grid_constant__ Maps maps, const __grid_constant__ Call call) {
  if (!kForHopper) return;
  using Room = Layout<kTokens>;
  extern __shared__ uint8_t raw[];
  uint8_t* stages = raw + (-SharedAddress(raw) & 1023);  // known to be shared memory
  float* sums = reinterpret_cast<float*>(stages + Room::kStages * Room::kStageBytes);
  __shared__ Barriers<Room::kStages, Room::kBuffers> barriers;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Room::kStages; ++s) {
      InitBarrier(&barriers.full[s], 1);
      InitBarrier(&barriers.empty[s], kGroups);
    }
    for (int b = 0; b < Room::kBuffers; ++b) {
      InitBarrier(&barriers.left[b], kCluster * kGroups * 128 / kWarp * kWarpArrivals);
      InitBarrier(&barriers.added[b], kCluster * kAdders / kWarp * kWarpArrivals);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  MeetCluster();
  // Said by one thread for all, so that the compiler knows that no warp is divided here.
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group < kGroups) {
    RunSlices<kTokens, kCluster>(call, stages, sums, &barriers);
  } else if (group == kGroups) {
    AddSlices<kTokens, kCluster>(call, sums, &barriers);
  } else if (threadIdx.x % kWarp == 0) {
    AskForSlices<kTokens, kCluster>(maps, call, stages, &barriers);
  }
  __syncwarp();
  MeetCluster();  // nobody reads from a block that has gone
}

// A launch of clusters; how many, its user says.
template <int kTokens, int kCluster>
struct Launcher {
  static constexpr auto kKernel = SomeRowsKernel<kTokens, kCluster>;
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};

  explicit Launcher(Stream stream) {
    constexpr size_t kShared = Layout<kTokens>::kShared;
    static const bool allowed = (AllowShared(kKernel, kShared), true);
    (void)allowed;
    PreferShared(reinterpret_cast<const void*>(kKernel));
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = kCluster;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(kCluster);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kShared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Clusters that fit on the device at once; another one would wait until all have ended.
  static int Fit() {
    static const int fit = [] {
      const Launcher launcher(nullptr);
      int clusters = 0;
      const cudaError_t error =
          cudaOccupancyMaxActiveClusters(&clusters, kKernel, &launcher.config);
      return error == cudaSuccess && clusters > 0 ? clusters : 1;
    }();
    return fit;
  }
  // Turns of a block, each a slice of a tile.
  static int64_t Turns(const Call& call) {
    return int64_t{CeilDiv(call.tiles, Fit())} * CeilDiv(call.slices, kCluster);
  }

  void Run(const Maps& maps, const Call& call) {
    config.gridDim = dim3(unsigned(std::min(call.tiles, Fit()) * kCluster));
    cudaLaunchKernelEx(&config, kKernel, maps, call);
  }
};

template <int kTokens>
void LaunchBySlices(Stream stream, const Maps& maps, const Call& call) {
  if constexpr (kTokens <= 64) {
    if (call.slices <= 1) return Launcher<kTokens, 1>(stream).Run(maps, call);
    if (call.slices <= 2) return Launcher<kTokens, 2>(stream).Run(maps, call);
  }
  // Large clusters leave more of the device unused, small ones more of the last turn.
  using Four = Launcher<kTokens, 4>;
  using Eight = Launcher<kTokens, 8>;
  if (Four::Turns(call) <= Eight::Turns(call)) return Four(stream).Run(maps, call);
  Eight(stream).Run(maps, call);
}

void LaunchByTokens(Stream stream, const Maps& maps, const Call& call, int tokens) {
  if (tokens == 32) return LaunchBySlices<32>(stream, maps, call);
  if (tokens == 64) return LaunchBySlices<64>(stream, maps, call);
  LaunchBySlices<128>(stream, maps, call);
}

void RunUpToMost(Stream stream, const HalfRows& x, std::span<const HalfProduct> products) {
  const HalfMatrix& first = products[0].weight;
  const bool narrow = first.stride <= 2 * kTensorSlice;  // with large shares, which want registers
  const int tokens = x.rows <= 32 ? 32 : x.rows <= 64 || narrow ? 64 : 128;
  Maps maps = {};
  maps.x = MakeTensorMap(x.data, x.rows, x.stride, x.stride, tokens);
  Call call = {};
  int tiles = 0;
  for (size_t i = 0; i < kMost; ++i) {
    Matrix& matrix = call.matrix[i];
    matrix.begin = tiles;
    if (i >= products.size()) continue;
    const HalfProduct& product = products[i];
    matrix.scale = product.weight.scale;
    matrix.bias = product.bias;
    matrix.out = product.out;
    matrix.fours = Aligned16(product.out.data, product.out.stride);
    matrix.rows = static_cast<int>(product.weight.rows);
    maps.weight[i] = MakeTensorMap(product.weight.data, product.weight.rows, product.weight.stride,
                                   product.weight.stride, kTileRows);
    tiles += CeilDiv(matrix.rows, kTileRows);
  }
  call.scale = x.scale;
  call.tokens = static_cast<int>(x.rows);
  call.token_tiles = static_cast<int>(CeilDiv<int64_t>(x.rows, tokens));
  call.tiles = tiles * call.token_tiles;
  call.steps = static_cast<int>(CeilDiv<int64_t>(first.stride, kDepth));
  call.slices = CeilDiv(call.steps, kSliceStages);
  LaunchByTokens(stream, maps, call, tokens);
}

}  // namespace

bool AreSomeRows(const HalfRows& x, std::span<const HalfProduct> products) {
  int64_t tiles = 0;  // that the form for many rows would have
  for (const HalfProduct& product : products) {
    if (product.weight.stride != products[0].weight.stride) return false;
    tiles = std::max(tiles, ManyRowsTiles(x.rows, product.weight.rows));
  }
  // It takes whole rows of x: a few multiprocessors without one cost less than sums of slices that
  // have to meet.
  return x.rows <= 64 || 10 * tiles < 9 * ThisGpu().multiprocessors;
}

void SomeRowsProducts(Stream stream, const HalfRows& x, std::span<const HalfProduct> products) {
  for (size_t i = 0; i < products.size(); i += kMost) {
    RunUpToMost(stream, x, products.subspan(i, std::min<size_t>(kMost, products.size() - i)));
  }
}

}  // namespace reprise::cuda
