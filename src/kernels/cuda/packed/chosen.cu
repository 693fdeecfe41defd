// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/packed/instructions.cuh"
#include "kernels/cuda/packed/unit.cuh"
#include "kernels/cuda/quantised/chosen/blocks.cuh"
#include "kernels/cuda/tensor/few/small.cuh"
#include "kernels/cuda/tensor/tiles.cuh"
#include "kernels/reference/math.h"

// As quantised/chosen, of packed weights. A block for each multiprocessor. Its pieces are 16 rows
// of one expert's weights by one slice of K; its warps take them in turn. The row is one of eight
// columns on the right of the tensor cores' products. Sums of slices meet in shared memory and are
// added in order. As many pieces as there is room for are asked for at once.
namespace reprise::cuda {
namespace {

using namespace chosen;
using reference::kTensorSlice;
using small::Largest;
using small::StoreRounded;

constexpr int kTile = kPackedRows;
constexpr int kSliceUnits = kTensorSlice / kUnitCols;
constexpr int kSliceWords = kTensorSlice / 2;  // of a row of inputs

// Experts, one behind another.
struct Stack {
  const uint8_t* data;
  int64_t bytes;  // of one
  int rows;       // likewise
};
// Runs of 16 rows as pieces, and their places in shared memory.
struct Pieces {
  Divisor slices;  // of a run
  int units;       // pairs of them, likewise
  int pitch;       // bytes from run to run
  int rooms;       // whole runs of them, or all pieces
  int warps;       // that take pieces

