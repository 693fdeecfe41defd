// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cuda/packed/experts.h"
#include "kernels/cuda/packed/instructions.cuh"
#include "kernels/cuda/packed/unit.cuh"
#include "kernels/cuda/tensor/tensor_map.h"
#include "kernels/cuda/tensor/tiles.cuh"

// Blocks that stay: each takes tile after tile. One warp asks for units of weights and for rows of
// x, stage by stage, weights of the first stages before the kernel in front has ended. The others
// are one or two warpgroups with 64 rows of the matrix each: they make the weights of a unit f16 in
// registers while the tensor cores work on the last one.
// Where tiles are few, the slices of K are divided among a team of blocks, in turn. The first block
// of a team adds: its own slice, then those that the others have sent to its shared memory, in
// order.
// Where the last turn would leave blocks idle, it and the turn before are divided among all blocks,
// slice by slice: of a tile that two blocks share, one computes the first slices before its other
// tiles and hands over their sum, from which the other goes on behind its other tiles.
// Of experts, each with a matrix and some of the rows, a block finds the tiles itself: how many
// rows an expert has only the device knows.
namespace reprise::cuda::many_packed {

using reference::kTensorSlice;

constexpr int kMatrices = 4;    // of one launch, at most
constexpr int kStageUnits = 2;  // along K
constexpr int kSliceUnits = kTensorSlice / kUnitCols;
constexpr int kSliceStages = kSliceUnits / kStageUnits;
constexpr int kBandTokens = 2048;  // whose tiles run together: their rows stay in the L2 cache
constexpr int kTeamMost = 4;
constexpr int kStagesLeast = 3;

template <PackedForm kPackedForm, int kTileTokens, int kRowGroups, bool kForExperts = false>
struct Shape {
  static constexpr bool kExperts = kForExperts;
  static constexpr PackedForm kForm = kPackedForm;
  static constexpr int kTokens = kTileTokens;
  // Of experts the last tile is seldom full: with at most so many rows it is half as tall.
  static constexpr int kShort = kExperts && kTokens >= 64 ? kTokens / 2 : kTokens;
  static constexpr int kGroups = kRowGroups;
  static constexpr int kRows = 64 * kGroups;
  // Registers: what asking threads give up, two computing warpgroups take.
  static constexpr bool kGiveUp = kGroups == 2;
  static constexpr int kThreads = 128 * kGroups + (kGiveUp ? 128 : 32);
  static constexpr int kBlocks = kGroups == 1 && kTokens <= 32 ? 2 : 1;  // on a multiprocessor
  static constexpr int kPair = 2 * UnitBytes(kForm);
  static constexpr int kRowTiles = kRows / kPackedRows;
  static constexpr int kBoxBytes = kTokens * kUnitCols * 2;
  static constexpr int kPartBytes = kShort * kUnitCols * 2;  // of it, copied at once
  static constexpr int kWeightBytes = kRowTiles * kStageUnits * kPair;
  static constexpr int kStageBytes = (kStageUnits * kBoxBytes + kWeightBytes + 1023) / 1024 * 1024;
  static constexpr int kSentBytes = kRows * kTokens * 4;  // the sums of a slice
  static constexpr bool kShares = !kExperts && kGroups == 2;
};

struct Matrix {
  const uint8_t* weight;
  const float* bias;
  View out;
  float scale;
  int rows;
  int begin;        // its first column of tiles
  int64_t experts;  // bytes from the matrix of an expert to that of the next
};
struct Call {
  Matrix matrix[kMatrices];
  const float* scale;  // of rows of x
  int64_t rows;        // of x
  int token_tiles;
  int column_tiles;
  int units;      // pairs of them along K
  int box_bytes;  // of rows of x that are copied at once
  int team;
  int stages;       // of the ring
  int whole;        // turns of tiles that no blocks share
  float* handed;    // [blocks, kRows * kTokens]
  uint32_t* hands;  // [blocks, warps] 1: it was handed over; zeros before and behind a launch
  // Of experts.
  const int32_t* begin;  // [experts + 1]
  int experts;
};

// Which tiles experts have, in shared memory.
struct ExpertTiles {
  int32_t* first;  // [experts + 1]
  int32_t* begin;  // [experts + 1] of slots
  int32_t* sums;   // [kWarpsMost]

