// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantised/forms/mma.cuh"
#include "kernels/cuda/quantised/forms/product.cuh"
#include "kernels/cuda/tensor/hopper.cuh"
#include "kernels/cuda/tensor/tensor_map.h"

// Products for very many tokens and one matrix, by warpgroups: a unit of 64 rows of weights by 32
// tokens is one instruction (wgmma s8), weights from registers as mma.cuh has them, tokens from
// shared memory. Most of the time goes to folding sums into totals, so that warps do little else:
// the copy engine fills the stages, and while a warp folds one half of its tokens, the tensor cores
// are at the other. Blocks stay, and take tile after tile.
namespace reprise::cuda {
namespace warpgroup {

// What the copy engine reads, each a map of a plane's rows.
struct Maps {
  CUtensorMap quants, extra, sub, scale;  // of the weights
  CUtensorMap x, x_scale, x_sum;
};
struct Call {
  const float* bias;
  View y;
  const uint2* grid;  // IQ2_XXS
  int stages;         // along K
  int row_tiles;
  int token_tiles;
};

// Warpgroups stand in a grid of kGroupRows x kGroupColumns, each with 64 rows and 64 tokens.
template <DType kType>
struct Shape {
  using Traits = UnitTraits<kType>;
  // Sums of 256-blocks take registers beside the totals: three warpgroups for four.
  static constexpr int kGroupRows = Traits::kBlock256 ? 3 : 2;
  static constexpr int kGroupColumns = Traits::kBlock256 ? 1 : 2;
  static constexpr int kRows = 64 * kGroupRows;
  static constexpr int kTokens = 64 * kGroupColumns;
  static constexpr int kThreads = 128 * kGroupRows * kGroupColumns;
  static constexpr int kBand = 16;  // token tiles that are run together: weights stay in L2
};

// One stage in shared memory: a quad of 32-blocks, or a 256-block. Offsets in bytes. The copy
// engine reads pieces of 16 bytes that lie at multiples of 16: of scales and the like it brings the
// piece that has those of the stage in it.
template <DType kType>
struct Stage {
  using Traits = UnitTraits<kType>;
  using S = Shape<kType>;
  static constexpr int kQuads = Traits::kBlock256 ? 2 : 1;
  static constexpr int kQuantBytes = kQuads * Traits::kQuantWords * 16;  // of a row
  static constexpr int kExtraBytes = kQuads * Traits::kExtraWords * 16;
  static constexpr int kSubBytes = Traits::kSubBytes == 0 ? 0 : 16;
  static constexpr int kSumBytes = !Traits::kMinimum ? 0 : Traits::kBlock256 ? 32 : 16;
  // Bytes of a row from stage to stage.
  static constexpr int kBlocks = Traits::kBlock256 ? 1 : 4;
  static constexpr int kScaleElement = Traits::kMinimum ? 4 : 2;
  static constexpr int kScaleStep = kBlocks * kScaleElement;
  static constexpr int kXScaleStep = kBlocks * 4;
  static constexpr int kSumStep = Traits::kBlock256 ? 32 : 8;

  static constexpr int kX = 0;  // [kQuads, tokens, 128], swizzled
  static constexpr int kQuants = kX + kQuads * S::kTokens * 128;
  static constexpr int kExtra = kQuants + S::kRows * kQuantBytes;
  static constexpr int kSub = kExtra + S::kRows * kExtraBytes;
  static constexpr int kScale = kSub + S::kRows * kSubBytes;
  static constexpr int kXScale = kScale + S::kRows * 16;
  static constexpr int kSum = kXScale + S::kTokens * 16;
  static constexpr int kCopied = kSum + S::kTokens * kSumBytes;
  static constexpr int kBytes = (kCopied + 1023) / 1024 * 1024;

