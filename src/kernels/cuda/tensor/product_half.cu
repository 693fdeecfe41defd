// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/product_half.h"

namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kWarp = 32;

// --- Rounding of activations ---------------------------------------------------------------

constexpr int kRoundThreads = 256;

__device__ float LargestOrNaN(const float* x, int64_t cols) {
  __shared__ float shared[kRoundThreads / kWarp];
  float largest = 0;
  for (int64_t i = threadIdx.x; i < cols; i += kRoundThreads) {
    const float magnitude = fabsf(x[i]);
    largest = magnitude > largest || isnan(magnitude) ? magnitude : largest;
    if (isnan(magnitude)) break;
  }
  const auto join = [](float a, float b) { return isnan(a) || a > b ? a : b; };
  for (int d = kWarp / 2; d > 0; d /= 2) {
    largest = join(largest, __shfl_xor_sync(~0u, largest, d));
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = largest;
  __syncthreads();
  for (int w = 0; w < kRoundThreads / kWarp; ++w) largest = join(largest, shared[w]);
  return largest;
}

template <Half kType>
__global__ void __launch_bounds__(kRoundThreads) RoundKernel(View x, HalfRows out) {
  const int64_t row = blockIdx.x;
  const float* in = x.data + row * x.stride;
  float scale = 1;
  if constexpr (kType == Half::kF16) {
    const float largest = LargestOrNaN(in, x.cols);
    if (largest >= 65520.0f && !isinf(largest)) scale = ldexpf(1.0f, ilogbf(largest) + 1 - 15);
  }
  const float inverse = 1 / scale;
  uint32_t* to = reinterpret_cast<uint32_t*>(out.data + row * out.stride);
  for (int64_t i = threadIdx.x; i < out.stride / 2; i += kRoundThreads) {
    const float low = 2 * i < x.cols ? in[2 * i] : 0.0f;
    const float high = 2 * i + 1 < x.cols ? in[2 * i + 1] : 0.0f;
    to[i] = Pack2<kType>(low * inverse, high * inverse);
  }
  if (threadIdx.x == 0) out.scale[row] = scale;
}

// --- Rows of a block, with or without groups -----------------------------------------------

struct Tile {
  int matrix = -1;  // -1: there is nothing to do
  int64_t begin = 0;
  int64_t end = 0;
};

// Tile number `index` of the groups, cut into tiles of at most kRows rows. Called by a whole warp.
template <int kRows>
__device__ Tile FindTile(const HalfGroups& groups, int index) {
  const int lane = threadIdx.x % kWarp;
  int before = 0;
  for (int first = 0; first < groups.count; first += kWarp) {
    const int group = first + lane;
    const bool real = group < groups.count;
    const int begin = real ? groups.begin[group] : 0;
    const int end = real ? groups.begin[group + 1] : 0;
    const int tiles = CeilDiv(end - begin, kRows);
    int upto = tiles;  // of this lane and those before it
    for (int d = 1; d < kWarp; d *= 2) {
      const int other = __shfl_up_sync(~0u, upto, d);
      if (lane >= d) upto += other;
    }
    const int mine = before + upto - tiles;
    const unsigned found = __ballot_sync(~0u, index >= mine && index < mine + tiles);
    if (found != 0) {
      const int owner = __ffs(found) - 1;
      const int from = __shfl_sync(~0u, begin + (index - mine) * kRows, owner);
      return {first + owner, from, min(from + kRows, __shfl_sync(~0u, end, owner))};
    }
    before += __shfl_sync(~0u, upto, kWarp - 1);
  }
  return {};
}

template <int kRows>
__device__ Tile TileOf(const HalfRows& x, const HalfGroups& groups, int index) {
  if (groups.count > 0) return FindTile<kRows>(groups, index);
  const int64_t begin = int64_t{index} * kRows;
  return {0, begin, min(begin + kRows, x.rows)};
}

__device__ __forceinline__ int64_t SourceRow(const HalfGroups& groups, int64_t slot) {
  return groups.row != nullptr ? groups.row[slot] : slot;
}

__device__ __forceinline__ void StoreOutput(const View& out, const float* bias, float scale,
                                            int64_t row, int64_t column, float total) {
  const float y = total * scale;
  out.data[row * out.stride + column] = bias != nullptr ? y + bias[column] : y;
}

// --- Few rows ------------------------------------------------------------------------------

__device__ __forceinline__ uint2 LoadStream(const uint16_t* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

// A block has 8 * kColumnTiles rows of the matrix and 16 * kRowTiles rows of x; warp w has slices
// w, w + warps, ... of K. Sums of slices meet in shared memory and are added in order. Inside a
// step of 16 the order of k is free, so a thread takes four neighbours of a row as they lie.
template <Half kType, int kRowTiles, int kColumnTiles, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp)
    FewRowsKernel(HalfRows x, HalfMatrix weight, HalfGroups groups, const float* bias, View out) {
  constexpr int kRows = 16 * kRowTiles;
  constexpr int kColumns = 8 * kColumnTiles;
  constexpr int kOutputs = kRows * kColumns;
  constexpr int kEach = CeilDiv(kOutputs, kWarps * kWarp);
  constexpr int kUnroll = kRowTiles >= 4 ? 2 : kRowTiles == 2 ? 4 : 8;
  constexpr int kBuffers = kRowTiles >= 4 ? 1 : 2;  // with two, one barrier a wave suffices
  __shared__ float sums[kBuffers][kWarps][kOutputs];
  const int warp = threadIdx.x / kWarp;
  const int g = threadIdx.x % kWarp / 4;
  const int t = threadIdx.x % 4;
  const Tile tile = TileOf<kRows>(x, groups, blockIdx.y);
  if (tile.matrix < 0) return;
  const uint16_t* matrix = weight.data + tile.matrix * groups.matrix_stride;
  const int64_t first = int64_t{blockIdx.x} * kColumns;

  const uint16_t* rows[2 * kRowTiles];
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const int64_t slot = tile.begin + g + 8 * i;
    rows[i] = slot < tile.end ? x.data + SourceRow(groups, slot) * x.stride + 4 * t : nullptr;
  }
  const uint16_t* columns[kColumnTiles];
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    const int64_t column = first + g + 8 * j;
    columns[j] = column < weight.rows ? matrix + column * weight.stride + 4 * t : nullptr;
  }

  float total[kEach];
  const int slices = static_cast<int>(CeilDiv<int64_t>(weight.cols, kTensorSlice));
  for (int wave = 0; wave * kWarps < slices; ++wave) {
    const int slice = wave * kWarps + warp;
    float acc[kRowTiles][kColumnTiles][4] = {};
    const int64_t end = min(int64_t{slice + 1} * kTensorSlice, weight.stride);
#pragma unroll 1
    for (int64_t k = int64_t{slice} * kTensorSlice; k < end; k += 16 * kUnroll) {
      uint2 b[kUnroll][kColumnTiles];
      uint2 a[kUnroll][2 * kRowTiles];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const bool inside = k + 16 * u < end;
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          b[u][j] = inside && columns[j] != nullptr ? LoadStream(columns[j] + k + 16 * u)
                                                    : make_uint2(0, 0);
        }
#pragma unroll
        for (int i = 0; i < 2 * kRowTiles; ++i) {
          a[u][i] = inside && rows[i] != nullptr
                        ? *reinterpret_cast<const uint2*>(rows[i] + k + 16 * u)
                        : make_uint2(0, 0);
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          const uint32_t fragment[4] = {a[u][2 * i].x, a[u][2 * i + 1].x, a[u][2 * i].y,
                                        a[u][2 * i + 1].y};
#pragma unroll
          for (int j = 0; j < kColumnTiles; ++j) Mma<kType>(acc[i][j], fragment, b[u][j].x, b[u][j].y);
        }
      }
    }
    if (kBuffers == 1 && wave > 0) __syncthreads();
    float* mine = sums[wave % kBuffers][warp];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          mine[(16 * i + g + e / 2 * 8) * kColumns + 8 * j + 2 * t + e % 2] = acc[i][j][e];
        }
      }
    }
    __syncthreads();
    const int here = min(kWarps, slices - wave * kWarps);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int output = threadIdx.x + i * kWarps * kWarp;
      if (output >= kOutputs) break;
      for (int s = 0; s < here; ++s) {
        const float slice_sum = sums[wave % kBuffers][s][output];
        total[i] = wave == 0 && s == 0 ? slice_sum : total[i] + slice_sum;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int output = threadIdx.x + i * kWarps * kWarp;
    const int64_t slot = tile.begin + output / kColumns;
    const int64_t column = first + output % kColumns;
    if (output >= kOutputs || slot >= tile.end || column >= weight.rows) continue;
    StoreOutput(out, bias, x.scale[SourceRow(groups, slot)], slot, column, total[i]);
  }
}