  static constexpr int kWarpsMost = 12;
  static size_t Bytes(int experts) { return size_t(2 * (experts + 1) + kWarpsMost) * 4; }

  // By the whole block. Of counts an order of additions is nothing.
  template <int kTokens, int kThreads>
  __device__ void Find(const Call& call) const {
    constexpr int kWarps = kThreads / kWarp;
    static_assert(kWarps <= kWarpsMost);
    const int each = CeilDiv(call.experts, kThreads);
    const int from = min(static_cast<int>(threadIdx.x) * each, call.experts);
    const int to = min(from + each, call.experts);
    int tiles = 0;
    for (int e = from; e < to; ++e) {
      begin[e] = call.begin[e];
      first[e] = tiles;
      tiles += CeilDiv(call.begin[e + 1] - call.begin[e], kTokens);
    }
    int upto = tiles;
#pragma unroll
    for (int d = 1; d < kWarp; d *= 2) {
      const int other = __shfl_up_sync(~0u, upto, d);
      if (static_cast<int>(threadIdx.x) % kWarp >= d) upto += other;
    }
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp == kWarp - 1) sums[warp] = upto;
    __syncthreads();
    int before = upto - tiles, all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before += sums[w];
      all += sums[w];
    }
    for (int e = from; e < to; ++e) first[e] += before;
    if (threadIdx.x == 0) begin[call.experts] = call.begin[call.experts], first[call.experts] = all;
    __syncthreads();
  }
  // The last expert whose tiles begin at `tile` or before; one without tiles ends where it begins.
  __device__ __forceinline__ int ExpertOf(const Call& call, int tile) const {
    int low = 0, high = call.experts;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first[middle] <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

// Blocks of a team; experts have none.
template <typename S>
__device__ __forceinline__ int TeamOf(const Call& call) {
  return S::kExperts ? 1 : call.team;
}

struct TilePlace {
  int64_t token;
  int matrix;
  int row;      // of the matrix
  int64_t end;  // of the rows of x that the matrix has
  int expert;

  template <typename S>
  __device__ __forceinline__ bool IsShort() const {
    return S::kShort < S::kTokens && end - token <= S::kShort;
  }
};
template <typename S>
__device__ __forceinline__ TilePlace PlaceOf(const Call& call, const ExpertTiles& tiles,
                                             int index) {
  if constexpr (S::kExperts) {
    const int tile = index / call.column_tiles, column = index % call.column_tiles;
    int matrix = 0;
    while (matrix + 1 < kMatrices && column >= call.matrix[matrix + 1].begin) ++matrix;
    const int expert = tiles.ExpertOf(call, tile);
    const int64_t token = tiles.begin[expert] + (tile - tiles.first[expert]) * S::kTokens;
    return {token, matrix, (column - call.matrix[matrix].begin) * S::kRows, tiles.begin[expert + 1],
            expert};
  }
  constexpr int kBand = kBandTokens / S::kTokens;
  const int band = index / (kBand * call.column_tiles);
  const int width = min(kBand, call.token_tiles - band * kBand);
  const int inside = index - band * kBand * call.column_tiles;
  const int column = inside / width;
  int matrix = 0;
  while (matrix + 1 < kMatrices && column >= call.matrix[matrix + 1].begin) ++matrix;
  // The last tile has as many rows as the others, some of them those of its neighbour.
  const int64_t token = int64_t{band * kBand + inside % width} * S::kTokens;
  return {min(token, max(int64_t{0}, call.rows - S::kTokens)), matrix,
          (column - call.matrix[matrix].begin) * S::kRows, call.rows, 0};
}
template <typename S>
__device__ __forceinline__ int TilesOf(const Call& call, const ExpertTiles& tiles) {
  return (S::kExperts ? tiles.first[call.experts] : call.token_tiles) * call.column_tiles;
}

// The tiles of this block, in order, and which slices of them it has: begin, begin + team ... <
// end.
template <typename S>
struct Parts {
  int turn = 0;
  int index, begin, end;

  __device__ Parts(const Call& call, int tiles) { Find(call, tiles); }
  __device__ __forceinline__ void Next(const Call& call, int tiles) {
    ++turn;
    Find(call, tiles);
  }

  static __device__ __forceinline__ int RankOf(const Call& call) {
    return static_cast<int>(blockIdx.x) % TeamOf<S>(call);
  }

 private:
  __device__ __forceinline__ void Find(const Call& call, int tiles) {
    const int team = TeamOf<S>(call), slices = CeilDiv(call.units, kSliceUnits);
    index = (static_cast<int>(blockIdx.x) + turn * static_cast<int>(gridDim.x)) / team;
    begin = RankOf(call);
    end = slices;
    if (begin >= slices) index = tiles;  // nothing to do
    if constexpr (S::kShares) {
      if (turn >= call.whole) FindShared(call, tiles, slices);
    }
  }
  // Of the slices of all that is left, one tile behind another, this block has as many as others.
  __device__ __forceinline__ void FindShared(const Call& call, int tiles, int slices) {
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    const int first = call.whole * blocks, all = (tiles - first) * slices;
    const int from = block * all / blocks, to = (block + 1) * all / blocks;
    int left = turn - call.whole;
    if (to % slices != 0 && left-- == 0) {  // its first slices
      index = first + to / slices;
      end = to % slices;
      return;
    }
    const int whole = CeilDiv(from, slices);
    const int count = to / slices - whole;
    index = left < count ? first + whole + left : tiles;
    if (left != count || from % slices == 0) return;
    index = first + from / slices;
    begin = from % slices;
  }
};

// The stages of this block's tiles, in order. What follows from a tile is found once for it: who
// asks for stages is one thread, and the others wait for it.
template <typename S>
struct Stages {
  const Call& call;
  const ExpertTiles& experts;
  const int tiles;
  Parts<S> parts;
  int unit;  // the first of the stage
  TilePlace place;
  const uint8_t* weight;  // the first 16 rows of the tile
  int last;               // of its tiles of 16 rows

  __device__ Stages(const Call& of, const ExpertTiles& places)
      : call(of), experts(places), tiles(TilesOf<S>(of, places)), parts(of, tiles) {
    Begin();
  }
  __device__ __forceinline__ bool more() const { return tiles > parts.index; }
  __device__ __forceinline__ void Next() {
    unit += kStageUnits;
    if (unit % kSliceUnits == 0) unit += (TeamOf<S>(call) - 1) * kSliceUnits;
    if (unit < min(call.units, parts.end * kSliceUnits)) return;
    parts.Next(call, tiles);
    Begin();
  }

 private:
  __device__ __forceinline__ void Begin() {
    if (!more()) return;
    place = PlaceOf<S>(call, experts, parts.index);
    const Matrix& matrix = call.matrix[place.matrix];
    weight = matrix.weight + int64_t{place.row / kPackedRows} * call.units * S::kPair;
    if (S::kExperts) weight += place.expert * matrix.experts;
    last = min(S::kRowTiles, (matrix.rows - place.row + kPackedRows - 1) / kPackedRows) - 1;
    unit = parts.begin * kSliceUnits;
  }
};

template <typename S>
struct Memory {
  uint8_t* ring;
  uint8_t* sent;    // [team - 1] sums of a slice
  uint64_t* full;   // [stages]
  uint64_t* empty;  // [stages]
  uint64_t* came;   // [team - 1], of the first block
  uint64_t* may;    // of the others: what they sent was read
  ExpertTiles experts;

  __device__ Memory(uint8_t* raw, const Call& call) {
    ring = raw + (-SharedAddress(raw) & 1023);  // known to be shared memory
    sent = ring + call.stages * S::kStageBytes;
    full = reinterpret_cast<uint64_t*>(sent + (TeamOf<S>(call) - 1) * S::kSentBytes);
    empty = full + call.stages;
    came = empty + call.stages;
    may = came + kTeamMost - 1;
    experts.first = reinterpret_cast<int32_t*>(may + 1);
    experts.begin = experts.first + call.experts + 1;
    experts.sums = experts.begin + call.experts + 1;
  }
  static size_t Bytes(int stages, int team, int experts) {
    return 1024 + size_t(stages) * (S::kStageBytes + 16) + size_t(team - 1) * S::kSentBytes +
           8 * kTeamMost + (S::kExperts ? ExpertTiles::Bytes(experts) : 0);
  }
};

// By one thread.
template <typename S>
__device__ __forceinline__ void AskForWeights(const Stages<S>& at, const Memory<S>& memory,
                                              int stage) {
  const uint32_t barrier = SharedAddress(&memory.full[stage]);
  const int parts = S::kShort == S::kTokens || at.place.template IsShort<S>() ? 1 : 2;
  ExpectBytes(barrier, kStageUnits * parts * at.call.box_bytes + S::kWeightBytes);
  const int tile_bytes = at.call.units * S::kPair;
  const uint8_t* const from = at.weight + at.unit * S::kPair;
  const uint32_t to =
      SharedAddress(memory.ring + stage * S::kStageBytes + kStageUnits * S::kBoxBytes);
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
    CopyBytes(to + i * kStageUnits * S::kPair, from + int64_t{min(i, at.last)} * tile_bytes,
              kStageUnits * S::kPair, barrier);
  }
}
template <typename S>
__device__ void AskForStages(const CUtensorMap& x, const Call& call, const Memory<S>& memory) {
  int asked = 0;
  if constexpr (!S::kExperts) {
    for (Stages<S> at(call, memory.experts); at.more() && asked < call.stages; at.Next()) {
      AskForWeights(at, memory, asked++);
    }
    WaitForInputs();
  }
  int turn = 0, stage = 0, parity = 1;
  for (Stages<S> at(call, memory.experts); at.more(); at.Next(), ++turn) {
    if (turn >= asked) {
      WaitBarrier(&memory.empty[stage], parity);
      AskForWeights(at, memory, stage);
    }
    const uint32_t to = SharedAddress(memory.ring + stage * S::kStageBytes);
#pragma unroll
    for (int i = 0; i < kStageUnits; ++i) {
      const int token = static_cast<int>(at.place.token), column = (at.unit + i) * kUnitCols;
      const uint32_t barrier = SharedAddress(&memory.full[stage]);
      CopyBox(to + i * S::kBoxBytes, &x, column, token, barrier);
      if (S::kShort < S::kTokens && !at.place.template IsShort<S>()) {
        CopyBox(to + i * S::kBoxBytes + S::kPartBytes, &x, column, token + S::kShort, barrier);
      }
    }
    if (++stage == call.stages) stage = 0, parity ^= 1;
  }
}