  static constexpr int kCount = std::min(6, (220 << 10) / kBytes);
  static constexpr int kAhead = kCount - 2;  // asked for: nobody waits for the slowest warpgroup
  static_assert(kAhead >= 1);
};

// Where the piece begins that has byte `at` of a row in it, and where `at` is in the piece.
__device__ __forceinline__ int PieceOf(int at) { return at & ~15; }
__device__ __forceinline__ int InPiece(int at) { return at & 15; }

// The tile with this number, in bands of token tiles.
template <DType kType>
__device__ __forceinline__ int2 PlaceOf(const Call& call, int index) {
  constexpr int kBand = Shape<kType>::kBand;
  const int band = index / (kBand * call.row_tiles);
  const int width = min(kBand, call.token_tiles - band * kBand);
  const int inside = index - band * kBand * call.row_tiles;
  return {inside / width * Shape<kType>::kRows,
          (band * kBand + inside % width) * Shape<kType>::kTokens};
}

template <DType kType>
struct Shared {
  alignas(1024) std::byte stages[Stage<kType>::kCount][Stage<kType>::kBytes];
  uint64_t full[Stage<kType>::kCount];
  uint64_t empty[Stage<kType>::kCount];
  uint2 grid[UnitTraits<kType>::kGrid ? 256 : 1];
};

// Asks for a stage, if there is one: number `step` along K counted from the beginning of `tile`,
// which may be in a tile that the block takes later. One thread.
template <DType kType>
__device__ __forceinline__ void Ask(const Maps& maps, const Call& call, int tile, int step,
                                    int slot, int parity, Shared<kType>& shared) {
  using Traits = UnitTraits<kType>;
  using St = Stage<kType>;
  for (; step >= call.stages; step -= call.stages) tile += static_cast<int>(gridDim.x);
  if (tile >= call.row_tiles * call.token_tiles) return;
  const int2 place = PlaceOf<kType>(call, tile);
  const int row = place.x, token = place.y;
  uint64_t* full = &shared.full[slot];
  std::byte* to = shared.stages[slot];
  WaitBarrier(&shared.empty[slot], parity ^ 1);
  ExpectBytes(full, St::kCopied);
#pragma unroll
  for (int quad = 0; quad < St::kQuads; ++quad) {
    CopyBox(to + St::kX + quad * Shape<kType>::kTokens * 128, &maps.x,
            (step * St::kQuads + quad) * 128, token, full);
  }
  CopyBox(to + St::kQuants, &maps.quants, step * St::kQuantBytes, row, full);
  if constexpr (St::kExtraBytes > 0) {
    CopyBox(to + St::kExtra, &maps.extra, step * St::kExtraBytes, row, full);
  }
  if constexpr (St::kSubBytes > 0) {
    CopyBox(to + St::kSub, &maps.sub, PieceOf(step * Traits::kSubBytes), row, full);
  }
  CopyBox(to + St::kScale, &maps.scale, PieceOf(step * St::kScaleStep) / St::kScaleElement, row,
          full);
  CopyBox(to + St::kXScale, &maps.x_scale, PieceOf(step * St::kXScaleStep) / 4, token, full);
  if constexpr (St::kSumBytes > 0) {
    CopyBox(to + St::kSum, &maps.x_sum, PieceOf(step * St::kSumStep), token, full);
  }
}

// What a warp does: 16 of the 64 rows of its warpgroup, by 64 tokens in two halves.
template <DType kType>
struct Warp {
  using Traits = UnitTraits<kType>;
  using St = Stage<kType>;
  static constexpr int kN = 4;  // eights of tokens in a half
  using Sums = int[4 * kN];

  float total[2 * kN][4];  // as mma.cuh has C
  int number;              // of the warp in the block
  int row, token;          // of the warp in the tile
  int g, i;
  int stage_number = 0;  // along K: of the stage that is read

  __device__ Warp() {
    // Said by one thread for all, so that the compiler knows what a warp has in common.
    number = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int lane = threadIdx.x % 32;
    constexpr int kColumns = Shape<kType>::kGroupColumns;
    row = number / 4 / kColumns * 64 + number % 4 * 16;
    token = number / 4 % kColumns * 64;
    g = lane / 4, i = lane % 4;
  }

  __device__ void Clear() {
#pragma unroll
    for (int n = 0; n < 2 * kN; ++n) {
#pragma unroll
      for (int o = 0; o < 4; ++o) total[n][o] = 0;
    }
  }

  // Row g or g + 8.
  __device__ int RowOf(int half) const { return row + 8 * half + g; }
  __device__ int TokenOf(int n) const { return token + 8 * n + 2 * i; }  // and the next

