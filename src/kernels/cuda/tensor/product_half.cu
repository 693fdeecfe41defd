// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/product_half.h"
#include "kernels/cuda/tensor/product_many.h"
#include "kernels/cuda/tensor/tiles.cuh"

namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

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

__device__ __forceinline__ void StoreOutput(const View& out, const float* bias, float scale,
                                            int64_t row, int64_t column, float total) {
  const float y = total * scale;
  out.data[row * out.stride + column] = bias != nullptr ? y + bias[column] : y;
}

// --- Few rows ------------------------------------------------------------------------------

__device__ __forceinline__ uint2 LoadStream(const uint16_t* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(p));
  return v;
}

// What one launch computes: the matrices of an input, one behind another along the grid.
struct FewProducts {
  static constexpr int kMost = 4;
  HalfProduct product[kMost];
  int begin[kMost + 1];  // the first block of each, and the end
};

// Four elements of a row of x, as the step takes them. What is not rounded yet is rounded here, and
// the largest of it kept.
template <Half kType, bool kFloats>
__device__ __forceinline__ uint2 LoadRow(const void* row, int64_t k, float inverse,
                                         float* largest) {
  if constexpr (kFloats) {
    const float4 x = *reinterpret_cast<const float4*>(static_cast<const float*>(row) + k);
    *largest = fmaxf(*largest, fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))));
    return make_uint2(Pack2<kType>(x.x * inverse, x.y * inverse),
                      Pack2<kType>(x.z * inverse, x.w * inverse));
  } else {
    return *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(row) + k);
  }
}

// As RoundRow: the power of two that keeps a row of f16 finite.
template <Half kType>
__device__ __forceinline__ float ScaleOf(float largest) {
  const bool large = kType == Half::kF16 && largest >= 65520.0f && !isinf(largest);
  return large ? ldexpf(1.0f, ilogbf(largest) + 1 - 15) : 1.0f;
}

// A block has 8 * kColumnTiles rows of one matrix and 16 rows of x (8, where they are floats); warp
// w has slices w, w + warps, ... of K. Sums of slices meet in shared memory and are added in order.
// Inside a step of 16 the order of k is free, so a thread takes four neighbours of a row as they
// lie.
//
// Floats are rounded as if no row had to be scaled; a block that finds one that has begins anew.
template <Half kType, bool kFloats, int kColumnTiles, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp)
    FewRowsKernel(HalfRows x, HalfGroups groups, const __grid_constant__ FewProducts products) {
  constexpr int kRows = kFloats ? 8 : 16;
  constexpr int kHalves = kRows / 8;
  constexpr int kColumns = 8 * kColumnTiles;
  constexpr int kOutputs = kRows * kColumns;
  constexpr int kEach = CeilDiv(kOutputs, kWarps * kWarp);
  constexpr int kUnroll = 8;
  __shared__ float sums[2][kWarps][kOutputs];
  __shared__ float warp_largest[kWarps][8];
  int which = 0;
  while (int(blockIdx.x) >= products.begin[which + 1]) ++which;
  const HalfMatrix& weight = products.product[which].weight;
  const int warp = threadIdx.x / kWarp;
  const int g = threadIdx.x % kWarp / 4;
  const int t = threadIdx.x % 4;
  const Tile tile = TileOf<kRows>(x, groups, blockIdx.y);
  if (tile.matrix < 0) return;
  const uint16_t* matrix = weight.data + tile.matrix * groups.matrix_stride;
  const int64_t first = int64_t{int(blockIdx.x) - products.begin[which]} * kColumns;

  const void* rows[kHalves];
#pragma unroll
  for (int i = 0; i < kHalves; ++i) {
    const int64_t slot = tile.begin + g + 8 * i;
    const int64_t place = slot < tile.end ? SourceRow(groups, slot) * x.stride + 4 * t : -1;
    rows[i] = place < 0 ? nullptr
              : kFloats ? static_cast<const void*>(x.f32 + place)
                        : static_cast<const void*>(x.data + place);
  }
  const uint16_t* columns[kColumnTiles];
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    const int64_t column = first + g + 8 * j;
    columns[j] = column < weight.rows ? matrix + column * weight.stride + 4 * t : nullptr;
  }

  float total[kEach];
  float scale = 1;  // of row g, where rows are floats
  const int slices = static_cast<int>(CeilDiv<int64_t>(weight.cols, kTensorSlice));