template <int kCount>
__device__ __forceinline__ void Keep(uint32_t (&a)[kCount]) {
#pragma unroll
  for (uint32_t& one : a) asm volatile("" : "+r"(one)::"memory");
}
template <int kCount>
__device__ __forceinline__ void Keep(float (&a)[kCount]) {
#pragma unroll
  for (float& one : a) asm volatile("" : "+f"(one)::"memory");
}

// 64 rows of the matrix.
template <typename S>
class Warpgroup {
 public:
  __device__ Warpgroup(const Call& call, const Memory<S>& memory)
      : call_(call),
        memory_(memory),
        lane_(threadIdx.x % kWarp),
        group_(__shfl_sync(~0u, threadIdx.x / 128, 0)),
        warp_(__shfl_sync(~0u, threadIdx.x / kWarp, 0)) {}

  __device__ void Run() {
    const int tiles = TilesOf<S>(call_, memory_.experts);
    for (Parts<S> parts(call_, tiles); tiles > parts.index; parts.Next(call_, tiles)) {
      if constexpr (S::kShort < S::kTokens) {
        if (PlaceOf<S>(call_, memory_.experts, parts.index).template IsShort<S>()) {
          RunTile<S::kShort / 2>(parts);
          continue;
        }
      }
      RunTile<S::kTokens / 2>(parts);
    }
  }