  __host__ __device__ size_t Bytes() const { return size_t(rooms / slices.by * pitch); }
};

struct GatesCall {
  const float* x;
  const int32_t* begin;  // of slots, by expert
  Stack stack[2];        // up, gate
  float* y[2];
  int stride[2];
  int cols, experts;
  Pieces pieces;
  Divisor tiles;   // of an expert
  Division units;  // a tile of both of a slot
  bool gated;
};
struct SumCall {
  const float* x;
  int x_stride;
  const int32_t* begin;
  Stack stack;
  float* slots;
  int stride;
  int cols, experts;
  Pieces pieces;
  Divisor count;   // slots
  Divisor fours;   // values of a slot
  Division tiles;  // of all slots
  // Of CombineExperts; y and sum may be null.
  const float* weights;
  const int32_t* slot;
  int top_k;
  bool zero;
  float* y;
  float* sum;
};

// Columns with those that fill up the last units.
__host__ __device__ constexpr int Padded(int cols) {
  return (cols + kPackedCols - 1) / kPackedCols * kPackedCols;
}

template <PackedForm kForm>
constexpr int kPair = 2 * UnitBytes(kForm);

// By one thread.
template <PackedForm kForm>
__device__ __forceinline__ void AskForPiece(const Stack& stack, const Pieces& pieces, int expert,
                                            int tile, int slice, std::byte* to, uint64_t* barrier) {
  const int first = tile * pieces.units + slice * kSliceUnits;
  const uint8_t* const from = stack.data + expert * stack.bytes + int64_t{first} * kPair<kForm>;
  const int bytes = min(kSliceUnits, pieces.units - slice * kSliceUnits) * kPair<kForm>;
  ExpectBytes(barrier, bytes);
  CopyBytes(SharedAddress(to), from, bytes, SharedAddress(barrier));
}

// x: the slice of the row. The other columns are sums of the same.
template <PackedForm kForm>
__device__ __forceinline__ void MultiplyPiece(const std::byte* piece, int units, const uint32_t* x,
                                              float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto* mine = reinterpret_cast<const uint4*>(x) + lane % 4;
  const auto* unit = reinterpret_cast<const uint8_t*>(piece);
  float acc[4] = {0, 0, 0, 0};
#pragma unroll 2
  for (int u = 0; u < units; ++u, unit += kPair<kForm>) {
    const uint4 first = mine[8 * u], second = mine[8 * u + 4];
    UnitPair<kForm> pair;
    pair.Load(unit, lane);
    uint32_t a[16];
    pair.Fragments(a);
    Mma<Half::kF16>(acc, {a[0], a[1], a[2], a[3]}, first.x, first.y);
    Mma<Half::kF16>(acc, {a[4], a[5], a[6], a[7]}, first.z, first.w);
    Mma<Half::kF16>(acc, {a[8], a[9], a[10], a[11]}, second.x, second.y);
    Mma<Half::kF16>(acc, {a[12], a[13], a[14], a[15]}, second.z, second.w);
  }
  if (lane % 4 == 0) {
    sums[lane / 4] = acc[0];
    sums[8 + lane / 4] = acc[2];
  }
}

// A warp's pieces of the block's: every pieces.warps-th one, from its own on. ask(run, slice, to)
// asks for one, by one thread; read(), by all, brings the inputs; row(run) is the rounded row that
// a run is multiplied with. sums: [count, kTile].
template <PackedForm kForm, typename Ask, typename Read, typename Row>
__device__ __forceinline__ void RunPieces(std::byte* shared, const Pieces& pieces, int count,
                                          const Ask& ask, const Read& read, const Row& row,
                                          float* sums) {
  __shared__ uint64_t came[kWarps][kDepth];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = pieces.warps;
  const bool asks = threadIdx.x % kWarp == 0;
  const auto every = [&](int all) { return warp < warps ? (all - warp + warps - 1) / warps : 0; };
  const int mine = every(count), depth = min(every(pieces.rooms), kDepth);
  struct Place {
    int run, slice;
  };
  const auto place = [&](int i) {
    const int run = pieces.slices.Divide(i);
    return Place{run, i - run * pieces.slices.by};
  };
  const auto room = [&](int k) {
    const Place at = place(warp + k * warps);
    return shared + at.run * pieces.pitch + at.slice * (kSliceUnits * kPair<kForm>);
  };
  const auto ask_for = [&](int turn, int k) {
    if (turn >= mine || !asks) return;
    const Place at = place(warp + turn * warps);
    ask(at.run, at.slice, room(k), &came[warp][k]);
  };
  // This code runs once, and the fewer instructions it has, the sooner they are here.
#pragma unroll 1
  for (int k = 0; k < depth; ++k) {
    if (asks) InitBarrier(&came[warp][k], 1), FenceBarriers();
    ask_for(k, k);
  }
  read();
  int at = 0, parity = 0;
#pragma unroll 1
  for (int turn = 0; turn < mine; ++turn) {
    const int i = warp + turn * warps;
    const Place of = place(i);
    WaitBarrier(&came[warp][at], parity);
    MultiplyPiece<kForm>(room(at), min(kSliceUnits, pieces.units - of.slice * kSliceUnits),
                         row(of.run) + of.slice * kSliceWords, sums + i * kTile);
    __syncwarp();
    ask_for(turn + depth, at);
    if (++at == depth) at = 0, parity ^= 1;
  }
  __syncthreads();
}

// Slices in order; a sum begins with its first.
__device__ __forceinline__ float AddSlices(const float* sums, int slices) {
  float total = sums[0];
#pragma unroll 1
  for (int s = 1; s < slices; ++s) total = total + sums[s * kTile];
  return total;
}

// A row that has to be scaled; the whole block calls. Rare, so it may take its time.
__device__ __noinline__ float RoundScaled(const float* x, int cols, uint32_t* rounded) {
  float largest = 0;
  for (int i = 0; i < cols; i += 4) largest = fmaxf(largest, Largest(LoadFour(x + i)));
  const float scale = RowScale(largest);
  for (int i = 4 * static_cast<int>(threadIdx.x); i < cols; i += 4 * kThreads) {
    StoreRounded(rounded, i, LoadFour(x + i), 1 / scale);
  }
  __syncthreads();
  return scale;
}
// Zeros behind the columns of `rows` rows.
__device__ __forceinline__ void FillUp(int cols, int rows, uint32_t* rounded) {
  const int more = (Padded(cols) - cols) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < rows * more; i += kThreads) {
    const int row = i / more;
    StoreRounded(rounded + row * (Padded(cols) / 2), cols + 4 * (i - row * more),
                 make_float4(0, 0, 0, 0), 1.0f);
  }
}

template <PackedForm kForm>
__global__ void __launch_bounds__(kThreads, 2)
    PackedGatesKernel(const __grid_constant__ GatesCall call) {
  constexpr int kHold = kColumns / (4 * kThreads);
  if (!kSinceHopper) return;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ int expert_of[kSlots];
  auto* rounded = reinterpret_cast<uint32_t*>(shared + call.pieces.Bytes());
  auto* sums = reinterpret_cast<float*>(rounded + Padded(call.cols) / 2);
  const int first = call.units.Begin(static_cast<int>(blockIdx.x));
  const int units = call.units.Count(static_cast<int>(blockIdx.x));
  const auto column = [](int j) { return 4 * (static_cast<int>(threadIdx.x) + j * kThreads); };
  FillUp(call.cols, 1, rounded);
  WaitForInputs();
  // Not before the wait: PackedSumKernel, which comes next, reads the plan before its own, and
  // relies on it that everything in front of this kernel has ended when it starts.
  LetNextStart();
  float4 held[kHold];
#pragma unroll
  for (int j = 0; j < kHold; ++j) {
    if (column(j) < call.cols) held[j] = LoadFour(call.x + column(j));
  }
  FindExperts(call.begin, call.experts, expert_of);
  __syncthreads();
  float scale = 1;
  // Runs are the tiles of up and gate in turn.
  RunPieces<kForm>(
      shared, call.pieces, 2 * units * call.pieces.slices.by,
      [&](int run, int slice, std::byte* to, uint64_t* barrier) {
        const int unit = first + run / 2, slot = call.tiles.Divide(unit);
        AskForPiece<kForm>(call.stack[run % 2], call.pieces, expert_of[slot],
                           unit - slot * call.tiles.by, slice, to, barrier);
      },
      [&] {
        float largest = 0;
#pragma unroll
        for (int j = 0; j < kHold; ++j) {
          if (column(j) >= call.cols) break;
          largest = fmaxf(largest, Largest(held[j]));
          StoreRounded(rounded, column(j), held[j], 1.0f);
        }
        if (__syncthreads_or(largest >= 65520.0f) != 0) {
          scale = RoundScaled(call.x, call.cols, rounded);
        }
      },
      [&](int) { return rounded; }, sums);
  const int slices = call.pieces.slices.by;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < units * kTile; i += kThreads) {
    const int unit = first + i / kTile, slot = call.tiles.Divide(unit);
    const int row = (unit - slot * call.tiles.by) * kTile + i % kTile;
    if (row >= call.stack[0].rows) continue;
    const float* of_unit = sums + i / kTile * (2 * slices * kTile) + i % kTile;
    const float up = AddSlices(of_unit, slices) * scale;
    const float gate = AddSlices(of_unit + slices * kTile, slices) * scale;
    call.y[0][slot * call.stride[0] + row] = up;
    call.y[1][slot * call.stride[1] + row] = call.gated ? reference::Silu(gate) * up : gate;
  }
}

