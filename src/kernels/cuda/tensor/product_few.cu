// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/joined/riders.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/product_few.h"
#include "kernels/cuda/tensor/tiles.cuh"

// A tile is 8 rows of weights. Warps stand in a grid: kAlong of them divide the slices of K of one
// tile, `beside` tiles lie side by side in a block. Each warp copies its weights through a ring of
// its own, the first of them before the kernel in front has ended. Sums of slices meet in shared
// memory and are added in order. Inside a step of 16 the order of k is free, so a thread takes four
// neighbours of a row as they lie.
namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kTile = 8;          // rows of weights
constexpr int kDepth = 256;       // elements of K in a stage: half a slice
constexpr int kStages = 2;        // of a warp
constexpr int kPitch = 256 + 16;  // of a row in a stage: eight rows meet all banks
constexpr int kStage = kTile * kPitch;
constexpr int kWarpsMost = 8;
constexpr int64_t kFloatRows = 4;  // rows that blocks round themselves, at most
// Two blocks for every multiprocessor, each with just less than half of its shared memory whatever
// it needs: so no more than two meet anywhere, and where one of them ends, a block of the next
// kernel takes its place and asks for its first weights.
size_t BlockShared() { return std::min<size_t>(112 << 10, ThisGpu().block_shared); }
// What stages and sums leave of it for inputs.
int64_t InputBytes() {
  constexpr size_t kStagesAndSums = kWarpsMost * (kStages * kStage * 2 + 2 * 16 * kTile * 4);
  return static_cast<int64_t>(BlockShared() - kStagesAndSums);
}

constexpr int InputPitch(int64_t cols) { return static_cast<int>((cols + 63) / 64 * 64 + 16); }

struct Call {
  HalfRows x;
  InputNorm norm;
  HalfGroups groups;
  HalfProduct product[FewProducts::kMost];
  int begin[FewProducts::kMost + 1];  // the first tile of each, and the end
  int block_tiles;                    // groups of tiles that a block has side by side
  OutputOp op;
  View sum;
  int64_t input_bytes;  // of shared memory
};

