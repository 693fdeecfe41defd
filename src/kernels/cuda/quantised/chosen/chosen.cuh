// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/cuda/quantised/chosen/blocks.cuh"
#include "kernels/cuda/quantised/forms/links.cuh"
#include "kernels/reference/math.h"

// A block for each multiprocessor. Its stages (forms/links.cuh) are tiles of one expert's weights
// over all of k; its warps take them in turn, and what comes out meets in shared memory. As many
// stages as there is room for are asked for at once.
namespace reprise::cuda {
namespace chosen {

using links::EightFloats;
using links::Input;
using links::InputBytes;
using links::Links;
using links::Place;
using links::PlaneCopies;
using links::Stage;

// A stack of experts.
struct Stack {
  const std::byte* quants;
  const std::byte* extra;
  const std::byte* sub;
  const std::byte* scale;
  const uint2* grid;
  int quant_stride, extra_stride, sub_stride, scale_stride;
  int rows;  // of an expert
};
struct GatesCall {
  const float* x;
  const int32_t* begin;  // of slots, by expert
  Stack stack[2];        // up, gate
  float* y[2];
  int stride[2];
  int cols, experts;
  Divisor tiles;   // of an expert
  Division units;  // a tile of both of a slot
  int rooms;
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
  Divisor count;   // slots
  Divisor groups;  // of 256 columns of a slot
  Division tiles;  // of all slots
  int columns;     // of a block, at most
  int rooms;
  // Of CombineExperts; y and sum may be null.
  const float* weights;
  const int32_t* slot;
  int top_k;
  bool zero;
  float* y;
  float* sum;
};

// The lane, read anew: what follows from it is not kept in registers meanwhile, which are scarce.
__device__ __forceinline__ int LaneHere() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

template <DType kType, int kTile>
__device__ __forceinline__ void AskForTile(const Stack& stack, int expert, int first,
                                           std::byte* stage) {
  using S = Stage<kType, kTile>;
  const int row = expert * stack.rows + first, rows = min(kTile, stack.rows - first);
  const int lane = LaneHere();
  PlaneCopies<kTile, S::kQuads * S::kQuantBytes, S::kQuantBytes>::Ask(
      stack.quants, stack.quant_stride, row, rows, lane, stage);
  PlaneCopies<kTile, S::kQuads * S::kExtraBytes, S::kExtraBytes>::Ask(
      stack.extra, stack.extra_stride, row, rows, lane, stage + S::kExtra);
  PlaneCopies<kTile, S::kSubBytes, S::kSubBytes>::Ask(stack.sub, stack.sub_stride, row, rows, lane,
                                                      stage + S::kSub);
  PlaneCopies<kTile, S::kScaleBytes, S::kScaleBytes>::Ask(stack.scale, stack.scale_stride, row,
                                                          rows, lane, stage + S::kScale);
}

__device__ __forceinline__ void WaitForAllBut(int pending) {
  if (pending == 0) return WaitForCopies<0>();
  if (pending == 1) return WaitForCopies<1>();
  if (pending == 2) return WaitForCopies<2>();
  WaitForCopies<kDepth - 1>();
}

__device__ __forceinline__ Input InputAt(std::byte* at, const InputBytes& bytes) {
  return {at, reinterpret_cast<float*>(at + bytes.q),
          reinterpret_cast<int16_t*>(at + bytes.q + bytes.scale)};
}

// A warp's stages of the block's: every kWarps-th one, from its own on. ask(i, stage) asks for
// stage i; read(), by all threads, brings the inputs; quad(i): the first of the inputs that stage i
// is multiplied with; done(i, row, total): for a row of its tile.
template <DType kType, int kTile, typename Ask, typename Read, typename Quad, typename Done>
__device__ __forceinline__ void RunStages(std::byte* shared, int rooms, int stages,
                                          const uint2* grid, const Input& input, int units,
                                          const Ask& ask, const Read& read, const Quad& quad,
                                          const Done& done) {
  using S = Stage<kType, kTile>;
  constexpr int kQuads = S::kQuads;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto every = [&](int all) { return (all - warp + kWarps - 1) / kWarps; };
  const int mine = every(stages), depth = min(every(rooms), kDepth);
  const int last = (units + 3) / 4 - 1;  // quad of a row
  const auto room = [&](int k) { return (warp + k * kWarps) * S::kBytes; };
  // This code runs once, and the fewer instructions it has, the sooner they are here.
#pragma unroll 1
  for (int k = 0; k < depth; ++k) {
    if (k < mine) ask(warp + k * kWarps, shared + room(k));
    CommitCopies();
  }
  read();
  int at = 0;
#pragma unroll 1
  for (int turn = 0; turn < mine; ++turn) {
    const int i = warp + turn * kWarps;
    WaitForAllBut(depth - 1);
    __syncwarp();
    // No registers for more.
    constexpr int kAtOnce = UnitTraits<kType>::kBytes || kType == DType::kQ5_K ? 2 : 4;
    Links<kType, kTile, kAtOnce> links;
    links.Make(shared, room(at), grid, input.template From<kType>(quad(i)),
               Place<kType, kTile>(min(static_cast<int>(threadIdx.x) % kQuads, last)));
    const float total = links.Chain(0, units);
    const int lane = LaneHere();
    if (lane % kQuads == 0) done(i, lane / kQuads, total);
    // No earlier: there are no registers for the links beside it.
    __syncwarp();
    if (turn + depth < mine) ask(i + depth * kWarps, shared + room(at));
    CommitCopies();
    if (++at == depth) at = 0;
  }
  __syncthreads();
}

template <DType kType, int kTile>
__global__ void __launch_bounds__(kThreads, 2)
    ChosenGatesKernel(const __grid_constant__ GatesCall call) {
  using S = Stage<kType, kTile>;
  constexpr int kBlock = UnitTraits<kType>::kBlock256 ? 256 : 32;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ int expert_of[kSlots];
  const InputBytes bytes(CeilDiv(call.cols, 128), kBlock);
  std::byte* at = shared + call.rooms * S::kBytes;
  const Input input = InputAt(at, bytes);
  auto* values = reinterpret_cast<float*>(at + bytes.all());  // [stages, kTile]
  const int first = call.units.Begin(static_cast<int>(blockIdx.x));
  const int units = call.units.Count(static_cast<int>(blockIdx.x));
  const int column = 8 * static_cast<int>(threadIdx.x);
  WaitForInputs();
  // Not before the wait: ChosenSumKernel, which comes next, reads the plan before its own, and
  // relies on it that everything in front of this kernel has ended when it starts.
  LetNextStart();
  EightFloats held = {};
  if (column < call.cols) held.Load(call.x + column);
  FindExperts(call.begin, call.experts, expert_of);
  __syncthreads();
  // Stages are the tiles of up and gate in turn.
  RunStages<kType, kTile>(
      shared, call.rooms, 2 * units, call.stack[0].grid, input, call.cols / 32,
      [&](int i, std::byte* stage) {
        const int unit = first + i / 2, slot = call.tiles.Divide(unit);
        AskForTile<kType, kTile>(call.stack[i % 2], expert_of[slot],
                                 (unit - slot * call.tiles.by) * kTile, stage);
      },
      [&] {
        if (column / 256 * 256 < call.cols) {
          links::QuantiseInto<kType>(held, column, call.cols, input);
        }
        __syncthreads();
      },
      [](int) { return 0; }, [&](int i, int row, float total) { values[i * kTile + row] = total; });
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < units * kTile; i += kThreads) {
    const int unit = first + i / kTile, slot = call.tiles.Divide(unit);
    const int row = (unit - slot * call.tiles.by) * kTile + i % kTile;
    if (row >= call.stack[0].rows) continue;
    const float* of_unit = values + i / kTile * 2 * kTile + i % kTile;
    const float up = of_unit[0], gate = of_unit[kTile];
    call.y[0][slot * call.stride[0] + row] = up;
    call.y[1][slot * call.stride[1] + row] = call.gated ? reference::Silu(gate) * up : gate;
  }
}

// Quantises the rows of the slots, `quads` for each. A warp has 256 neighbours at a time.
template <DType kType>
__device__ __forceinline__ void QuantiseSlots(const SumCall& call, int quads, const Input& input) {
  constexpr int kHold = 2;  // are asked for before the first is looked at
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int all = call.groups.by * call.count.by;
#pragma unroll 1
  for (int first = warp; first < all; first += kHold * kWarps) {
    EightFloats held[kHold] = {};
    int slot[kHold], column[kHold];
#pragma unroll
    for (int j = 0; j < kHold; ++j) {
      const int group = first + j * kWarps;
      slot[j] = call.groups.Divide(group);
      column[j] = (group - slot[j] * call.groups.by) * 256 + lane * 8;
      if (group < all && column[j] < call.cols) {
        held[j].Load(call.x + slot[j] * call.x_stride + column[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kHold; ++j) {
      if (first + j * kWarps >= all) break;
      const int row = slot[j] * quads * 128;
      links::QuantiseInto<kType>(held[j], row + column[j], row + call.cols, input);
    }
  }
}

template <DType kType, int kTile>
__global__ void __launch_bounds__(kThreads, 2)
    ChosenSumKernel(const __grid_constant__ SumCall call) {
  using S = Stage<kType, kTile>;
  constexpr int kBlock = UnitTraits<kType>::kBlock256 ? 256 : 32;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ int expert_of[kSlots], slot_of[kSlots];
  __shared__ float weight_of[kSlots];
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  const int quads = CeilDiv(call.cols, 128);
  const InputBytes bytes(quads * call.count.by, kBlock);
  std::byte* at = shared + call.rooms * S::kBytes;
  const Input input = InputAt(at, bytes);
  const int tiles = call.tiles.Count(static_cast<int>(blockIdx.x));
  // What y and sum are before, and the outputs of the slots: [columns] each.
  auto* values = reinterpret_cast<float*>(at + bytes.all());
  const int first = call.tiles.Begin(static_cast<int>(blockIdx.x)) * kTile;
  const auto combines = [&] {
    return call.y != nullptr && thread < tiles * kTile && first + thread < call.stack.rows;
  };
  // Before the wait: ChosenGatesKernel lets nothing start until all that came before it has ended,
  // and so the plan and the routing are there.
  FindExperts(call.begin, call.experts, expert_of);
  if (call.y != nullptr && thread < call.top_k) {
    slot_of[thread] = __ldcg(call.slot + thread);
    weight_of[thread] = __ldcg(call.weights + thread);
  }
  __syncthreads();
  RunStages<kType, kTile>(
      shared, call.rooms, tiles * call.count.by, call.stack.grid, input, call.cols / 32,
      [&](int i, std::byte* stage) {
        const int tile = call.count.Divide(i), slot = i - tile * call.count.by;
        AskForTile<kType, kTile>(call.stack, expert_of[slot], first + tile * kTile, stage);
      },
      [&] {
        WaitForInputs();
        float y = 0, sum = 0;  // on their way while the slots are
        if (combines() && !call.zero) y = call.y[first + thread];
        if (combines() && call.sum != nullptr) sum = call.sum[first + thread];
        QuantiseSlots<kType>(call, quads, input);
        if (combines()) values[thread] = y, values[call.columns + thread] = sum;
        __syncthreads();
      },
      [&](int i) { return (i - call.count.Divide(i) * call.count.by) * quads; },
      [&](int i, int row, float value) {
        const int tile = call.count.Divide(i), slot = i - tile * call.count.by;
        const int column = tile * kTile + row;
        values[(2 + slot) * call.columns + column] = value;
        if (first + column < call.stack.rows) {
          call.slots[slot * call.stride + first + column] = value;
        }
      });
  if (!combines()) return;
  float total = values[thread];
#pragma unroll 1
  for (int k = 0; k < call.top_k; ++k) {
    total = fmaf(weight_of[k], values[(2 + slot_of[k]) * call.columns + thread], total);
  }
  call.y[first + thread] = total;
  if (call.sum != nullptr) call.sum[first + thread] = values[call.columns + thread] + total;
}

// --- Launches ------------------------------------------------------------------------------------

inline Stack StackOf(const ChosenProduct& product) {
  const QuantisedLayout& layout = product.quantised.layout;
  const std::byte* data = product.quantised.data;
  return {data,
          data + layout.extra,
          data + layout.sub,
          data + layout.scale,
          GridOf(product.quantised),
          int(layout.quant_stride),
          int(layout.extra_stride),
          int(layout.sub_stride),
          int(layout.scale_stride),
          int(product.y.cols)};
}
// Stages that there is room for beside so many bytes; 0: too few to work with.
inline int RoomsFor(int stages, int stage_bytes, int others) {
  const int rooms = std::min(stages, (int(BlockShared()) - others) / stage_bytes);
  return rooms >= std::min(stages, kWarps) ? rooms : 0;
}

template <DType kType, int kTile>
bool LaunchGates(const Target& target, const ChosenGates& gates) {
  using S = Stage<kType, kTile>;
  GatesCall call = {};
  call.x = gates.x.data;
  call.begin = gates.plan.begin;
  call.stack[0] = StackOf(gates.up);
  call.stack[1] = StackOf(gates.gate);
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
  const int block = UnitTraits<kType>::kBlock256 ? 256 : 32;
  const int stages = 2 * call.units.most();
  const int others = InputBytes(CeilDiv(call.cols, 128), block).all() + stages * kTile * 4;
  call.rooms = RoomsFor(stages, S::kBytes, others);
  if (call.rooms == 0 || !target.launch) return call.rooms > 0;
  const auto kernel = ChosenGatesKernel<kType, kTile>;
  LaunchEarly(kernel, unsigned(BlocksFor(units)), kThreads, BlockShared(), target.stream, call);
  return true;
}

template <DType kType, int kTile>
bool LaunchSum(const Target& target, const ChosenSum& sum) {
  using S = Stage<kType, kTile>;
  SumCall call = {};
  call.x = sum.x.data;
  call.x_stride = int(sum.x.stride);
  call.begin = sum.plan.begin;
  call.stack = StackOf(sum.down);
  call.slots = sum.down.y.data;
  call.stride = int(sum.down.y.stride);
  call.cols = int(sum.x.cols);
  call.experts = sum.plan.experts;
  call.count = Divisor::Of(int(sum.plan.slots));
  call.groups = Divisor::Of(CeilDiv(call.cols, 256));
  const int tiles = CeilDiv(call.stack.rows, kTile);
  call.tiles = Divide(tiles);
  call.weights = sum.routing.weights;
  call.slot = sum.plan.slot;
  call.top_k = sum.routing.top_k;
  call.zero = sum.start == SumStart::kZero;
  call.y = sum.y.data;
  call.sum = sum.sum.data;
  const int block = UnitTraits<kType>::kBlock256 ? 256 : 32;
  call.columns = call.tiles.most() * kTile;
  const int stages = call.tiles.most() * call.count.by;
  const int others = InputBytes(CeilDiv(call.cols, 128) * call.count.by, block).all() +
                     call.columns * (2 + call.count.by) * 4;
  call.rooms = call.columns > kThreads ? 0 : RoomsFor(stages, S::kBytes, others);
  if (call.rooms == 0 || !target.launch) return call.rooms > 0;
  const auto kernel = ChosenSumKernel<kType, kTile>;
  LaunchEarly(kernel, unsigned(BlocksFor(tiles)), kThreads, BlockShared(), target.stream, call);
  return true;
}

// In tiles of as many rows as a stage has.
template <DType kType>
bool Launch(const Target& target, const ChosenGates& gates) {
  return gates.x.cols <= 1024   ? LaunchGates<kType, 4>(target, gates)
         : gates.x.cols <= 2048 ? LaunchGates<kType, 2>(target, gates)
                                : LaunchGates<kType, 1>(target, gates);
}
template <DType kType>
bool Launch(const Target& target, const ChosenSum& sum) {
  return sum.x.cols <= 1024   ? LaunchSum<kType, 4>(target, sum)
         : sum.x.cols <= 2048 ? LaunchSum<kType, 2>(target, sum)
                              : LaunchSum<kType, 1>(target, sum);
}

}  // namespace chosen

// By the size of blocks, in files of their own.
bool LaunchChosen32(const chosen::Target& target, DType type, const ChosenGates& gates);
bool LaunchChosen32(const chosen::Target& target, DType type, const ChosenSum& sum);
bool LaunchChosen256(const chosen::Target& target, DType type, const ChosenGates& gates);
bool LaunchChosen256(const chosen::Target& target, DType type, const ChosenSum& sum);

}  // namespace reprise::cuda