  __device__ void Weights(const std::byte* stage, int quad, QuadWords<kType> (&words)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = RowOf(half);
      words[half].Load(reinterpret_cast<const uint4*>(stage + St::kQuants + r * St::kQuantBytes) +
                           quad * Traits::kQuantWords,
                       reinterpret_cast<const uint4*>(stage + St::kExtra + r * St::kExtraBytes) +
                           quad * Traits::kExtraWords,
                       i);
    }
  }
  // f16 scales of the 256-block of the stage, in one word.
  __device__ uint32_t RowScales(const std::byte* stage, int half) const {
    const std::byte* at =
        stage + St::kScale + RowOf(half) * 16 + InPiece(stage_number * St::kScaleStep);
    if constexpr (Traits::kMinimum) return *reinterpret_cast<const uint32_t*>(at);
    return *reinterpret_cast<const uint16_t*>(at);
  }
  __device__ float2 XScales(const std::byte* stage, int n) const {
    const auto* at = reinterpret_cast<const float*>(stage + St::kXScale + TokenOf(n) * 16 +
                                                    InPiece(stage_number * St::kXScaleStep));
    return {at[0], at[4]};
  }
  __device__ const uint8_t* Sub(const std::byte* stage, int half) const {
    return reinterpret_cast<const uint8_t*>(stage + St::kSub + RowOf(half) * 16 +
                                            InPiece(stage_number * Traits::kSubBytes));
  }
  // Unit j of a quad of the stage, as the instruction finds the tokens of a half.
  __device__ uint64_t Tokens(const std::byte* stage, int quad, int j, int part) const {
    const int first = quad * Shape<kType>::kTokens + token + 8 * kN * part;
    return TileDescriptor(stage + St::kX + first * 128) + 2 * j;
  }

  __device__ static void Multiply(Sums& c, const Fragment& a, uint64_t tokens) {
    WarpgroupFence();
    WarpgroupMmaBytes32(c, a.a, tokens);
    WarpgroupCommit();
  }
  // Until at most kPending products are under way; c are those of the latest that is not.
  template <int kPending>
  __device__ static void Await(Sums& c) {
    WarpgroupWait<kPending>();
#pragma unroll
    for (int k = 0; k < 4 * kN; ++k) asm volatile("" : "+r"(c[k])::"memory");
  }

  // Runs kSteps products of each half and folds them: fragment(step), unit(step), fold(step, half,
  // sums).
  template <int kSteps, typename FragmentOf, typename UnitOf, typename Fold>
  __device__ __forceinline__ void Run(const std::byte* stage, int quad, const FragmentOf& fragment,
                                      const UnitOf& unit, const Fold& fold) const {
    Sums c[2];
    const Fragment first = fragment(0);
    Multiply(c[0], first, Tokens(stage, quad, unit(0), 0));
    Multiply(c[1], first, Tokens(stage, quad, unit(0), 1));
#pragma unroll
    for (int step = 0; step + 1 < kSteps; ++step) {
      const Fragment next = fragment(step + 1);
      Await<1>(c[0]);
      fold(step, 0, c[0]);
      Multiply(c[0], next, Tokens(stage, quad, unit(step + 1), 0));
      Await<1>(c[1]);
      fold(step, 1, c[1]);
      Multiply(c[1], next, Tokens(stage, quad, unit(step + 1), 1));
    }
    Await<1>(c[0]);
    fold(kSteps - 1, 0, c[0]);
    Await<0>(c[1]);
    fold(kSteps - 1, 1, c[1]);
  }

  // f16 scales of the four blocks of a row of a stage, in registers where they are two.
  struct BlockScales {
    const std::byte* at;
    uint2 word;
    __device__ BlockScales(const Warp& warp, const std::byte* stage, int half)
        : at(stage + St::kScale + warp.RowOf(half) * 16 +
             InPiece(warp.stage_number * St::kScaleStep)) {
      if constexpr (!Traits::kMinimum) word = *reinterpret_cast<const uint2*>(at);
    }
    // Of block b, in one word.
    __device__ uint32_t Of(int b) const {
      if constexpr (Traits::kMinimum) return reinterpret_cast<const uint32_t*>(at)[b];
      const uint32_t two = b < 2 ? word.x : word.y;
      return b % 2 == 0 ? two & 0xFFFF : two >> 16;
    }
  };