__device__ __forceinline__ float Largest(float4 x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

__device__ __forceinline__ void StoreRounded(uint16_t* to, float4 x, float inverse) {
  *reinterpret_cast<uint2*>(to) = make_uint2(Pack2<Half::kF16>(x.x * inverse, x.y * inverse),
                                             Pack2<Half::kF16>(x.z * inverse, x.w * inverse));
}

// Rows of a block's inputs in shared memory: rounded [rows, pitch]; where there is a norm, one
// after another as floats before that.
struct Inputs {
  uint16_t* rounded;
  float* floats;
  float* scale;  // [kFloatRows]
  int pitch;
};

// A row as it comes into the products: read, and normed where there is a norm.
struct InputRow {
  const float* x;
  const float* weight;  // of the norm, or null
  float inverse_root;
  float* h;  // where the normed row goes, or null

  __device__ __forceinline__ float4 At(int i) const {
    float4 four = *reinterpret_cast<const float4*>(x + i);
    if (weight != nullptr) {
      const float4 w = *reinterpret_cast<const float4*>(weight + i);
      four = make_float4((four.x * inverse_root) * w.x, (four.y * inverse_root) * w.y,
                         (four.z * inverse_root) * w.z, (four.w * inverse_root) * w.w);
      if (h != nullptr) *reinterpret_cast<float4*>(h + i) = four;
    }
    return four;
  }
};

// A row of f16 that has to be scaled; the whole block calls. Rare, so it may take its time.
__device__ __noinline__ void RoundScaled(InputRow row, int cols, uint16_t* rounded, float* scale) {
  float largest = 0;
  for (int i = 0; i < cols; i += 4) largest = fmaxf(largest, Largest(row.At(i)));
  const float mine = RowScale(largest);
  for (int i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x) {
    StoreRounded(rounded + i, row.At(i), 1 / mine);
  }
  *scale = mine;
}

constexpr int kHold = 8;  // groups of four values that a thread asks for at once

// One row behind a norm whose weights are in shared memory, too. Everything is asked for once.
__device__ void ReadNormed(const Call& call, const Tile& tile, const Inputs& inputs,
                           const float* weights) {
  const int cols = static_cast<int>(call.x.cols);
  const float* from = call.x.f32 + SourceRow(call.groups, tile.begin) * call.x.stride;
  float4 held[kHold];
#pragma unroll
  for (int j = 0; j < kHold; ++j) {
    const int i = 4 * (threadIdx.x + j * blockDim.x);
    if (i < cols) held[j] = *reinterpret_cast<const float4*>(from + i);
  }
#pragma unroll
  for (int j = 0; j < kHold; ++j) {
    const int i = 4 * (threadIdx.x + j * blockDim.x);
    if (i < cols) *reinterpret_cast<float4*>(inputs.floats + i) = held[j];
  }
  WaitAsync<kStages>();  // the weights of the norm, asked for before those of the products
  __syncthreads();
  const float sum =
      SumOfSquares([&](int64_t i) { return inputs.floats[i]; }, threadIdx.x % kNormLanes, cols);
  const float r = InverseRoot(sum / static_cast<float>(cols), call.norm.eps);
  __syncthreads();  // rounded values take the place of the floats
  float* h = blockIdx.x == 0 ? call.norm.h.data + tile.begin * call.norm.h.stride : nullptr;
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kHold; ++j) {
    const int i = 4 * (threadIdx.x + j * blockDim.x);
    if (i >= cols) break;
    const float4 w = *reinterpret_cast<const float4*>(weights + i);
    const float4 four = make_float4((held[j].x * r) * w.x, (held[j].y * r) * w.y,
                                    (held[j].z * r) * w.z, (held[j].w * r) * w.w);
    if (h != nullptr) *reinterpret_cast<float4*>(h + i) = four;
    largest = fmaxf(largest, Largest(four));
    StoreRounded(inputs.rounded + i, four, 1.0f);
  }
  const bool large = largest >= 65520.0f;
  if (__syncthreads_or(large) != 0) {
    RoundScaled({from, call.norm.weight, r, nullptr}, cols, inputs.rounded, inputs.scale);
    __syncthreads();
  }
}

// Rows are rounded as if none had to be scaled; those that have are rounded again.
__device__ void ReadInputs(const Call& call, const Tile& tile, const Inputs& inputs) {
  const int rows = static_cast<int>(tile.end - tile.begin);
  const int cols = static_cast<int>(call.x.cols);
  const bool norm = call.norm.weight != nullptr;
  if (threadIdx.x < kFloatRows) inputs.scale[threadIdx.x] = 1.0f;
#pragma unroll 1
  for (int r = 0; r < rows; ++r) {
    const float* from = call.x.f32 + SourceRow(call.groups, tile.begin + r) * call.x.stride;
    InputRow row = {from, call.norm.weight, 1.0f, nullptr};
    if (norm) {
#pragma unroll 4
      for (int i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x) {
        *reinterpret_cast<float4*>(inputs.floats + i) = *reinterpret_cast<const float4*>(from + i);
      }
      __syncthreads();
      const float sum =
          SumOfSquares([&](int64_t i) { return inputs.floats[i]; }, threadIdx.x % kNormLanes, cols);
      row.x = inputs.floats;
      row.inverse_root = InverseRoot(sum / static_cast<float>(cols), call.norm.eps);
      if (blockIdx.x == 0) row.h = call.norm.h.data + (tile.begin + r) * call.norm.h.stride;
    }
    uint16_t* rounded = inputs.rounded + r * inputs.pitch;
    float largest = 0;
#pragma unroll 1
    for (int first = 4 * threadIdx.x; first < cols; first += 4 * kHold * blockDim.x) {
      float4 held[kHold];
#pragma unroll
      for (int j = 0; j < kHold; ++j) {
        const int i = first + 4 * j * blockDim.x;
        if (i < cols) held[j] = row.At(i);
      }
#pragma unroll
      for (int j = 0; j < kHold; ++j) {
        const int i = first + 4 * j * blockDim.x;
        if (i >= cols) break;
        largest = fmaxf(largest, Largest(held[j]));
        StoreRounded(rounded + i, held[j], 1.0f);
      }
    }
    const bool large = largest >= 65520.0f;
    if (__syncthreads_or(large) != 0) {
      RoundScaled(row, cols, rounded, inputs.scale + r);
      __syncthreads();
    }
  }
}