// --- Many rows -----------------------------------------------------------------------------

constexpr int kDepth = 64;  // elements of K in a stage: rows of 128 bytes in shared memory
constexpr int kStages = 4;

// Chunk of 16 bytes in a row of 128, moved so that eight rows of a column lie in different banks.
__device__ __forceinline__ int Swizzled(int row, int chunk) {
  return row * kDepth + ((chunk ^ row) & 7) * 8;
}

// A block has kBlockRows rows of x and kBlockColumns rows of the matrix; its warps stand in a grid
// of kWarpRows x kWarpColumns.
template <Half kType, int kBlockRows, int kBlockColumns, int kWarpRows, int kWarpColumns>
__global__ void __launch_bounds__(kWarpRows* kWarpColumns* kWarp)
    ManyRowsKernel(HalfRows x, HalfMatrix weight, HalfGroups groups, const float* bias, View out) {
  constexpr int kThreads = kWarpRows * kWarpColumns * kWarp;
  constexpr int kRowTiles = kBlockRows / kWarpRows / 16;
  constexpr int kColumnTiles = kBlockColumns / kWarpColumns / 8;
  static_assert(kColumnTiles % 2 == 0);
  constexpr int kStage = (kBlockRows + kBlockColumns) * kDepth;
  extern __shared__ __align__(128) uint16_t shared[];
  const Tile tile = TileOf<kBlockRows>(x, groups, blockIdx.y);
  if (tile.matrix < 0) return;
  const uint16_t* matrix = weight.data + tile.matrix * groups.matrix_stride;
  const int64_t first = int64_t{blockIdx.x} * kBlockColumns;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int warp_row = warp / kWarpColumns * (kBlockRows / kWarpRows);
  const int warp_column = warp % kWarpColumns * (kBlockColumns / kWarpColumns);

  const auto load = [&](int stage, int64_t k) {
    uint16_t* rows = shared + stage * kStage;
    for (int i = threadIdx.x; i < (kBlockRows + kBlockColumns) * 8; i += kThreads) {
      const int row = i / 8;
      const int chunk = i % 8;
      const bool inside = k + chunk * 8 < weight.stride;
      const uint16_t* from;
      bool valid;
      if (row < kBlockRows) {
        const int64_t slot = tile.begin + row;
        valid = inside && slot < tile.end;
        from = valid ? x.data + SourceRow(groups, slot) * x.stride + k + chunk * 8 : x.data;
        CopyAsync16(rows + Swizzled(row, chunk), from, valid);
      } else {
        const int64_t column = first + row - kBlockRows;
        valid = inside && column < weight.rows;
        from = valid ? matrix + column * weight.stride + k + chunk * 8 : weight.data;
        CopyAsync16(rows + kBlockRows * kDepth + Swizzled(row - kBlockRows, chunk), from, valid);
      }
    }
  };

  float acc[kRowTiles][kColumnTiles][4] = {};
  float total[kRowTiles][kColumnTiles][4];
  const int steps = static_cast<int>(CeilDiv<int64_t>(weight.stride, kDepth));
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) load(s, int64_t{s} * kDepth);
    CommitAsync();
  }
  for (int step = 0; step < steps; ++step) {
    WaitAsync<kStages - 2>();
    __syncthreads();
    if (step + kStages - 1 < steps) {
      load((step + kStages - 1) % kStages, int64_t{step + kStages - 1} * kDepth);
    }
    CommitAsync();
    const uint16_t* a_rows = shared + step % kStages * kStage;
    const uint16_t* b_rows = a_rows + kBlockRows * kDepth;
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      uint32_t a[kRowTiles][4];
      uint32_t b[kColumnTiles / 2][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        LoadMatrix4(a[i], a_rows + Swizzled(warp_row + 16 * i + lane % 16, 2 * k + lane / 16));
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles / 2; ++j) {
        const int row = warp_column + 16 * j + lane % 8 + lane / 16 * 8;
        LoadMatrix4(b[j], b_rows + Swizzled(row, 2 * k + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          Mma<kType>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
    if ((step + 1) % (kTensorSlice / kDepth) == 0 || step + 1 == steps) {
      const bool one = step < kTensorSlice / kDepth;
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            total[i][j][e] = one ? acc[i][j][e] : total[i][j][e] + acc[i][j][e];
            acc[i][j][e] = 0;
          }
        }
      }
    }
  }
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t slot = tile.begin + warp_row + 16 * i + g + 8 * half;
      if (slot >= tile.end) continue;
      const float scale = x.scale[SourceRow(groups, slot)];
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int64_t column = first + warp_column + 8 * j + 2 * t + e;
          if (column < weight.rows) {
            StoreOutput(out, bias, scale, slot, column, total[i][j][2 * half + e]);
          }
        }
      }
    }
  }
}