// The rows of the slots.
__device__ __forceinline__ void RoundSlots(const SumCall& call, uint32_t* rounded, float* scales) {
  constexpr int kHold = 3;  // are asked for before the first is looked at
  const int thread = static_cast<int>(threadIdx.x);
  const int all = call.fours.by * call.count.by, words = Padded(call.cols) / 2;
  float largest = 0;
#pragma unroll 1
  for (int first = thread; first < all; first += kHold * kThreads) {
    float4 held[kHold];
    int slot[kHold], column[kHold];
#pragma unroll
    for (int j = 0; j < kHold; ++j) {
      const int i = first + j * kThreads;
      slot[j] = call.fours.Divide(i);
      column[j] = 4 * (i - slot[j] * call.fours.by);
      if (i < all) held[j] = LoadFour(call.x + slot[j] * call.x_stride + column[j]);
    }
#pragma unroll
    for (int j = 0; j < kHold; ++j) {
      if (first + j * kThreads >= all) break;
      largest = fmaxf(largest, Largest(held[j]));
      StoreRounded(rounded + slot[j] * words, column[j], held[j], 1.0f);
    }
  }
  if (thread < call.count.by) scales[thread] = 1.0f;
  if (__syncthreads_or(largest >= 65520.0f) == 0) return;
#pragma unroll 1
  for (int s = 0; s < call.count.by; ++s) {
    const float scale = RoundScaled(call.x + s * call.x_stride, call.cols, rounded + s * words);
    if (thread == 0) scales[s] = scale;
  }
  __syncthreads();
}

