// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "kernels/cuda/joined/riders.cuh"
#include "kernels/cuda/packed/product_packed.h"
#include "kernels/cuda/tensor/few/floats.cuh"
#include "kernels/cuda/tensor/few/inputs.cuh"
#include "kernels/cuda/tensor/few/product_few.h"
#include "kernels/cuda/tensor/few/small.h"

// A tile is 8 rows of weights. Warps stand in a grid: kAlong of them divide the slices of K of one
// tile, `beside` tiles lie side by side in a block. Each warp copies its weights through a ring of
// its own, the first of them before the kernel in front has ended. Sums of slices meet in shared
// memory and are added in order.
namespace reprise::cuda {
namespace {

using namespace few;

// Two blocks for every multiprocessor, each with just less than half of its shared memory whatever
// it needs: so no more than two meet anywhere, and where one of them ends, a block of the next
// kernel takes its place and asks for its first weights.
size_t BlockShared() { return ThisGpu().half_shared(); }
// What stages and sums leave of it for inputs.
int64_t InputBytes() {
  constexpr size_t kStagesAndSums = kWarpsMost * (kStages * kStage * 2 + 2 * 16 * kTile * 4);
  return static_cast<int64_t>(BlockShared() - kStagesAndSums);
}

// Where 16 bytes of a row lie in a stage: eight rows of one column meet all banks, and so do four
// rows of two.
__device__ __forceinline__ int Place(int row, int piece) {
  return row * kDepth + (piece ^ (row % 4 * 2 + row / 4)) * 8;
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
      uint16_t* to = ring_ + stage_ * kStage;
#pragma unroll
      for (int r = 0; r < kTile; ++r) {
        const bool valid = r < rows_ && k < stride_;
        CopyAsync16(to + Place(r, lane), valid ? first_ + r * stride_ + k : first_, valid);
      }
    } else if (!kGated && block_tile_ >= call_.block_tiles && block_tile_ < call_.all_tiles) {
      LoadFloats(call_, block_tile_ - call_.block_tiles, stage_, ring_ + stage_ * kStage);
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

// Steps of 16 along K over what a stage has: `left` elements of it and of x. Rows that are not
// there are sums of something; nobody reads them.
template <bool kFloats>
struct Multiply;

// Up to four rows, in shared memory: x is this thread's, at its 2t.
template <>
struct Multiply<true> {
  static __device__ __forceinline__ void Step(float (&acc)[4], const uint16_t* x, uint32_t b0,
                                              uint32_t b1) {
    const uint32_t fragment[4] = {*reinterpret_cast<const uint32_t*>(x), 0,
                                  *reinterpret_cast<const uint32_t*>(x + 8), 0};
    Mma<Half::kF16>(acc, fragment, b0, b1);
  }
  static __device__ __forceinline__ void Stage(float (&acc)[4], const uint16_t* const (&x)[1],
                                               int k, const uint16_t* stage, int left) {
    const int lane = threadIdx.x % kWarp;
    const uint16_t* even = stage + Place(lane % 8, lane / 8);
    const uint16_t* odd = stage + Place(lane % 8, 4 + lane / 8);
    if (left >= kDepth) {
#pragma unroll
      for (int s = 0; s < kDepth / 32; ++s) {
        uint32_t b[4];
        LoadMatrix4(b, (s % 2 == 0 ? even : odd) + s / 2 * 64);
        Step(acc, x[0] + k + 32 * s, b[0], b[1]);
        Step(acc, x[0] + k + 32 * s + 16, b[2], b[3]);
      }
      return;
    }
#pragma unroll 1
    for (int s = 0; 32 * s < left; ++s) {
      uint32_t b[4];
      LoadMatrix4(b, (s % 2 == 0 ? even : odd) + s / 2 * 64);
      Step(acc, x[0] + k + 32 * s, b[0], b[1]);
      if (32 * s + 16 < left) Step(acc, x[0] + k + 32 * s + 16, b[2], b[3]);
    }
  }
};

// Up to 16, where they are: x of rows g and g + 8, at 4t, or null. Inside a step the order of k is
// free, so a thread takes four neighbours.
template <>
struct Multiply<false> {
  static __device__ __forceinline__ void Step(float (&acc)[4], const uint16_t* const (&x)[2], int k,
                                              const uint16_t* weights) {
    uint2 a[2] = {make_uint2(0, 0), make_uint2(0, 0)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (x[i] != nullptr) a[i] = *reinterpret_cast<const uint2*>(x[i] + k);
    }
    const uint2 b = *reinterpret_cast<const uint2*>(weights);
    const uint32_t fragment[4] = {a[0].x, a[1].x, a[0].y, a[1].y};
    Mma<Half::kF16>(acc, fragment, b.x, b.y);
  }
  static __device__ __forceinline__ void Stage(float (&acc)[4], const uint16_t* const (&x)[2],
                                               int k, const uint16_t* stage, int left) {
    const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
    const auto at = [&](int s) { return stage + Place(g, 2 * s + t / 2) + t % 2 * 4; };
    if (left >= kDepth) {
#pragma unroll
      for (int s = 0; s < kDepth / 16; ++s) Step(acc, x, k + 16 * s, at(s));
      return;
    }
#pragma unroll 1
    for (int s = 0; 16 * s < left; ++s) Step(acc, x, k + 16 * s, at(s));
  }
};

// scale: of the row of x. matrix: the group's.
__device__ __forceinline__ float Finish(const Call& call, const HalfProduct& product, int matrix,
                                        float scale, int64_t column, float total) {
  const float y = total * (scale * ScaleOf(product.weight, call.groups, matrix));
  return product.bias != nullptr ? y + product.bias[column] : y;
}

template <bool kGated, int kTotals>
__device__ __forceinline__ void StoreOutput(const Call& call, const HalfProduct& product,
                                            int matrix, int64_t slot, int64_t column, float scale,
                                            float before, const float (&total)[kTotals]) {
  const float y = Finish(call, product, matrix, scale, column, total[0]);
  product.out.data[slot * product.out.stride + column] = y;
  if constexpr (kGated) {
    const HalfProduct& gated = call.product[1];
    const float gate = Finish(call, gated, matrix, scale, column, total[1]);
    gated.out.data[slot * gated.out.stride + column] = Gated(call.op, gate, y);
  } else if (call.op == OutputOp::kAdd) {
    call.sum.data[slot * call.sum.stride + column] = before + y;
  }
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
    if (call.normed_row) {
      const int cols = static_cast<int>(call.x.cols), each = static_cast<int>(4 * blockDim.x);
      float* weights = room + LaneRow::Floats(cols);
      inputs.floats = room;
      if (threadIdx.x == 0) scales[0] = 1.0f;
      if (cols <= each) {
        ReadNormed<1>(call, inputs, weights);
      } else {
        ReadNormed<kHold>(call, inputs, weights);
      }
    } else {
      ReadInputs(call, tile, inputs);
    }
    x[0] = inputs.rounded + (g < rows ? g * inputs.pitch : 0) + 2 * t;
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
  constexpr int kRows = kTileRows<kFloats>;
  constexpr int kHalves = kFloats ? 1 : 2;
  constexpr int kOutputs = kRows * kTile;
  constexpr int kTotals = kGated ? 2 : 1;
  constexpr int kEach = CeilDiv(kOutputs, kAlong * kWarp);
  extern __shared__ __align__(128) uint16_t shared[];  // so that Place meets the banks it means
  __shared__ float scales[kFloatRows];
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
  const int beside = warp / kAlong;
  const uint16_t* x[kHalves] = {};
  float acc[4];
  float total[kEach][kTotals], before[kEach];
  int block_tile = blockIdx.x;
  int wave = 0;
  if (kFloats && call.normed_row) {
    const int cols = static_cast<int>(call.x.cols);
    float* norm = sums + 2 * warps * kOutputs + LaneRow::Floats(cols);
    for (int i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x) {
      CopyAsync16(norm + i, call.norm.weight + i, true);
    }
    CommitAsync();
  }
  // A stage is asked for kStages turns before its own. This code runs once, and the fewer
  // instructions it has, the sooner they are here.
#pragma unroll 1
  for (int turn = -kStages; turn <= 0 || block_tile < call.block_tiles; ++turn) {
    if (turn < 0) {
      weights.Load();
      continue;
    }
    if (turn == 0) {
      WaitForInputs();
      LetNextStart();  // behind the wait, as hold_next wants it
      FindInputs<kFloats>(call, tile, sums + 2 * warps * kOutputs, scales, x);
      if (block_tile >= call.block_tiles) break;
    }
    const int half = turn % 2;
    // Output i of this thread: a slot and a column.
    const auto slot_of = [&](int i) {
      return tile.begin + (threadIdx.x % (kAlong * kWarp) + i * kAlong * kWarp) / kTile;
    };
    const int in_tile = threadIdx.x % kTile;
    if (half == 0) {
      acc[0] = acc[1] = acc[2] = acc[3] = 0;
      if (wave == 0 && call.op == OutputOp::kAdd) {
        const int64_t column = int64_t{Weights::TileOfWarp(block_tile, beside)} * kTile + in_tile;
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          if (slot_of(i) >= tile.end || column >= call.product[0].weight.rows) break;
          before[i] = call.sum.data[slot_of(i) * call.sum.stride + column];
        }
      }
    }
    WaitAsync<kStages - 1>();
    __syncwarp();
    const int k0 = (wave * kAlong + warp % kAlong) * kTensorSlice + half * kDepth;
    Multiply<kFloats>::Stage(acc, x, k0, ring + half * kStage, stride - k0);
    __syncwarp();
    weights.Load();
    if (half == 0) continue;

    float* buffer = sums + turn / 2 % 2 * warps * kOutputs;
#pragma unroll
    for (int e = 0; e < 2 * kHalves; ++e) {
      if (kFloats && g >= kRows) break;
      buffer[warp * kOutputs + (g + e / 2 * 8) * kTile + 2 * t + e % 2] = acc[e];
    }
    __syncthreads();
    const int here = min(kAlong, slices - wave * kAlong);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int output = threadIdx.x % (kAlong * kWarp) + i * kAlong * kWarp;
      if (output >= kOutputs || slot_of(i) >= tile.end) break;
#pragma unroll
      for (int j = 0; j < kTotals; ++j) {
        const int from = kGated ? beside / 2 * 2 + j : beside;
        float slice_sum[kAlong];
#pragma unroll
        for (int s = 0; s < kAlong; ++s) {
          slice_sum[s] = buffer[(from * kAlong + s) * kOutputs + output];
        }
        // A sum begins with its first slice.
        total[i][j] = wave == 0 ? slice_sum[0] : total[i][j] + slice_sum[0];
#pragma unroll
        for (int s = 1; s < kAlong; ++s) {
          if (s < here) total[i][j] = total[i][j] + slice_sum[s];
        }
      }
    }
    if (++wave < waves) continue;
    wave = 0;
    const int weight_tile = Weights::TileOfWarp(block_tile, beside);
    block_tile += gridDim.x;
    if (kGated && beside % 2 != 0) continue;
    const int which = Weights::ProductOf(call, weight_tile, beside);
    const HalfProduct& product = call.product[which];
    const int64_t column =
        int64_t{weight_tile - (kGated ? 0 : call.begin[which])} * kTile + in_tile;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int output = threadIdx.x % (kAlong * kWarp) + i * kAlong * kWarp;
      const int64_t slot = slot_of(i);
      if (output >= kOutputs || slot >= tile.end || column >= product.weight.rows) break;
      const float scale =
          kFloats ? scales[output / kTile] : call.x.scale[SourceRow(call.groups, slot)];
      StoreOutput<kGated>(call, product, tile.matrix, slot, column, scale, before[i], total[i]);
    }
  }
  if (kFloats && !kGated && block_tile < call.all_tiles) {
    const int cols = static_cast<int>(call.x.cols);
    FloatTile(call, block_tile - call.block_tiles, reinterpret_cast<const float*>(shared),
              sums + 2 * warps * kOutputs + LaneRow::Floats(cols));
  }
}