// --- Choice of a form ----------------------------------------------------------------------

constexpr int64_t kFewRows = 64;

// Tiles of `rows` rows that `slots` rows in groups may need.
int64_t TileBound(int64_t slots, int rows, const HalfGroups& groups) {
  const int64_t tiles = CeilDiv<int64_t>(slots, rows);
  return groups.count == 0 ? tiles : std::min(slots, tiles + groups.count);
}

template <Half kType, int kRowTiles, int kColumnTiles, int kWarps>
void LaunchFew(Stream stream, const HalfRows& x, const HalfMatrix& weight, const HalfGroups& groups,
               const float* bias, const View& out) {
  const dim3 grid(unsigned(CeilDiv<int64_t>(weight.rows, 8 * kColumnTiles)),
                  unsigned(TileBound(out.rows, 16 * kRowTiles, groups)));
  FewRowsKernel<kType, kRowTiles, kColumnTiles, kWarps>
      <<<grid, kWarps * kWarp, 0, stream>>>(x, weight, groups, bias, out);
}

template <Half kType, int kRowTiles, int kColumnTiles>
void LaunchFewBySlices(Stream stream, const HalfRows& x, const HalfMatrix& weight,
                       const HalfGroups& groups, const float* bias, const View& out) {
  const int64_t slices = CeilDiv<int64_t>(weight.cols, kTensorSlice);
  const auto launch = slices <= 1   ? LaunchFew<kType, kRowTiles, kColumnTiles, 1>
                      : slices <= 2 ? LaunchFew<kType, kRowTiles, kColumnTiles, 2>
                      : slices <= 4 ? LaunchFew<kType, kRowTiles, kColumnTiles, 4>
                                    : LaunchFew<kType, kRowTiles, kColumnTiles, 8>;
  launch(stream, x, weight, groups, bias, out);
}

