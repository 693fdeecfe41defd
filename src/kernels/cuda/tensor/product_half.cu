// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packed/product_packed.h"
#include "kernels/cuda/tensor/few/product_few.h"
#include "kernels/cuda/tensor/many/product_many.h"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/product_half.h"
#include "kernels/cuda/tensor/tiles.cuh"

namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

__device__ __forceinline__ void StoreOutput(const View& out, const float* bias, float scale,
                                            int64_t row, int64_t column, float total) {
  const float y = total * scale;
  out.data[row * out.stride + column] = bias != nullptr ? y + bias[column] : y;
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
template <int kBlockRows, int kBlockColumns, int kWarpRows, int kWarpColumns>
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
  const float matrix_scale = ScaleOf(weight, groups, tile.matrix);
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
          Mma<Half::kF16>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
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
      const float scale = x.scale[SourceRow(groups, slot)] * matrix_scale;
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

template <int kBlockRows, int kBlockColumns, int kWarpRows, int kWarpColumns>
void LaunchMany(Stream stream, const HalfRows& x, const HalfMatrix& weight,
                const HalfGroups& groups, const float* bias, const View& out) {
  constexpr size_t kShared = size_t{kStages} * (kBlockRows + kBlockColumns) * kDepth * 2;
  static_assert(kShared <= kBlockSharedLeast);
  const auto kernel = ManyRowsKernel<kBlockRows, kBlockColumns, kWarpRows, kWarpColumns>;
  const dim3 grid(unsigned(CeilDiv<int64_t>(weight.rows, kBlockColumns)),
                  unsigned(TileBound(out.rows, kBlockRows, groups)));
  LaunchInTurn(kernel, grid, kWarpRows * kWarpColumns * kWarp, kShared, stream, x, weight, groups,
               bias, out);
}

void Run(Stream stream, const HalfRows& x, const HalfGroups& groups,
         std::span<const HalfProduct> products) {
  const int64_t slots = products[0].out.rows;
  // Rows that one matrix has to expect.
  const int64_t rows = groups.count == 0 ? slots : CeilDiv<int64_t>(slots, groups.count);
  // Rows that are rounded already are few if they are one, where warpgroups take them.
  const int64_t few = groups.count > 0 ? kFewGroupRows : ThisGpu().wgmma ? 1 : kFewRows;
  if (x.f32 != nullptr || rows <= few) {
    return RunFewProducts(stream, {.x = x, .groups = groups, .products = products});
  }
  if (groups.row == nullptr && ThisGpu().wgmma) {
    return ManyRowsProducts(stream, x, groups, products);
  }
  for (const HalfProduct& one : products) {
    LaunchMany<64, 64, 2, 2>(stream, x, one.weight, groups, one.bias, one.out);
  }
}

}  // namespace

HalfRows RoundedOnTheWay(const View& x) {
  return {nullptr, nullptr, x.rows, x.cols, x.stride, x.data};
}

void Products(Stream stream, const HalfRows& x, std::span<const HalfProduct> products) {
  if (products.empty() || x.rows == 0) return;
  if (x.f32 != nullptr) return RunFewProducts(stream, {.x = x, .products = products});
  ForEachForm(products, [&](std::span<const HalfProduct> alike) {
    if (alike[0].weight.packed != PackedForm::kNone) {
      ThisGpu().wgmma ? RunPackedMany(stream, x, alike) : RunPackedTiles(stream, x, alike);
    } else {
      Run(stream, x, {}, alike);
    }
  });
}

void ProductGroups(Stream stream, const HalfRows& x, const HalfMatrix& weight,
                   const HalfGroups& groups, const float* bias, const View& out) {
  if (out.rows == 0) return;
  const HalfProduct one[] = {{weight, bias, out}};
  Run(stream, x, groups, std::span<const HalfProduct>(one));
}

}  // namespace reprise::cuda