  // Adds block b of a stage of 32-blocks; x_scales: of the tokens of a half, two for each n.
  __device__ __forceinline__ void Fold32(const std::byte* stage, int b, int part,
                                         const BlockScales (&scales)[2],
                                         const float (&x_scales)[2 * kN], const Sums& c) {
    float d[2], least[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      d[half] = BlockScale<kType>(scales[half].Of(b));
      if constexpr (Traits::kMinimum) least[half] = BlockMinimum(scales[half].Of(b));
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const int at = part * kN + n;
      float sums[2];
      if constexpr (Traits::kMinimum) {
        const auto* of = reinterpret_cast<const int16_t*>(stage + St::kSum + TokenOf(at) * 16 +
                                                          InPiece(stage_number * St::kSumStep));
        sums[0] = __int2float_rn(of[b]);
        sums[1] = __int2float_rn(of[8 + b]);
      }
#pragma unroll
      for (int o = 0; o < 4; ++o) {
        const float x_scale = x_scales[2 * n + o % 2];
        float& sum = total[at][o];
        sum = fmaf(d[o / 2] * x_scale, __int2float_rn(c[4 * n + o]), sum);
        if constexpr (Traits::kMinimum) sum = fmaf(least[o / 2] * x_scale, sums[o % 2], sum);
      }
    }
  }

  // Two blocks of one half of the tokens are under way at a time: their scales lie side by side.
  __device__ __forceinline__ void Multiply32(const std::byte* stage) {
    QuadWords<kType> words[2];
    Weights(stage, 0, words);
    const BlockScales scales[2] = {{*this, stage, 0}, {*this, stage, 1}};
    Sums c[2];
    Fragment a[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      a[k] = WeightFragment<kType>(words, nullptr, k, i);
      Multiply(c[k], a[k], Tokens(stage, 0, k, 0));
    }
#pragma unroll
    for (int turn = 0; turn < 4; ++turn) {
      const int first = turn / 2 * 2, part = turn % 2;  // block, half of the tokens
      float x_scales[2][2 * kN];
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const auto* at =
            reinterpret_cast<const float*>(stage + St::kXScale + TokenOf(part * kN + n) * 16 +
                                           InPiece(stage_number * St::kXScaleStep));
#pragma unroll
        for (int t = 0; t < 2; ++t) {
          const float2 two = *reinterpret_cast<const float2*>(at + 4 * t + first);
          x_scales[0][2 * n + t] = two.x;
          x_scales[1][2 * n + t] = two.y;
        }
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (turn == 3 && k == 1) {
          Await<0>(c[k]);
        } else {
          Await<1>(c[k]);
        }
        Fold32(stage, first + k, part, scales, x_scales[k], c[k]);
        if (turn == 3) continue;
        const int next = (turn + 1) / 2 * 2 + k;
        if (part == 1) a[k] = WeightFragment<kType>(words, nullptr, next, i);
        Multiply(c[k], a[k], Tokens(stage, 0, next, (turn + 1) % 2));
      }
    }
  }

  __device__ __forceinline__ void Multiply256(const std::byte* stage, const uint2* grid) {
    // Units of two scales are multiplied by halves, with zeros for the other.
    constexpr int kHalves = QuadScales<kType>::kHalves ? 2 : 1;
    int sums[2 * kN][4] = {};
#pragma unroll 1
    for (int quad = 0; quad < 2; ++quad) {
      QuadWords<kType> words[2];
      QuadScales<kType> scales[2];
      Weights(stage, quad, words);
#pragma unroll
      for (int half = 0; half < 2; ++half) scales[half].Load(Sub(stage, half), quad);
      Run<4 * kHalves>(
          stage, quad,
          [&](int step) {
            Fragment a = WeightFragment<kType>(words, grid, step / kHalves, i);
            const int other = 2 - 2 * (step % kHalves);
            if constexpr (kHalves == 2) a.a[other] = a.a[other + 1] = 0;
            return a;
          },
          [](int step) { return step / kHalves; },
          [&](int step, int part, const Sums& c) {
            int scale[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              scale[half] = scales[half].Of(step / kHalves, step % kHalves, words[half]);
            }
#pragma unroll
            for (int n = 0; n < kN; ++n) {
#pragma unroll
              for (int o = 0; o < 4; ++o) sums[part * kN + n][o] += scale[o / 2] * c[4 * n + o];
            }
          });
    }
    Fold256(stage, sums);
  }