 private:
  // Sums that a thread has: half as many as the tile has tokens.
  template <int kEach>
  __device__ __forceinline__ void RunTile(const Parts<S>& parts) {
    const int rank = Parts<S>::RankOf(call_), slices = CeilDiv(call_.units, kSliceUnits);
    float total[kEach];
#pragma unroll
    for (float& sum : total) sum = -0.0f;  // which changes nothing that is added to it
    if constexpr (S::kShares) {
      if (parts.begin > rank) TakeOver(total);
    }
    for (int slice = parts.begin; slice < parts.end; slice += TeamOf<S>(call_)) {
      float acc[kEach];
      const int others = min(TeamOf<S>(call_), slices - slice);  // and this one
      if (rank == 0 && threadIdx.x == 0) {
        for (int r = 1; r < others; ++r) ExpectBytes(&memory_.came[r - 1], S::kSentBytes);
      }
      MultiplySlice(min(kSliceStages, call_.units / kStageUnits - slice * kSliceStages), acc);
      if (rank > 0) {
        SendSums(rank, acc);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) total[i] += acc[i];
      for (int r = 1; r < others; ++r) AddSent(r, total);
    }
    if constexpr (S::kShares) {
      if (parts.end < slices) return HandOver(total);
    }
    if (rank == 0) Store(PlaceOf<S>(call_, memory_.experts, parts.index), total);
  }