template <PackedForm kForm>
__global__ void __launch_bounds__(kThreads, 2)
    PackedSumKernel(const __grid_constant__ SumCall call) {
  if (!kSinceHopper) return;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ int expert_of[kSlots], slot_of[kSlots];
  __shared__ float weight_of[kSlots], scales[kSlots];
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  const int slices = call.pieces.slices.by, words = Padded(call.cols) / 2;
  const int tiles = call.tiles.Count(static_cast<int>(blockIdx.x));
  const int first = call.tiles.Begin(static_cast<int>(blockIdx.x)) * kTile;
  auto* rounded = reinterpret_cast<uint32_t*>(shared + call.pieces.Bytes());
  auto* sums = reinterpret_cast<float*>(rounded + call.count.by * words);
  // What y and sum are before, of the columns of the block.
  float* before = sums + tiles * call.count.by * slices * kTile;
  const auto combines = [&] {
    return call.y != nullptr && thread < tiles * kTile && first + thread < call.stack.rows;
  };
  // Before the wait: PackedGatesKernel lets nothing start until all that came before it has ended,
  // and so the plan and the routing are there.
  FindExperts(call.begin, call.experts, expert_of);
  if (call.y != nullptr && thread < call.top_k) {
    slot_of[thread] = __ldcg(call.slot + thread);
    weight_of[thread] = __ldcg(call.weights + thread);
  }
  FillUp(call.cols, call.count.by, rounded);
  __syncthreads();
  RunPieces<kForm>(
      shared, call.pieces, tiles * call.count.by * slices,
      [&](int run, int slice, std::byte* to, uint64_t* barrier) {
        const int tile = call.count.Divide(run), slot = run - tile * call.count.by;
        AskForPiece<kForm>(call.stack, call.pieces, expert_of[slot], first / kTile + tile, slice,
                           to, barrier);
      },
      [&] {
        WaitForInputs();
        float y = 0, sum = 0;  // on their way while the slots are
        if (combines() && !call.zero) y = call.y[first + thread];
        if (combines() && call.sum != nullptr) sum = call.sum[first + thread];
        RoundSlots(call, rounded, scales);
        if (combines()) before[thread] = y, before[tiles * kTile + thread] = sum;
      },
      [&](int run) { return rounded + (run - call.count.Divide(run) * call.count.by) * words; },
      sums);
  // The output of a slot takes the place of its first slice.
#pragma unroll 1
  for (int i = thread; i < tiles * call.count.by * kTile; i += kThreads) {
    const int run = i / kTile, tile = call.count.Divide(run), slot = run - tile * call.count.by;
    float* of_run = sums + run * slices * kTile + i % kTile;
    const float value = AddSlices(of_run, slices) * scales[slot];
    const int row = first + tile * kTile + i % kTile;
    if (row < call.stack.rows) call.slots[slot * call.stride + row] = value;
    *of_run = value;
  }
  __syncthreads();
  if (!combines()) return;
  const float* of_tile = sums + thread / kTile * call.count.by * slices * kTile + thread % kTile;
  float total = before[thread];
#pragma unroll 1
  for (int k = 0; k < call.top_k; ++k) {
    total = fmaf(weight_of[k], of_tile[slot_of[k] * slices * kTile], total);
  }
  call.y[first + thread] = total;
  if (call.sum != nullptr) call.sum[first + thread] = before[tiles * kTile + thread] + total;
}

// --- Launches ------------------------------------------------------------------------------------

template <PackedForm kForm>
Stack StackOf(const ChosenProduct& product) {
  const HalfMatrix& weight = product.packed;
  return {reinterpret_cast<const uint8_t*>(weight.data),
          CeilDiv<int64_t>(weight.rows, kTile) * (weight.stride / kUnitCols) * kPair<kForm>,
          int(weight.rows)};
}
// As many pieces of `runs` as there is room for beside `others` bytes; without a room: none. Each
// warp keeps to rooms of one slice, if slices divide the warps, so that those of the last slice may
// be as small as it is.
template <PackedForm kForm>
Pieces PiecesOf(int cols, int runs, size_t others) {
  Pieces pieces = {};
  pieces.units = Padded(cols) / kUnitCols;
  const int slices = CeilDiv(pieces.units, kSliceUnits);
  pieces.slices = Divisor::Of(slices);
  const bool compact = kWarps % slices == 0;
  pieces.pitch = (compact ? pieces.units : slices * kSliceUnits) * kPair<kForm>;
  if (others > BlockShared()) return pieces;
  const int fit = int((BlockShared() - others) / size_t(pieces.pitch));
  pieces.rooms = std::min(runs, fit) * slices;
  pieces.warps = std::min(pieces.rooms, kWarps);
  return pieces;
}