  __device__ __forceinline__ void Fold256(const std::byte* stage, const int (&sums)[2 * kN][4]) {
    float d[2], least[2];
    uint32_t minima[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t scales = RowScales(stage, half);
      d[half] = BlockScale<kType>(scales);
      if constexpr (Traits::kMinimum) {
        least[half] = BlockMinimum(scales);
        minima[half] = MinimaOf<kType>(Sub(stage, half), i);
      }
    }
#pragma unroll
    for (int n = 0; n < 2 * kN; ++n) {
      const float2 dx = XScales(stage, n);
      int least_sums[4];
      if constexpr (Traits::kMinimum) {
        const SumDigits digits(
            *reinterpret_cast<const uint2*>(stage + St::kSum + (token + 8 * n + g) * 32 + 8 * i));
        MultiplyMinima(minima, digits, least_sums);
      }
#pragma unroll
      for (int o = 0; o < 4; ++o) {
        const float x_scale = o % 2 == 0 ? dx.x : dx.y;
        float& sum = total[n][o];
        sum = fmaf(d[o / 2] * x_scale, __int2float_rn(sums[n][o]), sum);
        if constexpr (Traits::kMinimum) {
          sum = fmaf(-(least[o / 2] * x_scale), __int2float_rn(least_sums[o]), sum);
        }
      }
    }
  }

  __device__ __forceinline__ void Store(const Call& call, int2 place) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t column = place.x + RowOf(half);
      if (column >= call.y.cols) continue;
      const bool biased = call.bias != nullptr;
      const float bias = biased ? call.bias[column] : 0;
      const int64_t first = place.y + TokenOf(0);
      float* to = call.y.data + first * call.y.stride + column;
      const int64_t left = call.y.rows - first;
#pragma unroll
      for (int n = 0; n < 2 * kN; ++n) {
#pragma unroll
        for (int t = 0; t < 2; ++t) {
          const float value = total[n][2 * half + t];
          if (8 * n + t < left) to[t * call.y.stride] = biased ? value + bias : value;
        }
        to += 8 * call.y.stride;
      }
    }
  }
};

template <DType kType>
__global__ void __launch_bounds__(Shape<kType>::kThreads, 1)
    WarpgroupProducts(const __grid_constant__ Maps maps, const __grid_constant__ Call call) {
  if (!kForWgmma) return;
  using St = Stage<kType>;
  extern __shared__ __align__(1024) std::byte aligned[];
  Shared<kType>& shared = *reinterpret_cast<Shared<kType>*>(aligned);
  if (threadIdx.x == 0) {
    for (int s = 0; s < St::kCount; ++s) {
      InitBarrier(&shared.full[s], 1);
      InitBarrier(&shared.empty[s], Shape<kType>::kThreads / 32 * kWarpArrivals);
    }
    FenceBarriers();
  }
  if constexpr (UnitTraits<kType>::kGrid) {
    for (int p = threadIdx.x; p < 256; p += Shape<kType>::kThreads) shared.grid[p] = call.grid[p];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int s = 0; s < St::kAhead; ++s) Ask<kType>(maps, call, blockIdx.x, s, s, 0, shared);
  }
  __syncwarp();
  Warp<kType> warp;
  int slot = 0, parity = 0;
  int asking = 0;  // the warp that asks for what is kAhead stages ahead: one after another
  for (int tile = static_cast<int>(blockIdx.x); tile < call.row_tiles * call.token_tiles;
       tile += static_cast<int>(gridDim.x)) {
    warp.Clear();
#pragma unroll 1
    for (int stage = 0; stage < call.stages; ++stage) {
      if (asking == warp.number && threadIdx.x % 32 == 0) {
        const bool around = slot + St::kAhead >= St::kCount;
        Ask<kType>(maps, call, tile, stage + St::kAhead,
                   slot + St::kAhead - (around ? St::kCount : 0), parity ^ int(around), shared);
      }
      if (++asking == Shape<kType>::kThreads / 32) asking = 0;
      __syncwarp();
      WarpWaitBarrier(&shared.full[slot], parity);
      const std::byte* at = shared.stages[slot];
      warp.stage_number = stage;
      if constexpr (UnitTraits<kType>::kBlock256) {
        warp.Multiply256(at, shared.grid);
      } else {
        warp.Multiply32(at);
      }
      ArriveAsWarp(&shared.empty[slot]);
      if (++slot == St::kCount) slot = 0, parity ^= 1;
    }
    warp.Store(call, PlaceOf<kType>(call, tile));
  }
}