#pragma unroll 1
  for (int pass = 0; pass < (kFloats ? 2 : 1); ++pass) {
    float largest = 0;
    const float inverse = 1 / scale;
    for (int wave = 0; wave * kWarps < slices; ++wave) {
      const int slice = wave * kWarps + warp;
      float acc[kColumnTiles][4] = {};
      const int64_t end = min(int64_t{slice + 1} * kTensorSlice, weight.stride);
#pragma unroll 1
      for (int64_t k = int64_t{slice} * kTensorSlice; k < end; k += 16 * kUnroll) {
        uint2 b[kUnroll][kColumnTiles];
        uint2 a[kUnroll][kHalves];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const bool inside = k + 16 * u < end;
#pragma unroll
          for (int j = 0; j < kColumnTiles; ++j) {
            b[u][j] = inside && columns[j] != nullptr ? LoadStream(columns[j] + k + 16 * u)
                                                      : make_uint2(0, 0);
          }
#pragma unroll
          for (int i = 0; i < kHalves; ++i) {
            a[u][i] = inside && rows[i] != nullptr
                          ? LoadRow<kType, kFloats>(rows[i], k + 16 * u, inverse, &largest)
                          : make_uint2(0, 0);
          }
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const uint2 low = a[u][0];
          const uint2 high = kHalves > 1 ? a[u][kHalves - 1] : make_uint2(0, 0);
          const uint32_t fragment[4] = {low.x, high.x, low.y, high.y};
#pragma unroll
          for (int j = 0; j < kColumnTiles; ++j) Mma<kType>(acc[j], fragment, b[u][j].x, b[u][j].y);
        }
      }
      float* mine = sums[wave % 2][warp];
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2 * kHalves; ++e) {
          mine[(g + e / 2 * 8) * kColumns + 8 * j + 2 * t + e % 2] = acc[j][e];
        }
      }
      __syncthreads();
      const int here = min(kWarps, slices - wave * kWarps);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int output = threadIdx.x + i * kWarps * kWarp;
        if (output >= kOutputs) break;
        for (int s = 0; s < here; ++s) {
          const float slice_sum = sums[wave % 2][s][output];
          total[i] = wave == 0 && s == 0 ? slice_sum : total[i] + slice_sum;
        }
      }
    }
    if constexpr (kFloats) {
      for (int d = 1; d < 4; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
      if (t == 0) warp_largest[warp][g] = largest;
      __syncthreads();
      for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, warp_largest[w][g]);
      if (pass == 0) scale = ScaleOf<kType>(largest);
      // All of a block have the same rows, so all agree.
      if (__syncthreads_or(scale != 1.0f) == 0) break;
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int output = threadIdx.x + i * kWarps * kWarp;
    const int64_t slot = tile.begin + output / kColumns;
    const int64_t column = first + output % kColumns;
    float row_scale = 1;
    if constexpr (kFloats) {
      float largest = 0;
      const int row = output / kColumns % 8;
      for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, warp_largest[w][row]);
      row_scale = ScaleOf<kType>(largest);
    }
    if (output >= kOutputs || slot >= tile.end || column >= weight.rows) continue;
    if constexpr (!kFloats) row_scale = x.scale[SourceRow(groups, slot)];
    StoreOutput(products.product[which].out, products.product[which].bias, row_scale, slot, column,
                total[i]);
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

constexpr int64_t kFewRows = 16;
// So few that it is cheaper to round them in every block than to wait for another kernel.
constexpr int64_t kFloatRows = 4;

template <Half kType, bool kFloats, int kWarps>
void LaunchFew(Stream stream, const HalfRows& x, const HalfGroups& groups,
               std::span<const HalfProduct> products) {
  constexpr int kColumnTiles = 2;
  FewProducts few = {};
  for (size_t i = 0; i < FewProducts::kMost; ++i) {
    const int64_t columns = i < products.size() ? products[i].weight.rows : 0;
    if (i < products.size()) few.product[i] = products[i];
    few.begin[i + 1] = few.begin[i] + int(CeilDiv<int64_t>(columns, 8 * kColumnTiles));
  }
  const dim3 grid(unsigned(few.begin[FewProducts::kMost]),
                  unsigned(TileBound(products[0].out.rows, kFloats ? 8 : 16, groups)));
  FewRowsKernel<kType, kFloats, kColumnTiles, kWarps>
      <<<grid, kWarps * kWarp, 0, stream>>>(x, groups, few);
}