  // Between a block and the next one, by warps: sums as threads have them.
  __device__ __forceinline__ float4* Handed(int block, int i) const {
    return reinterpret_cast<float4*>(call_.handed) +
           (int64_t{block} * (S::kTokens / 8) + i / 4) * (128 * S::kGroups) + threadIdx.x;
  }
  template <int kEach>
  __device__ __forceinline__ void HandOver(const float (&total)[kEach]) const {
    const int block = static_cast<int>(blockIdx.x);
#pragma unroll
    for (int i = 0; i < kEach; i += 4) {
      __stcg(Handed(block, i), make_float4(total[i], total[i + 1], total[i + 2], total[i + 3]));
    }
    __syncwarp();
    if (lane_ == 0) StoreRelease(&call_.hands[block * 4 * S::kGroups + warp_], 1);
  }
  template <int kEach>
  __device__ __forceinline__ void TakeOver(float (&total)[kEach]) const {
    const int block = static_cast<int>(blockIdx.x) - 1;
    uint32_t* const hand = &call_.hands[block * 4 * S::kGroups + warp_];
    while (LoadAcquire(hand) == 0) {
    }
    __syncwarp();
    if (lane_ == 0) *hand = 0;
#pragma unroll
    for (int i = 0; i < kEach; i += 4) {
      const float4 four = __ldcg(Handed(block, i));
      total[i] = four.x;
      total[i + 1] = four.y;
      total[i + 2] = four.z;
      total[i + 3] = four.w;
    }
    Keep(total);
  }