// The weights of one warp, stage by stage: tiles of its block, and of each its slices.
template <bool kGated, int kAlong>
class Weights {
 public:
  __device__ Weights(const Call& call, int64_t matrix, uint16_t* ring)
      : call_(call),
        matrix_(matrix),
        ring_(ring),
        halves_(2 * CeilDiv(CeilDiv(static_cast<int>(call.x.cols), kTensorSlice), kAlong)),
        block_tile_(blockIdx.x) {
    FindTile();
  }

  // Asks for the next stage; an empty one behind the end.
  __device__ void Load() {
    const int lane = threadIdx.x % kWarp;
    const int along = threadIdx.x / kWarp % kAlong;
    if (rows_ > 0) {
      const int k = (half_ / 2 * kAlong + along) * kTensorSlice + half_ % 2 * kDepth + lane * 8;
      uint16_t* to = ring_ + stage_ * kStage + lane * 8;
#pragma unroll
      for (int r = 0; r < kTile; ++r) {
        const bool valid = r < rows_ && k < stride_;
        CopyAsync16(to + r * kPitch, valid ? first_ + r * stride_ + k : first_, valid);
      }
    }
    CommitAsync();
    stage_ ^= 1;
    if (++half_ < halves_) return;
    half_ = 0;
    block_tile_ += gridDim.x;
    FindTile();
  }

  // Tile of a block's group; kGated: tiles of two matrices lie side by side.
  static __device__ int TileOfWarp(int block_tile, int beside) {
    const int width = blockDim.x / (kWarp * kAlong);
    return kGated ? block_tile * (width / 2) + beside / 2 : block_tile * width + beside;
  }
  static __device__ int ProductOf(const Call& call, int tile, int beside) {
    if (kGated) return beside % 2;
    int which = 0;
    while (which + 1 < int(FewProducts::kMost) && tile >= call.begin[which + 1]) ++which;
    return which;
  }

 private:
  __device__ void FindTile() {
    rows_ = 0;
    if (block_tile_ >= call_.block_tiles) return;
    const int beside = threadIdx.x / (kWarp * kAlong);
    const int tile = TileOfWarp(block_tile_, beside);
    const int which = ProductOf(call_, tile, beside);
    const HalfMatrix& weight = call_.product[which].weight;
    const int64_t row = int64_t{tile - (kGated ? 0 : call_.begin[which])} * kTile;
    rows_ = static_cast<int>(max(int64_t{0}, min(int64_t{kTile}, weight.rows - row)));
    stride_ = weight.stride;
    first_ = weight.data + matrix_ + (rows_ > 0 ? row * stride_ : 0);
  }

  const Call& call_;
  const int64_t matrix_;  // elements before the matrix of the block's rows
  uint16_t* const ring_;
  const int halves_;  // of slices, for each tile
  int block_tile_;
  int half_ = 0;
  int stage_ = 0;
  int rows_ = 0;
  const uint16_t* first_ = nullptr;
  int64_t stride_ = 0;
};

// One step of 16 along K.
template <int kHalves>
__device__ __forceinline__ void MultiplyStep(float (&acc)[4], const uint16_t* const (&x)[kHalves],
                                             int k, const uint16_t* weights) {
  uint2 a[2] = {make_uint2(0, 0), make_uint2(0, 0)};
#pragma unroll
  for (int i = 0; i < kHalves; ++i) {
    if (x[i] != nullptr) a[i] = *reinterpret_cast<const uint2*>(x[i] + k);
  }
  const uint2 b = *reinterpret_cast<const uint2*>(weights);
  const uint32_t fragment[4] = {a[0].x, a[1].x, a[0].y, a[1].y};
  Mma<Half::kF16>(acc, fragment, b.x, b.y);
}