// Whether there are enough tiles, and planes whose rows the copy engine can read.
template <DType kType>
bool Fits(const ProductOperands& operands, int tokens) {
  using S = Shape<kType>;
  constexpr int kColumns = UnitTraits<kType>::kBlock256  ? 1024
                           : UnitTraits<kType>::kMinimum ? 256
                                                         : 128;
  const int64_t tiles =
      int64_t{Blocks(operands.y.cols, S::kRows)} * Blocks(operands.y.rows, S::kTokens);
  const QuantisedLayout& layout = operands.weight.layout;
  const bool whole =
      (layout.quant_stride | layout.extra_stride | layout.sub_stride | layout.scale_stride) % 16 ==
      0;
  return ThisGpu().wgmma && operands.begin == nullptr && operands.row == nullptr && tokens >= 96 &&
         tiles >= 120 && whole && operands.x.cols % kColumns == 0;
}

template <DType kType>
void Launch(Stream stream, const ProductOperands& operands) {
  using S = Shape<kType>;
  using St = Stage<kType>;
  using Traits = UnitTraits<kType>;
  const QuantisedLayout& layout = operands.weight.layout;
  const std::byte* data = operands.weight.data;
  const QuantisedView& x = operands.x;
  const int64_t rows = operands.y.cols, blocks = x.cols / (32 * Traits::kBlockUnits);
  Maps maps = {};
  maps.x = MakeByteMap(x.q, x.rows, x.cols, {128, S::kTokens, true});
  maps.quants = MakeByteMap(data, rows, layout.quant_stride, {St::kQuantBytes, S::kRows});
  if constexpr (St::kExtraBytes > 0) {
    maps.extra =
        MakeByteMap(data + layout.extra, rows, layout.extra_stride, {St::kExtraBytes, S::kRows});
  }
  if constexpr (St::kSubBytes > 0) {
    maps.sub = MakeByteMap(data + layout.sub, rows, layout.sub_stride, {16, S::kRows});
  }
  maps.scale =
      Traits::kMinimum
          ? MakePieceMap(4, data + layout.scale, rows, blocks, layout.scale_stride, S::kRows)
          : MakePieceMap(2, data + layout.scale, rows, blocks, layout.scale_stride, S::kRows);
  maps.x_scale = MakePieceMap(4, x.scale, x.rows, blocks, blocks * 4, S::kTokens);
  if constexpr (St::kSumBytes > 0) {
    const int64_t sums = x.cols / (Traits::kBlock256 ? 16 : 32);
    maps.x_sum = MakeByteMap(x.sum, x.rows, sums * 2, {St::kSumBytes, S::kTokens});
  }
  const Call call{operands.bias,
                  operands.y,
                  reinterpret_cast<const uint2*>(data + layout.grid),
                  static_cast<int>(x.cols / (128 * St::kQuads)),
                  static_cast<int>(Blocks(rows, S::kRows)),
                  static_cast<int>(Blocks(operands.y.rows, S::kTokens))};
  constexpr size_t kBytes = sizeof(Shared<kType>);
  static_assert(kBytes <= 227 << 10);
  const int tiles = call.row_tiles * call.token_tiles;
  const int teams = std::min(tiles, ThisGpu().multiprocessors);
  LaunchInTurn(WarpgroupProducts<kType>, unsigned(teams), S::kThreads, kBytes, stream, maps, call);
}

}  // namespace warpgroup
}  // namespace reprise::cuda
