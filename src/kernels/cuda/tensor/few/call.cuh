// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/few/product_few.h"
#include "kernels/cuda/tensor/tiles.cuh"

// What a block of products of few rows is given, and how it divides its shared memory: rings of
// weights, a warp's behind another's; sums of slices; inputs.
namespace reprise::cuda::few {

using reference::kTensorSlice;

constexpr int kTile = 8;     // rows of weights
constexpr int kDepth = 256;  // elements of K in a stage: half a slice
constexpr int kStages = 2;   // of a warp
constexpr int kStage = kTile * kDepth;
constexpr int kStageFloats = kStage / 2;
constexpr int kWarpsMost = 8;
template <bool kFloats>
constexpr int kTileRows = kFloats ? kFloatRows : 16;

// Products of one input. Blocks walk over tiles, in steps of the grid: those of the products, then
// those of rows of F32, of which a block has at most one, as its last.
struct Call {
  HalfRows x;
  InputNorm norm;
  HalfGroups groups;
  HalfProduct product[FewProducts::kMost];
  int begin[FewProducts::kMost + 1];  // the first tile of each, and the end
  int block_tiles;                    // groups of tiles that a block has side by side
  int all_tiles;                      // those, and behind them tiles of rows of F32
  FloatProduct floats[FewProducts::kMost];
  int float_begin[FewProducts::kMost + 1];  // the first row of each, and the end
  int float_rows;                           // of a tile
  OutputOp op;
  View sum;
  bool hold_next;   // see FewProducts
  bool normed_row;  // one row behind a norm, whose weights are in shared memory as well
};

}  // namespace reprise::cuda::few