// scale: of the row of x. matrix: the group's.
__device__ __forceinline__ float Finish(const Call& call, const HalfProduct& product, int matrix,
                                        float scale, int64_t column, float total) {
  const float y = total * (scale * ScaleOf(product.weight, call.groups, matrix));
  return product.bias != nullptr ? y + product.bias[column] : y;
}

template <bool kGated, int kTotals>
__device__ __forceinline__ void StoreOutput(const Call& call, const HalfProduct& product,
                                            int matrix, int64_t slot, int64_t column, float scale,
                                            const float (&total)[kTotals]) {
  const float y = Finish(call, product, matrix, scale, column, total[0]);
  product.out.data[slot * product.out.stride + column] = y;
  if constexpr (kGated) {
    const HalfProduct& gated = call.product[1];
    const float gate = Finish(call, gated, matrix, scale, column, total[1]);
    gated.out.data[slot * gated.out.stride + column] = Gated(call.op, gate, y);
  } else if (call.op == OutputOp::kAdd) {
    float* to = call.sum.data + slot * call.sum.stride + column;
    *to = *to + y;
  }
}

// Whether a block reads one row behind a norm, with the norm's weights in shared memory as well.
__device__ __forceinline__ bool NormsOneRow(const Call& call, const Tile& tile) {
  return call.norm.weight != nullptr && tile.end - tile.begin == 1 &&
         call.x.cols * 8 <= call.input_bytes && call.x.cols <= int64_t{4} * kHold * blockDim.x;
}

// Where rows g and g + 8 of the tile lie for this thread; null: there is no such row.
template <bool kFloats, int kHalves>
__device__ __forceinline__ void FindInputs(const Call& call, const Tile& tile, float* room,
                                           float* scales, const uint16_t* (&x)[kHalves]) {
  const int g = threadIdx.x % kWarp / 4;
  const int t = threadIdx.x % 4;
  if constexpr (kFloats) {
    const int rows = static_cast<int>(tile.end - tile.begin);
    Inputs inputs = {reinterpret_cast<uint16_t*>(room), nullptr, scales, InputPitch(call.x.cols)};
    inputs.floats = reinterpret_cast<float*>(inputs.rounded + rows * inputs.pitch);
    if (NormsOneRow(call, tile)) {
      inputs.floats = room;
      if (threadIdx.x == 0) scales[0] = 1.0f;
      ReadNormed(call, tile, inputs, room + call.x.cols);
    } else {
      ReadInputs(call, tile, inputs);
    }
    if (g < rows) x[0] = inputs.rounded + g * inputs.pitch + 4 * t;
  } else {
#pragma unroll
    for (int i = 0; i < kHalves; ++i) {
      const int64_t slot = tile.begin + g + 8 * i;
      if (slot < tile.end) {
        x[i] = call.x.data + SourceRow(call.groups, slot) * call.x.stride + 4 * t;
      }
    }
  }
}