template <Half kType, bool kFloats>
void LaunchFewBySlices(Stream stream, const HalfRows& x, const HalfGroups& groups,
                       std::span<const HalfProduct> products) {
  const int64_t slices = CeilDiv<int64_t>(x.cols, kTensorSlice);
  const auto launch = slices <= 1   ? LaunchFew<kType, kFloats, 1>
                      : slices <= 2 ? LaunchFew<kType, kFloats, 2>
                      : slices <= 4 ? LaunchFew<kType, kFloats, 4>
                                    : LaunchFew<kType, kFloats, 8>;
  while (!products.empty()) {
    const size_t count = std::min<size_t>(FewProducts::kMost, products.size());
    launch(stream, x, groups, products.first(count));
    products = products.subspan(count);
  }
}

template <Half kType, int kBlockRows, int kBlockColumns, int kWarpRows, int kWarpColumns>
void LaunchMany(Stream stream, const HalfRows& x, const HalfMatrix& weight,
                const HalfGroups& groups, const float* bias, const View& out) {
  constexpr size_t kShared = size_t{kStages} * (kBlockRows + kBlockColumns) * kDepth * 2;
  const auto kernel = ManyRowsKernel<kType, kBlockRows, kBlockColumns, kWarpRows, kWarpColumns>;
  static const bool allowed = (AllowShared(kernel, kShared), true);
  (void)allowed;
  const dim3 grid(unsigned(CeilDiv<int64_t>(weight.rows, kBlockColumns)),
                  unsigned(TileBound(out.rows, kBlockRows, groups)));
  kernel<<<grid, kWarpRows * kWarpColumns * kWarp, kShared, stream>>>(x, weight, groups, bias, out);
}

template <Half kType>
void Run(Stream stream, const HalfRows& x, const HalfGroups& groups,
         std::span<const HalfProduct> products) {
  const int64_t slots = products[0].out.rows;
  // Rows that one matrix has to expect.
  const int64_t rows = groups.count == 0 ? slots : CeilDiv<int64_t>(slots, groups.count);
  if (x.f32 != nullptr) return LaunchFewBySlices<kType, true>(stream, x, groups, products);
  if (rows <= kFewRows) return LaunchFewBySlices<kType, false>(stream, x, groups, products);
  for (const HalfProduct& one : products) {
    if (groups.row == nullptr) {
      ManyRowsProduct(stream, kType, x, one.weight, groups, one.bias, one.out);
    } else {
      LaunchMany<kType, 64, 64, 2, 2>(stream, x, one.weight, groups, one.bias, one.out);
    }
  }
}

}  // namespace

void RoundRows(Stream stream, Half type, const View& x, const HalfRows& out) {
  const auto kernel = type == Half::kF16 ? RoundKernel<Half::kF16> : RoundKernel<Half::kBF16>;
  kernel<<<unsigned(x.rows), kRoundThreads, 0, stream>>>(x, out);
}

bool MayRoundOnTheWay(const View& x) {
  return x.rows <= kFloatRows && x.cols % 16 == 0 && x.stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

HalfRows RoundedOnTheWay(const View& x) {
  return {nullptr, nullptr, x.rows, x.cols, x.stride, x.data};
}

void Products(Stream stream, Half type, const HalfRows& x, std::span<const HalfProduct> products) {
  if (products.empty() || x.rows == 0) return;
  (type == Half::kF16 ? Run<Half::kF16> : Run<Half::kBF16>)(stream, x, {}, products);
}

void ProductGroups(Stream stream, Half type, const HalfRows& x, const HalfMatrix& weight,
                   const HalfGroups& groups, const float* bias, const View& out) {
  if (out.rows == 0) return;
  const HalfProduct one[] = {{weight, bias, out}};
  (type == Half::kF16 ? Run<Half::kF16> : Run<Half::kBF16>)(stream, x, groups,
                                                            std::span<const HalfProduct>(one));
}

}  // namespace reprise::cuda