  template <int kEach>
  __device__ __forceinline__ void MultiplySlice(int count, float (&acc)[kEach]) {
    uint32_t even[16], odd[16];
    UnitPair<S::kForm> units;
    int previous = 0;
#pragma unroll 1
    for (int s = 0; s < count; ++s) {
      WaitBarrier(&memory_.full[stage_], parity_);
      const uint8_t* const at = memory_.ring + stage_ * S::kStageBytes;
      const uint8_t* const mine =
          at + kStageUnits * S::kBoxBytes + warp_ * (kStageUnits * S::kPair);
      const uint64_t b = TileDescriptor(at);
      units.Load(mine, lane_);
      units.Fragments(even);
      Multiply(acc, even, b, s == 0);
      WarpgroupWait<1>();
      Keep(odd);
      if (s > 0) Release(previous);
      units.Load(mine + S::kPair, lane_);
      units.Fragments(odd);
      Multiply(acc, odd, b + S::kBoxBytes / 16, false);
      WarpgroupWait<1>();
      Keep(even);
      previous = stage_;
      if (++stage_ == call_.stages) stage_ = 0, parity_ ^= 1;
    }
    WarpgroupWait<0>();
    Keep(acc);
    Keep(odd);
    Release(previous);
  }
  template <int kEach>
  __device__ __forceinline__ void Multiply(float (&acc)[kEach], uint32_t (&a)[16], uint64_t b,
                                           bool first) {
    Keep(a);
    Keep(acc);
    WarpgroupFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) WarpgroupMmaRows(acc, &a[4 * k], b + 2 * k, first && k == 0);
    WarpgroupCommit();
    Keep(acc);
  }
  __device__ __forceinline__ void Release(int stage) {
    if (lane_ == 0) Arrive(&memory_.empty[stage]);
  }

  // Where four sums of this thread lie among those of a slice.
  __device__ __forceinline__ uint8_t* Place(int rank, int i) const {
    return memory_.sent + (rank - 1) * S::kSentBytes +
           (i / 4 * (128 * S::kGroups) + static_cast<int>(threadIdx.x)) * 16;
  }
  template <int kEach>
  __device__ __forceinline__ void SendSums(int rank, const float (&acc)[kEach]) {
    if (sent_++ > 0) WaitBarrier(memory_.may, sent_ % 2);
    const uint32_t barrier = PlaceIn(0, &memory_.came[rank - 1]);
#pragma unroll
    for (int i = 0; i < kEach; i += 4) {
      Send(PlaceIn(0, Place(rank, i)), make_float4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]),
           barrier);
    }
  }
  template <int kEach>
  __device__ __forceinline__ void AddSent(int rank, float (&total)[kEach]) {
    WaitBarrier(&memory_.came[rank - 1], parities_ >> rank & 1);
    parities_ ^= 1 << rank;
#pragma unroll
    for (int i = 0; i < kEach; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(Place(rank, i));
      total[i] += four.x;
      total[i + 1] += four.y;
      total[i + 2] += four.z;
      total[i + 3] += four.w;
    }
    Keep(total);
    __syncwarp();
    if (lane_ == 0) ArriveAt(SharedAddress(memory_.may), rank);
  }

  template <int kEach>
  __device__ __forceinline__ void Store(const TilePlace& place, const float (&total)[kEach]) const {
    if constexpr (S::kExperts) {
      if (place.end - place.token >= 2 * kEach) return StoreRows<true>(place, total);
    }
    StoreRows<false>(place, total);
  }
  // Of rows g and g + 8 of its 16 a thread has the results of two tokens in each group of eight.
  // Eight threads write 32 bytes of a token. kWhole: of all tokens, which nothing need ask then.
  template <bool kWhole, int kEach>
  __device__ __forceinline__ void StoreRows(const TilePlace& place,
                                            const float (&total)[kEach]) const {
    const Matrix& to = call_.matrix[place.matrix];
    const int64_t first = place.token + lane_ % 4 * 2;
    const int count = static_cast<int>(min(place.end - first, int64_t{2 * kEach}));
    const float* const scales = call_.scale + first;
    float scale[kEach / 2];
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) {
      const int token = i / 2 * 8 + i % 2;
      scale[i] = kWhole || token < count ? scales[token] * to.scale : 0.0f;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = place.row + warp_ * kPackedRows + lane_ / 4 + 8 * half;
      if (row >= to.rows) break;
      const bool has_bias = !S::kExperts && to.bias != nullptr;
      const float bias = has_bias ? to.bias[row] : 0.0f;
      float* out = to.out.data + first * to.out.stride + row;
#pragma unroll
      for (int i = 0; i < kEach / 2; ++i) {
        float y = total[i / 2 * 4 + half * 2 + i % 2] * scale[i];
        if (has_bias) y += bias;
        if (kWhole || i / 2 * 8 + i % 2 < count) *out = y;
        out += i % 2 == 0 ? to.out.stride : 7 * to.out.stride;
      }
    }
  }

  const Call& call_;
  const Memory<S>& memory_;
  const int lane_, group_, warp_;
  int stage_ = 0, parity_ = 0;
  int parities_ = 0;  // of what came from the others, a bit each: not all have as many slices
  int sent_ = 0;
};

template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    PackedManyKernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ Call call) {
  if (!kForWgmma) return;
  extern __shared__ uint8_t raw[];
  const Memory<S> memory(raw, call);
  if (threadIdx.x == 0) {
    for (int s = 0; s < call.stages; ++s) {
      InitBarrier(&memory.full[s], 1);
      InitBarrier(&memory.empty[s], 4 * S::kGroups);
    }
    for (int r = 0; r + 1 < kTeamMost; ++r) InitBarrier(&memory.came[r], 1);
    InitBarrier(memory.may, 4 * S::kGroups);
    FenceBarriers();
  }
  __syncthreads();
  if (TeamOf<S>(call) > 1) MeetCluster();
  LetNextStart();
  if constexpr (S::kExperts) {
    WaitForInputs();
    memory.experts.template Find<S::kTokens, S::kThreads>(call);
  }
  const int warp = __shfl_sync(~0u, threadIdx.x / kWarp, 0);
  if (warp >= 4 * S::kGroups) {
    if constexpr (S::kGiveUp) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 128 * S::kGroups) AskForStages<S>(x, call, memory);
  } else {
    if constexpr (S::kGiveUp) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    if constexpr (!S::kExperts) WaitForInputs();
    Warpgroup<S>(call, memory).Run();
  }
  if (TeamOf<S>(call) > 1) {
    __syncwarp();
    MeetCluster();  // nobody sends to a block that has gone
  }
}