template <bool kFloats, bool kGated, int kAlong>
__global__ void __launch_bounds__(kWarpsMost* kWarp, 2)
    FewRowsKernel(const __grid_constant__ Call call) {
  constexpr int kRows = kFloats ? 8 : 16;
  constexpr int kHalves = kRows / 8;
  constexpr int kOutputs = kRows * kTile;
  constexpr int kTotals = kGated ? 2 : 1;
  constexpr int kEach = CeilDiv(kOutputs, kAlong * kWarp);
  extern __shared__ __align__(16) uint16_t shared[];
  __shared__ float scales[2 * kFloatRows];
  using Weights = Weights<kGated, kAlong>;
  const int warps = blockDim.x / kWarp;
  const int warp = threadIdx.x / kWarp;
  const int g = threadIdx.x % kWarp / 4;
  const int t = threadIdx.x % 4;
  uint16_t* ring = shared + warp * kStages * kStage;
  float* sums =
      reinterpret_cast<float*>(shared + warps * kStages * kStage);  // [2, warps, kOutputs]

  // Which matrix a group of rows has, the step decides.
  if (call.groups.count > 0) WaitForInputs();
  const Tile tile = TileOf<kRows>(call.x, call.groups, blockIdx.y);
  if (tile.matrix < 0) return;
  Weights weights(call, tile.matrix * call.groups.matrix_stride, ring);
  const int stride = static_cast<int>(call.product[0].weight.stride);  // of all
  const int slices = CeilDiv(static_cast<int>(call.x.cols), kTensorSlice);
  const int waves = CeilDiv(slices, kAlong);
  const uint16_t* x[kHalves] = {};
  float acc[4];
  float total[kEach][kTotals];
  int block_tile = blockIdx.x;
  int wave = 0;
  if (kFloats && NormsOneRow(call, tile)) {
    float* norm = sums + 2 * warps * kOutputs + call.x.cols;
    for (int i = 4 * threadIdx.x; i < call.x.cols; i += 4 * blockDim.x) {
      CopyAsync16(norm + i, call.norm.weight + i, true);
    }
    CommitAsync();
  }
  // A stage is asked for kStages turns before its own. This code runs once, and the fewer
  // instructions it has, the sooner they are here.
#pragma unroll 1
  for (int turn = -kStages; block_tile < call.block_tiles; ++turn) {
    if (turn < 0) {
      weights.Load();
      continue;
    }
    if (turn == 0) {
      WaitForInputs();
      LetNextStart();
      FindInputs<kFloats>(call, tile, sums + 2 * warps * kOutputs, scales, x);
    }
    const int half = turn % 2;
    if (half == 0) acc[0] = acc[1] = acc[2] = acc[3] = 0;
    WaitAsync<kStages - 1>();
    __syncwarp();
    const int k0 = (wave * kAlong + warp % kAlong) * kTensorSlice + half * kDepth;
    const uint16_t* rows = ring + half * kStage + g * kPitch + 4 * t;
    if (k0 + kDepth <= stride) {
#pragma unroll
      for (int s = 0; s < kDepth / 16; ++s) {
        MultiplyStep<kHalves>(acc, x, k0 + 16 * s, rows + 16 * s);
      }
    } else {
#pragma unroll 1
      for (int s = 0; k0 + 16 * s < stride; ++s) {
        MultiplyStep<kHalves>(acc, x, k0 + 16 * s, rows + 16 * s);
      }
    }
    __syncwarp();
    weights.Load();
    if (half == 0) continue;

    float* buffer = sums + turn / 2 % 2 * warps * kOutputs;
#pragma unroll
    for (int e = 0; e < 2 * kHalves; ++e) {
      buffer[warp * kOutputs + (g + e / 2 * 8) * kTile + 2 * t + e % 2] = acc[e];
    }
    __syncthreads();
    const int here = min(kAlong, slices - wave * kAlong);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int output = threadIdx.x % (kAlong * kWarp) + i * kAlong * kWarp;
      if (output >= kOutputs || output / kTile >= tile.end - tile.begin) break;
#pragma unroll
      for (int j = 0; j < kTotals; ++j) {
        const int beside = kGated ? warp / kAlong / 2 * 2 + j : warp / kAlong;
        const float* from = buffer + beside * kAlong * kOutputs + output;
#pragma unroll 1
        for (int s = 0; s < here; ++s) {
          const float slice_sum = from[s * kOutputs];
          total[i][j] = wave == 0 && s == 0 ? slice_sum : total[i][j] + slice_sum;
        }
      }
    }
    if (++wave < waves) continue;
    wave = 0;
    const int beside = warp / kAlong;
    const int weight_tile = Weights::TileOfWarp(block_tile, beside);
    block_tile += gridDim.x;
    if (kGated && beside % 2 != 0) continue;
    const int which = Weights::ProductOf(call, weight_tile, beside);
    const HalfProduct& product = call.product[which];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int output = threadIdx.x % (kAlong * kWarp) + i * kAlong * kWarp;
      const int64_t slot = tile.begin + output / kTile;
      const int64_t column =
          int64_t{weight_tile - (kGated ? 0 : call.begin[which])} * kTile + output % kTile;
      if (output >= kOutputs || slot >= tile.end || column >= product.weight.rows) break;
      const float scale =
          kFloats ? scales[output / kTile] : call.x.scale[SourceRow(call.groups, slot)];
      StoreOutput<kGated>(call, product, tile.matrix, slot, column, scale, total[i]);
    }
  }
}