template <PackedForm kForm>
bool Launch(const Target& target, const ChosenGates& gates) {
  GatesCall call = {};
  call.x = gates.x.data;
  call.begin = gates.plan.begin;
  call.stack[0] = StackOf<kForm>(gates.up);
  call.stack[1] = StackOf<kForm>(gates.gate);
  call.y[0] = gates.up.y.data;
  call.y[1] = gates.gate.y.data;
  call.stride[0] = int(gates.up.y.stride);
  call.stride[1] = int(gates.gate.y.stride);
  call.cols = int(gates.x.cols);
  call.experts = gates.plan.experts;
  call.tiles = Divisor::Of(CeilDiv(call.stack[0].rows, kTile));
  const int units = call.tiles.by * int(gates.plan.slots);
  call.units = Divide(units);
  call.gated = gates.gated;
  const int runs = 2 * call.units.most(), slices = CeilDiv(call.cols, kTensorSlice);
  const size_t others = size_t(Padded(call.cols)) * 2 + size_t(runs * slices * kTile) * 4;
  call.pieces = PiecesOf<kForm>(call.cols, runs, others);
  if (call.pieces.rooms == 0 || !target.launch) return call.pieces.rooms > 0;
  LaunchEarly(PackedGatesKernel<kForm>, unsigned(BlocksFor(units)), kThreads, BlockShared(),
              target.stream, call);
  return true;
}

template <PackedForm kForm>
bool Launch(const Target& target, const ChosenSum& sum) {
  SumCall call = {};
  call.x = sum.x.data;
  call.x_stride = int(sum.x.stride);
  call.begin = sum.plan.begin;
  call.stack = StackOf<kForm>(sum.down);
  call.slots = sum.down.y.data;
  call.stride = int(sum.down.y.stride);
  call.cols = int(sum.x.cols);
  call.experts = sum.plan.experts;
  call.count = Divisor::Of(int(sum.plan.slots));
  call.fours = Divisor::Of(call.cols / 4);
  const int tiles = CeilDiv(call.stack.rows, kTile);
  call.tiles = Divide(tiles);
  call.weights = sum.routing.weights;
  call.slot = sum.plan.slot;
  call.top_k = sum.routing.top_k;
  call.zero = sum.start == SumStart::kZero;
  call.y = sum.y.data;
  call.sum = sum.sum.data;
  const int columns = call.tiles.most() * kTile, runs = call.tiles.most() * call.count.by;
  const int slices = CeilDiv(call.cols, kTensorSlice);
  const size_t others = size_t(call.count.by) * size_t(Padded(call.cols)) * 2 +
                        size_t(runs * slices * kTile + 2 * columns) * 4;
  if (columns <= kThreads) call.pieces = PiecesOf<kForm>(call.cols, runs, others);
  if (call.pieces.rooms == 0 || !target.launch) return call.pieces.rooms > 0;
  LaunchEarly(PackedSumKernel<kForm>, unsigned(BlocksFor(tiles)), kThreads, BlockShared(),
              target.stream, call);
  return true;
}

template <typename Call>
bool LaunchForm(const Target& target, PackedForm form, const Call& call) {
  switch (form) {
    case PackedForm::kNone:
      break;
    case PackedForm::kBytes:
      return Launch<PackedForm::kBytes>(target, call);
    case PackedForm::kNibbles:
      return Launch<PackedForm::kNibbles>(target, call);
    case PackedForm::kFives:
      return Launch<PackedForm::kFives>(target, call);
    case PackedForm::kSixes:
      return Launch<PackedForm::kSixes>(target, call);
  }
  return false;
}

}  // namespace

bool LaunchChosenPacked(const Target& target, const ChosenGates& gates) {
  return LaunchForm(target, gates.up.packed.packed, gates);
}
bool LaunchChosenPacked(const Target& target, const ChosenSum& sum) {
  return LaunchForm(target, sum.down.packed.packed, sum);
}

}  // namespace reprise::cuda