// --- Choice of a tiling ---------------------------------------------------------------------

inline size_t SharedMost(int blocks) {
  return blocks == 2 ? ThisGpu().half_shared() : ThisGpu().block_shared - 1024;
}

template <typename S>
int StagesOf(int team, int experts) {
  int stages = 16;
  while (stages > 0 && Memory<S>::Bytes(stages, team, experts) > SharedMost(S::kBlocks)) --stages;
  return stages;
}

template <typename S>
int TeamsAtOnce(int team) {
  // Clusters of four do not fill all groups of multiprocessors.
  const int all = ThisGpu().multiprocessors * S::kBlocks;
  return team == 1 ? all : team == 2 ? all / 2 : std::max(1, all / 4 - 3 * S::kBlocks);
}

// What a tile takes beside its slices, in ns.
template <typename S>
constexpr double kTileNs = 1200 * std::max(1.0, S::kTokens / 128.0);
template <typename S>
double SliceNs();

// Turns of slices of so many tiles, and of tiles, where the last turns are shared.
struct Turns {
  double slices, tiles;
};
template <typename S>
Turns SharedTurns(int64_t tiles, int64_t slices) {
  const int64_t blocks = TeamsAtOnce<S>(1);
  return {double(tiles) / double(blocks) * double(slices), double(tiles / blocks) + 2};
}
// Whether they are: a twentieth less is nothing, as tiles lie further apart then.
template <typename S>
bool Shares(int64_t tiles, int64_t slices) {
  const int64_t blocks = TeamsAtOnce<S>(1);
  if (!S::kShares || tiles < blocks || tiles % blocks == 0) return false;
  const Turns shared = SharedTurns<S>(tiles, slices);
  const double turns = double(CeilDiv(tiles, blocks));
  return 1.05 * (shared.slices * SliceNs<S>() + shared.tiles * kTileNs<S>) <
         turns * (double(slices) * SliceNs<S>() + kTileNs<S>);
}

template <typename S>
void Launch(Stream stream, const HalfRows& x, const ExpertRows& experts,
            std::span<const HalfProduct> products, int team, int blocks) {
  Call call = {};
  call.scale = x.scale;
  call.rows = x.rows;
  call.token_tiles = static_cast<int>(CeilDiv<int64_t>(x.rows, S::kTokens));
  call.units = static_cast<int>(products[0].weight.stride) / kUnitCols;
  call.team = team;
  call.begin = experts.begin;
  call.experts = experts.count;
  if (S::kExperts) call.token_tiles += experts.count;  // at most
  call.stages = StagesOf<S>(team, experts.count);
  call.handed = x.handed.sums;
  call.hands = x.handed.hands;
  const int64_t box_rows = std::min<int64_t>(S::kShort, (x.rows + 7) / 8 * 8);
  call.box_bytes = static_cast<int>(box_rows) * kUnitCols * 2;
  for (size_t i = 0; i < kMatrices; ++i) {
    Matrix& matrix = call.matrix[i];
    matrix.begin = call.column_tiles;
    if (i >= products.size()) continue;
    const HalfProduct& product = products[i];
    matrix.weight = reinterpret_cast<const uint8_t*>(product.weight.data);
    matrix.bias = product.bias;
    matrix.out = product.out;
    matrix.scale = product.weight.scale;
    matrix.rows = static_cast<int>(product.weight.rows);
    matrix.experts = int64_t{CeilDiv(matrix.rows, kPackedRows)} * call.units * S::kPair;
    call.column_tiles += CeilDiv(matrix.rows, S::kRows);
  }
  const CUtensorMap map =
      MakeTensorMap(x.data, x.rows, x.stride, x.stride, static_cast<int>(box_rows));
  const auto kernel = PackedManyKernel<S>;
  const int tiles = call.token_tiles * call.column_tiles;
  const int teams = std::min(tiles, blocks > 0 ? blocks : TeamsAtOnce<S>(team));
  const bool may = team == 1 && call.handed != nullptr && S::kShares;
  const bool shares =
      blocks > 0 ? tiles % teams != 0 : Shares<S>(tiles, CeilDiv(call.units, kSliceUnits));
  call.whole = may && shares ? tiles / teams - 1 : INT32_MAX;
  LaunchTeamsEarly(team, kernel, unsigned(teams * team), S::kThreads,
                   Memory<S>::Bytes(call.stages, team, experts.count), stream, map, call);
}