template <Half kType, int kBlockRows, int kBlockColumns, int kWarpRows, int kWarpColumns>
void LaunchMany(Stream stream, const HalfRows& x, const HalfMatrix& weight, const HalfGroups& groups,
                const float* bias, const View& out) {
  constexpr size_t kShared = size_t{kStages} * (kBlockRows + kBlockColumns) * kDepth * 2;
  const auto kernel = ManyRowsKernel<kType, kBlockRows, kBlockColumns, kWarpRows, kWarpColumns>;
  static const bool allowed = (AllowShared(kernel, kShared), true);
  (void)allowed;
  const dim3 grid(unsigned(CeilDiv<int64_t>(weight.rows, kBlockColumns)),
                  unsigned(TileBound(out.rows, kBlockRows, groups)));
  kernel<<<grid, kWarpRows * kWarpColumns * kWarp, kShared, stream>>>(x, weight, groups, bias, out);
}

template <Half kType>
void Run(Stream stream, const HalfRows& x, const HalfMatrix& weight, const HalfGroups& groups,
         const float* bias, const View& out) {
  // Rows that one matrix has to expect.
  const int64_t rows = groups.count == 0 ? out.rows : CeilDiv<int64_t>(out.rows, groups.count);
  if (rows <= 16) return LaunchFewBySlices<kType, 1, 2>(stream, x, weight, groups, bias, out);
  if (rows <= 32) return LaunchFewBySlices<kType, 2, 2>(stream, x, weight, groups, bias, out);
  if (rows <= kFewRows) return LaunchFewBySlices<kType, 4, 2>(stream, x, weight, groups, bias, out);
  const int64_t large = CeilDiv<int64_t>(rows, 128) * CeilDiv<int64_t>(weight.rows, 128);
  if (groups.count == 0 && large >= 132) {
    return LaunchMany<kType, 128, 128, 2, 4>(stream, x, weight, groups, bias, out);
  }
  LaunchMany<kType, 64, 64, 2, 2>(stream, x, weight, groups, bias, out);
}

}  // namespace

void RoundRows(Stream stream, Half type, const View& x, const HalfRows& out) {
  const auto kernel = type == Half::kF16 ? RoundKernel<Half::kF16> : RoundKernel<Half::kBF16>;
  kernel<<<unsigned(x.rows), kRoundThreads, 0, stream>>>(x, out);
}

void Product(Stream stream, Half type, const HalfRows& x, const HalfMatrix& weight,
             const float* bias, const View& out) {
  ProductGroups(stream, type, x, weight, {}, bias, out);
}

void ProductGroups(Stream stream, Half type, const HalfRows& x, const HalfMatrix& weight,
                   const HalfGroups& groups, const float* bias, const View& out) {
  if (out.rows == 0) return;
  (type == Half::kF16 ? Run<Half::kF16> : Run<Half::kBF16>)(stream, x, weight, groups, bias, out);
}

}  // namespace reprise::cuda
