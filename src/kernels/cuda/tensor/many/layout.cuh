// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/cuda/tensor/many/forms.h"
#include "kernels/cuda/tensor/tensor_map.h"
#include "kernels/cuda/tensor/tiles.cuh"

// What follows from a tiling: who has which tile, and where its operands lie in shared memory.
namespace reprise::cuda {

using reference::kTensorSlice;

inline constexpr int kBox = 64;         // along K: rows of 128 bytes in shared memory
inline constexpr int kBandRows = 2048;  // of x whose tiles run together: they stay in the L2 cache
inline constexpr int kSharedMost = 226 << 10;

template <size_t kForm>
struct FormLayout {
  static constexpr Tiling kTiling = kProductForms[kForm].tiling;
  static constexpr bool kTurned = kTiling.way == Way::kTurned;
  static constexpr bool kStaged = kTiling.way == Way::kStaged;
  static constexpr bool kForGroups = kForm == 0;
  static constexpr int kTokens = kTiling.tokens;
  static constexpr int kOutputs = kTiling.outputs;
  static constexpr int kTeamTokens = kTiling.team_tokens;
  static constexpr int kTeamOutputs = kTiling.team_outputs;
  static constexpr int kTeam = kTeamTokens * kTeamOutputs;           // blocks
  static constexpr int kBeside = kTeamTokens + kTeamOutputs - 1;     // of them in a line with one
  static constexpr int kBand = kBandRows / (kTokens * kTeamTokens);  // in teams
  // Operands of the tensor cores: rows are read by 64, of which some may not be there.
  static constexpr int kHeld = kTurned ? kOutputs : kTokens;
  static constexpr int kRows = (kHeld + 63) / 64 * 64;
  static constexpr int kColumns = kTurned ? kTokens : kOutputs;
  static constexpr int kConsumers = kRows / 64;  // warpgroups
  static constexpr int kThreads = (1 + kConsumers) * 128;
  // Boxes along K in a stage. Where one warpgroup computes, nothing hides that it waits, least of
  // all where its tile is small.
  static constexpr int kBoxes = kHeld < kRows ? 4 : kConsumers == 1 && kColumns <= 104 ? 2 : 1;
  static constexpr int kSliceStages = kTensorSlice / (kBoxes * kBox);
  static constexpr int kRowsBytes = kHeld * kBox * 2;  // of a box
  static constexpr int kColumnsBytes = kColumns * kBox * 2;
  static constexpr int kStageBytes = kBoxes * (kRowsBytes + kColumnsBytes);
  // Results on their way out, so many columns at a time, in boxes of 32.
  static constexpr int kStagedColumns = !kStaged          ? 0
                                        : kColumns <= 128 ? kColumns
                                        : kColumns <= 192 ? 96
                                                          : 64;
  static constexpr int kOutBytes = kRows * kStagedColumns * 4;
  static constexpr int kOtherBytes =
      kOutBytes + (kRows - kHeld) * kBox * 2 + 1024;  // results, rows nobody has, room to align
  static constexpr int kStages = (kSharedMost - kOtherBytes) / kStageBytes;
  static constexpr int kShared = kStages * kStageBytes + kOtherBytes;
};

// How an operand's tile of a stage is divided among the blocks that have it in common: whole boxes
// each, or rows of every box.
template <int kTileRows, int kBoxes, int kBlocks>
struct Parts {
  static constexpr bool kByBoxes = kBoxes % kBlocks == 0;
  static constexpr int kBoxesEach = kByBoxes ? kBoxes / kBlocks : kBoxes;
  static constexpr int kRowsEach = kByBoxes ? kTileRows : kTileRows / kBlocks;
  static_assert(kRowsEach % 8 == 0);
};
template <typename Layout>
using TokenParts = Parts<Layout::kTokens, Layout::kBoxes, Layout::kTeamOutputs>;
template <typename Layout>
using OutputParts = Parts<Layout::kOutputs, Layout::kBoxes, Layout::kTeamTokens>;

struct Matrix {
  float scale;
  const float* bias;
  View out;
  bool boxes;  // results may leave through the copy engine, which writes four of them or none
  bool pairs;  // two of a row may be written at once
  int rows;
  int begin;  // its first column of tiles
};
struct Call {
  Matrix matrix[kMatricesMost];
  HalfRows x;
  HalfGroups groups;
  int row_tiles;  // at most
  int row_teams;
  int column_tiles;  // of all matrices
  int column_teams;
  int stages;       // along K
  int stage_bytes;  // that are copied
};
struct Maps {
  CUtensorMap x;
  CUtensorMap weight[kMatricesMost];
  CUtensorMap out[kMatricesMost];  // where results are staged
};

// Where in its team this block is.
template <typename Layout>
__device__ __forceinline__ int TokenRank() {
  return static_cast<int>(blockIdx.x) % Layout::kTeam / Layout::kTeamOutputs;
}
template <typename Layout>
__device__ __forceinline__ int OutputRank() {
  return static_cast<int>(blockIdx.x) % Layout::kTeamOutputs;
}
// Blocks of the team, a bit each, that have these rows of x, or of the matrix.
template <typename Layout>
__device__ __forceinline__ uint16_t SameTokens() {
  constexpr unsigned kLine = (1u << Layout::kTeamOutputs) - 1;
  return static_cast<uint16_t>(kLine << (TokenRank<Layout>() * Layout::kTeamOutputs));
}
template <typename Layout>
__device__ __forceinline__ uint16_t SameOutputs() {
  unsigned line = 0;
  for (int i = 0; i < Layout::kTeamTokens; ++i) line |= 1u << (i * Layout::kTeamOutputs);
  return static_cast<uint16_t>(line << OutputRank<Layout>());
}
// Number i of the kBeside blocks in a line with this one, itself among them.
template <typename Layout>
__device__ __forceinline__ int BlockBeside(int i) {
  if (i < Layout::kTeamOutputs) return TokenRank<Layout>() * Layout::kTeamOutputs + i;
  const int other = i - Layout::kTeamOutputs;
  return (other + (other >= TokenRank<Layout>() ? 1 : 0)) * Layout::kTeamOutputs +
         OutputRank<Layout>();
}

// This block's tile of team number `index`: bands of rows, inside a band column by column. Where a
// team has no tile for a block, that computes what its neighbour does.
struct TilePlace {
  int row;     // of tiles
  int matrix;  // of the launch
  int column;  // of the matrix, the first of the tile
};
template <typename Layout>
__device__ __forceinline__ TilePlace PlaceOf(const Call& call, int index) {
  const int band = index / (Layout::kBand * call.column_teams);
  const int first = band * Layout::kBand;
  const int width = min(Layout::kBand, call.row_teams - first);
  const int inside = index - band * Layout::kBand * call.column_teams;
  const int row_team = first + inside % width;
  const int column_team = inside / width;
  const int row = min(row_team * Layout::kTeamTokens + TokenRank<Layout>(), call.row_tiles - 1);
  const int column =
      min(column_team * Layout::kTeamOutputs + OutputRank<Layout>(), call.column_tiles - 1);
  int matrix = 0;
  while (matrix + 1 < kMatricesMost && column >= call.matrix[matrix + 1].begin) ++matrix;
  return {row, matrix, (column - call.matrix[matrix].begin) * Layout::kOutputs};
}

// The rows of a tile. The last one has as many as the others, some of them those of its neighbour:
// rows that are not there would be made by the copy engine, which takes longer than to read them.
template <typename Layout>
__device__ __forceinline__ Tile RowsOf(const Call& call, int index) {
  if (Layout::kForGroups && call.groups.count > 0) {
    return FindTile<Layout::kTokens>(call.groups, index);
  }
  Tile tile = TileOf<Layout::kTokens>(call.x, {}, index);
  tile.begin = min(tile.begin, max(int64_t{0}, call.x.rows - Layout::kTokens));
  return tile;
}

// A ring of stages in shared memory, and where one is in it. Addresses are numbers, said by one
// thread for its warp: else each is made anew for every use, which takes longer than the use.
template <typename Layout>
struct Ring {
  uint32_t stages;
  uint32_t barriers;  // full ones, then empty ones
  int at = 0;
  int parity = 0;

  __device__ Ring(const void* stages_at, const void* barriers_at)
      : stages(__shfl_sync(~0u, SharedAddress(stages_at), 0)),
        barriers(__shfl_sync(~0u, SharedAddress(barriers_at), 0)) {}

  __device__ __forceinline__ uint32_t rows(int stage, int box) const {
    return stages + stage * Layout::kStageBytes + box * Layout::kRowsBytes;
  }
  __device__ __forceinline__ uint32_t columns(int stage, int box) const {
    return rows(stage, Layout::kBoxes) + box * Layout::kColumnsBytes;
  }
  __device__ __forceinline__ uint32_t tokens(int stage, int box) const {
    return Layout::kTurned ? columns(stage, box) : rows(stage, box);
  }
  __device__ __forceinline__ uint32_t outputs(int stage, int box) const {
    return Layout::kTurned ? rows(stage, box) : columns(stage, box);
  }
  __device__ __forceinline__ uint32_t full(int stage) const { return barriers + stage * 8; }
  __device__ __forceinline__ uint32_t empty(int stage) const {
    return full(Layout::kStages + stage);
  }
  __device__ __forceinline__ void Next() {
    if (++at == Layout::kStages) at = 0, parity ^= 1;
  }
};

}  // namespace reprise::cuda