template <bool kFloats, bool kGated, int kAlong>
void Launch(Stream stream, const FewProducts& few) {
  Call call = {few.x, few.norm, few.groups, {}, {}, 0, few.op, few.sum, InputBytes()};
  for (size_t i = 0; i < FewProducts::kMost; ++i) {
    const int64_t rows = i < few.products.size() ? few.products[i].weight.rows : 0;
    if (i < few.products.size()) call.product[i] = few.products[i];
    call.begin[i + 1] = call.begin[i] + int(CeilDiv<int64_t>(rows, kTile));
  }
  const int64_t row_tiles = TileBound(few.products[0].out.rows, kFloats ? 8 : 16, few.groups);
  // As many tiles in a block as leave enough blocks.
  const int tiles = kGated ? 2 * call.begin[1] : call.begin[FewProducts::kMost];
  int beside = kWarpsMost / kAlong;
  while (beside > (kGated ? 2 : 1) && tiles / beside * row_tiles < ThisGpu().multiprocessors - 4)
    beside /= 2;
  call.block_tiles = CeilDiv(tiles, beside);
  const int warps = kAlong * beside;
  const auto kernel = FewRowsKernel<kFloats, kGated, kAlong>;
  static const bool allowed = (AllowShared(kernel, BlockShared()), true);
  (void)allowed;
  const dim3 grid(
      unsigned(std::min<int64_t>(call.block_tiles,
                                 CeilDiv<int64_t>(2 * ThisGpu().multiprocessors, row_tiles))),
      unsigned(row_tiles));
  LaunchEarly(kernel, grid, warps * kWarp, BlockShared(), stream, call);
}

template <bool kFloats>
void LaunchBySlices(Stream stream, const FewProducts& few) {
  const int64_t slices = CeilDiv<int64_t>(few.x.cols, kTensorSlice);
  if (IsGate(few.op)) {
    return slices <= 1   ? Launch<kFloats, true, 1>(stream, few)
           : slices <= 2 ? Launch<kFloats, true, 2>(stream, few)
                         : Launch<kFloats, true, 4>(stream, few);
  }
  return slices <= 1   ? Launch<kFloats, false, 1>(stream, few)
         : slices <= 2 ? Launch<kFloats, false, 2>(stream, few)
         : slices <= 4 ? Launch<kFloats, false, 4>(stream, few)
                       : Launch<kFloats, false, 8>(stream, few);
}

bool Fits(const View& x, int64_t bytes_each) {
  return x.rows <= kFloatRows && x.cols % 16 == 0 && Aligned16(x.data, x.stride) &&
         x.rows * (x.cols + 128) * bytes_each <= InputBytes();
}

}  // namespace

bool MayRoundOnTheWay(const View& x) { return Fits(x, 2); }
bool MayNormOnTheWay(const View& x) { return Fits(x, 6); }

void RunFewProducts(Stream stream, const FewProducts& call) {
  FewProducts few = call;
  const auto launch = few.x.f32 != nullptr ? LaunchBySlices<true> : LaunchBySlices<false>;
  const std::span<const HalfProduct> all = few.products;
  for (size_t first = 0; first < all.size(); first += FewProducts::kMost) {
    few.products = all.subspan(first, std::min(FewProducts::kMost, all.size() - first));
    launch(stream, few);
  }
}

}  // namespace reprise::cuda