template <bool kFloats, bool kGated, int kAlong>
void Launch(Stream stream, const FewProducts& few) {
  Call call = {};
  call.x = few.x;
  call.norm = few.norm;
  call.groups = few.groups;
  call.op = few.op;
  call.sum = few.sum;
  for (size_t i = 0; i < FewProducts::kMost; ++i) {
    const int64_t rows = i < few.products.size() ? few.products[i].weight.rows : 0;
    if (i < few.products.size()) call.product[i] = few.products[i];
    call.begin[i + 1] = call.begin[i] + int(CeilDiv<int64_t>(rows, kTile));
  }
  const int64_t row_tiles = TileBound(few.products[0].out.rows, kTileRows<kFloats>, few.groups);
  // As many tiles in a block as leave enough blocks.
  const int tiles = kGated ? 2 * call.begin[1] : call.begin[FewProducts::kMost];
  int beside = kWarpsMost / kAlong;
  while (beside > (kGated ? 2 : 1) && tiles / beside * row_tiles < ThisGpu().multiprocessors - 4)
    beside /= 2;
  const int warps = kAlong * beside;
  call.block_tiles = call.all_tiles = CeilDiv(tiles, beside);
  const int64_t cols = few.x.cols;
  call.normed_row = kFloats && few.norm.weight != nullptr && few.x.rows == 1 &&
                    few.groups.count == 0 && cols <= 4 * kHold * warps * kWarp &&
                    NormedRowBytes(cols) <= InputBytes();
  const bool joined = !few.floats.empty() && !kGated &&
                      AddFloats(few.floats, size_t(warps * kStages * kStage) * 2, &call);
  const auto kernel = FewRowsKernel<kFloats, kGated, kAlong>;
  const dim3 grid(unsigned(std::min<int64_t>(
                      call.all_tiles, CeilDiv<int64_t>(2 * ThisGpu().multiprocessors, row_tiles))),
                  unsigned(row_tiles));
  LaunchEarly(kernel, grid, warps * kWarp, BlockShared(), stream, call);
  if (!few.floats.empty() && !joined) RunFloats(stream, few);
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

// With weights that are not packed.
void RunPlainProducts(Stream stream, const FewProducts& call) {
  if (RunSmallProducts(stream, call)) return;
  FewProducts few = call;
  const auto launch = few.x.f32 != nullptr ? LaunchBySlices<true> : LaunchBySlices<false>;
  const std::span<const HalfProduct> all = few.products;
  for (size_t first = 0; first < all.size(); first += FewProducts::kMost) {
    few.products = all.subspan(first, std::min(FewProducts::kMost, all.size() - first));
    if (first > 0) few.floats = {};
    launch(stream, few);
  }
}

}  // namespace

bool MayRoundOnTheWay(const View& x) { return Fits(x, 2); }
bool MayNormOnTheWay(const View& x) { return Fits(x, 6); }

void RunFewProducts(Stream stream, const FewProducts& call) {
  // F32 rides along with the first of them.
  std::vector<HalfProduct> packed, plain;
  for (const HalfProduct& one : call.products) {
    (one.weight.packed != PackedForm::kNone ? packed : plain).push_back(one);
  }
  FewProducts few = call;
  if (!plain.empty()) {
    few.products = plain;
    RunPlainProducts(stream, few);
    few.floats = {};
  }
  if (packed.empty()) return;
  few.products = packed;
  RunPackedFew(stream, few);
}

}  // namespace reprise::cuda
