// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "kernels/cuda/tensor/many/layout.cuh"

// What becomes of the sums of a tile: Find while they are computed, then Store. They lie as
// products of a warpgroup leave them (wgmma.cuh).
namespace reprise::cuda {

// Of rows `row` and `row` + 8 of the tile, which are rows of x, a thread has two results in each
// group of eight columns.
template <typename Layout>
struct Outputs {
  static constexpr int kEach = Layout::kColumns / 2;

  Tile tile;
  int matrix;
  int row;
  int column;  // the thread's first
  float scale[2];

  __device__ __forceinline__ void Find(const Call& call, const TilePlace& place, const Tile& rows,
                                       int row_of_thread) {
    tile = rows;
    matrix = place.matrix;
    row = row_of_thread;
    column = place.column + threadIdx.x % 4 * 2;
    const bool own_scales = Layout::kForGroups && call.groups.scale != nullptr;
    const float matrix_scale =
        own_scales ? call.groups.scale[tile.matrix] : call.matrix[matrix].scale;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = tile.begin + row + 8 * half;
      scale[half] = at < tile.end ? call.x.scale[at] * matrix_scale : 0.0f;
    }
  }
  // Of a warpgroup. `staged`: where results go on their way out.
  __device__ __forceinline__ void Store(const Maps& maps, const Call& call, float (&total)[kEach],
                                        int warpgroup, float* staged) const {
    const Matrix& to = call.matrix[matrix];
    Finish(to, total);
    if constexpr (Layout::kStaged) {
      // A tile that ends before the next group's rows must not write to those.
      const bool whole = call.groups.count == 0 || tile.end - tile.begin == Layout::kTokens;
      if (to.boxes && whole) {
        StoreBoxes(maps, total, warpgroup, staged);
        return StoreRows<kBoxed>(to, total);
      }
    }
    StoreRows<0>(to, total);
  }

 private:
  static constexpr int kBoxed = Layout::kColumns / 32 * 32;  // columns that fill boxes

  __device__ __forceinline__ void Finish(const Matrix& to, float (&total)[kEach]) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) total[i] *= scale[i % 4 / 2];
    if (to.bias == nullptr) return;
#pragma unroll
    for (int j = 0; j < kEach / 2; ++j) {  // columns that are not there are nobody's
      const float bias = to.bias[min(column + j / 2 * 8 + j % 2, to.rows - 1)];
      total[j / 2 * 4 + j % 2] += bias;
      total[j / 2 * 4 + j % 2 + 2] += bias;
    }
  }
  // Boxes of 64 rows of 32 floats in shared memory, chunks of 16 bytes swizzled.
  __device__ __forceinline__ void StoreBoxes(const Maps& maps, const float (&total)[kEach],
                                             int warpgroup, float* staged) const {
    constexpr int kColumns = Layout::kStagedColumns;
    static_assert(kBoxed % kColumns == 0 && kColumns % 32 == 0);
    const bool speaks = threadIdx.x % 128 == 0;
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int first = 0; first < kBoxed; first += kColumns) {
      if (speaks) WaitStoresRead();
      WarpgroupBarrier(1 + warpgroup);
#pragma unroll
      for (int i = 0; i < kColumns / 4; ++i) {
        const int j = i / 2, at = (row + i % 2 * 8) % 64;
        const int chunk = (j % 4 * 2 + t / 2) ^ (at & 7);
        *reinterpret_cast<float2*>(staged + (j / 4 * 64 + at) * 32 + chunk * 4 + t % 2 * 2) =
            make_float2(total[first / 2 + 2 * i], total[first / 2 + 2 * i + 1]);
      }
      FenceCopies();
      WarpgroupBarrier(1 + warpgroup);
      if (!speaks) continue;
      for (int box = 0; box < kColumns / 32; ++box) {
        StoreBox(&maps.out[matrix], staged + box * 64 * 32, column + first + 32 * box,
                 static_cast<int>(tile.begin) + warpgroup * 64);
      }
      CommitStores();
    }
  }
  // Those from column kFrom of the tile on: four threads write 32 bytes of a row.
  template <int kFrom>
  __device__ __forceinline__ void StoreRows(const Matrix& to, const float (&total)[kEach]) const {
    const int64_t at = tile.begin + row;
    float* out = to.out.data + at * to.out.stride + column;
    const bool whole = to.pairs && column + Layout::kColumns - 8 < to.rows - 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (at + 8 * half >= tile.end) break;
      if (whole) {
#pragma unroll
        for (int j = kFrom / 8; j < kEach / 4; ++j) {
          *reinterpret_cast<float2*>(out + 8 * j) =
              make_float2(total[4 * j + 2 * half], total[4 * j + 2 * half + 1]);
        }
      } else {
#pragma unroll
        for (int j = kFrom / 4; j < kEach / 2; ++j) {
          const int c = j / 2 * 8 + j % 2;
          if (column + c < to.rows) out[c] = total[j / 2 * 4 + 2 * half + j % 2];
        }
      }
      out += 8 * to.out.stride;
    }
  }
};

// The same of a turned tile: of rows `row` and `row` + 8 of the matrix a thread has the results of
// two tokens in each group of eight. Eight threads write 32 bytes of a token.
template <typename Layout>
struct TurnedOutputs {
  static constexpr int kEach = Layout::kColumns / 2;

  Tile tile;
  int matrix;
  int column;

  __device__ __forceinline__ void Find(const Call&, const TilePlace& place, const Tile& rows,
                                       int row_of_thread) {
    tile = rows;
    matrix = place.matrix;
    column = place.column + row_of_thread;
  }
  __device__ __forceinline__ void Store(const Maps&, const Call& call, const float (&total)[kEach],
                                        int, float*) const {
    const Matrix& to = call.matrix[matrix];
    const int64_t first = tile.begin + threadIdx.x % 4 * 2;
    const int count = static_cast<int>(tile.end - first);
    // All of them before the first result is written, which might be, for all the compiler knows,
    // a scale: each would be read when the store in front of it is done.
    float scale[kEach / 2];
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      const int token = i / 2 * 8 + i % 2;
      scale[i] = token < count ? call.x.scale[first + token] * to.scale : 0.0f;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int c = column + 8 * half;
      if (c >= to.rows) break;
      const bool has_bias = to.bias != nullptr;
      const float bias = has_bias ? to.bias[c] : 0.0f;
      float* out = to.out.data + first * to.out.stride + c;
#pragma unroll
      for (int i = 0; i < kEach / 2; ++i) {
        float y = total[i / 2 * 4 + half * 2 + i % 2] * scale[i];
        if (has_bias) y += bias;
        if (i / 2 * 8 + i % 2 < count) *out = y;
        out += i % 2 == 0 ? to.out.stride : 7 * to.out.stride;
      }
    }
  }
};

template <typename Layout>
using OutputsOf = std::conditional_t<Layout::kTurned, TurnedOutputs<Layout>, Outputs<Layout>>;

}  // namespace reprise::cuda