// What a tile takes, in ns, on a multiprocessor that it shares with nobody: what its operands take
// to come, or its products.
template <typename S>
double SliceNs() {
  constexpr double kBytesPerNs = 48;
  constexpr double kOperationsPerNs = 4800;
  const double bytes =
      kTensorSlice * (S::kRows / 8.0 * UnitBytes(S::kForm) / kUnitCols + S::kTokens * 2.0);
  const double operations = 2.0 * kTensorSlice * S::kRows * S::kTokens;
  return std::max(bytes / kBytesPerNs, operations / kOperationsPerNs);
}
// Tiles of rows of x. Those of experts as they are where rows choose at random: how many of them
// have any, and half a tile more than their rows fill, or half of a short one.
template <typename S>
int64_t TokenTiles(int64_t rows, int experts) {
  if (!S::kExperts) return CeilDiv<int64_t>(rows, S::kTokens);
  const double chosen = experts * -std::expm1(-double(rows) / experts);
  constexpr double kShort = double(S::kShort) / S::kTokens;
  const double tiles = std::max(kShort, double(rows) / (chosen * S::kTokens) + 0.5 * kShort);
  return int64_t(std::ceil(chosen * tiles));
}
template <typename S>
double Nanoseconds(int64_t rows, int experts, std::span<const HalfProduct> products, int team) {
  if (StagesOf<S>(team, experts) < kStagesLeast) return 1e30;
  const int64_t slices = CeilDiv<int64_t>(products[0].weight.stride, kTensorSlice);
  int64_t tiles = 0;
  for (const HalfProduct& one : products) tiles += CeilDiv<int64_t>(one.weight.rows, S::kRows);
  tiles *= TokenTiles<S>(rows, experts);
  if (team == 1 && Shares<S>(tiles, slices)) {
    const Turns shared = SharedTurns<S>(tiles, slices);
    return shared.slices * SliceNs<S>() + shared.tiles * kTileNs<S>;
  }
  const double turns = double(CeilDiv<int64_t>(tiles, TeamsAtOnce<S>(team)));
  // Blocks of a multiprocessor that all have something to do share it.
  const double share =
      std::min<double>(S::kBlocks, std::max(1.0, double(tiles * team) / ThisGpu().multiprocessors));
  return turns * (double(CeilDiv<int64_t>(slices, team)) * SliceNs<S>() * share + kTileNs<S> +
                  300.0 * (team - 1));
}

struct Form {
  PackedTiling tiling;  // of the team: the most
  void (*launch)(Stream, const HalfRows&, const ExpertRows&, std::span<const HalfProduct>, int,
                 int);
  double (*ns)(int64_t, int, std::span<const HalfProduct>, int);
};
template <typename S>
constexpr Form FormOf(int team) {
  return {{S::kTokens, S::kGroups, team}, Launch<S>, Nanoseconds<S>};
}

// How a launch is divided, and what it takes: the quickest of these forms, or the one that is asked
// for.
struct Plan {
  const Form* form = nullptr;
  int team = 1;
  int blocks = 0;
  double ns = 1e300;
};
inline Plan BestPlan(std::span<const Form> forms, int64_t rows, int experts,
                     std::span<const HalfProduct> products,
                     const std::optional<PackedTiling>& tiling) {
  Plan best;
  for (const Form& form : forms) {
    for (int team = 1; team <= form.tiling.team; team *= 2) {
      if (tiling && (tiling->tokens != form.tiling.tokens || tiling->groups != form.tiling.groups ||
                     tiling->team != team)) {
        continue;
      }
      const double ns = form.ns(rows, experts, products, team);
      if (ns < best.ns) best = {&form, team, tiling ? tiling->blocks : 0, ns};
    }
  }
  return best;
}
inline void Run(Stream stream, const HalfRows& x, const ExpertRows& experts,
                std::span<const HalfProduct> products, const Plan& plan) {
  if (plan.form != nullptr) plan.form->launch(stream, x, experts, products, plan.team, plan.blocks);
}

}  // namespace reprise::cuda::many_packed
