// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packed/packed.h"
#include "kernels/cuda/quantised/forms/copies.cuh"
#include "kernels/cuda/quantised/forms/mma.cuh"
#include "kernels/cuda/quantised/forms/product.cuh"
#include "kernels/cuda/quantised/forms/warpgroup.cuh"

// Products for many tokens: integer tensor cores (mma.sync s8), weights on the side of 16, tokens
// on the side of 8. A block multiplies a tile of weights and tokens; its warps divide the outputs,
// never a sum. k runs in stages (128 values of 32-blocks, one 256-block) through a ring of shared
// memory that cp.async fills; the fold of a block is done in registers as soon as its sums are.
namespace reprise::cuda {
namespace many {

// Bytes from one row of a tile to the next: 8 rows by 4 words lie in 32 banks (activations), or 2
// rows by 4 times 16 bytes do (weights).
constexpr int PaddedWords(int bytes) { return bytes % 32 == 16 ? bytes : bytes + 16; }
constexpr int PaddedQuads(int bytes) { return bytes % 128 == 64 ? bytes : bytes + 64; }

// A tile: kRows of weights by kTokens, each warp 16 * kM by 8 * kN of it.
template <int kM_, int kN_, int kWarpRows_, int kWarpColumns_, int kStages_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_;
  static constexpr int kWarpRows = kWarpRows_, kWarpColumns = kWarpColumns_;
  static constexpr int kStages = kStages_;
  static constexpr int kRows = 16 * kM * kWarpRows;
  static constexpr int kTokens = 8 * kN * kWarpColumns;
  static constexpr int kThreads = 32 * kWarpRows * kWarpColumns;
};

// One stage in shared memory; offsets in bytes.
template <DType kType, typename TileOf>
struct Stage {
  using Traits = UnitTraits<kType>;
  static constexpr int kUnits = Traits::kBlock256 ? 8 : 4;
  static constexpr int kBlocks = kUnits / Traits::kBlockUnits;
  static constexpr int kQuantStride = PaddedQuads(kUnits * Traits::kQuantWords * 4);
  static constexpr int kExtraStride = kUnits * Traits::kExtraWords * 4;
  // f16 scales of the stage's blocks: of one 256-block without a minimum, the word it lies in.
  static constexpr int kScaleBytes = Traits::kBlock256 ? 4 : (Traits::kMinimum ? 16 : 8);
  static constexpr int kXStride = PaddedWords(kUnits * 32);
  // Sums of x: of 256-blocks 16 of them, of 32-blocks the three words in which four lie.
  static constexpr int kSumStride = !Traits::kMinimum ? 0 : Traits::kBlock256 ? 48 : 12;

  static constexpr int kExtra = TileOf::kRows * kQuantStride;
  static constexpr int kSub = kExtra + TileOf::kRows * kExtraStride;
  static constexpr int kScale = kSub + TileOf::kRows * Traits::kSubBytes;
  static constexpr int kX = kScale + TileOf::kRows * kScaleBytes;
  static constexpr int kXScale = kX + TileOf::kTokens * kXStride;  // [kBlocks, tokens] f32
  static constexpr int kSum = kXScale + kBlocks * TileOf::kTokens * 4;
  static constexpr int kBytes = (kSum + TileOf::kTokens * kSumStride + 15) / 16 * 16;
};

// Where the rows of a tile lie, in shared memory: every stage copies from there on.
template <typename TileOf>
struct TileRows {
  const std::byte* quants[TileOf::kRows];
  int64_t row[TileOf::kRows];  // of the matrix; its last one for those behind it
  const int8_t* x[TileOf::kTokens];
  const float* x_scale[TileOf::kTokens];
  int input[TileOf::kTokens];      // row of x
  int sum_shift[TileOf::kTokens];  // 1 where the row's sums begin at half a word (32-blocks)

  __device__ void Fill(const ProductOperands& operands, const TokenGroup& group, int64_t column,
                       int64_t blocks) {
    for (int r = threadIdx.x; r < TileOf::kRows; r += TileOf::kThreads) {
      row[r] = group.weight_row + min(column + r, operands.y.cols - 1);
      quants[r] = operands.weight.data + row[r] * operands.weight.layout.quant_stride;
    }
    for (int t = threadIdx.x; t < TileOf::kTokens; t += TileOf::kThreads) {
      const int64_t from = group.Input(operands, t);
      input[t] = static_cast<int>(from);
      x[t] = operands.x.q + from * operands.x.cols;
      x_scale[t] = operands.x.scale + from * blocks;
      sum_shift[t] = static_cast<int>(from * blocks % 2);
    }
  }
};

// Fills stages: what a block copies, and from where.
template <DType kType, typename TileOf>
struct Loader {
  using Traits = UnitTraits<kType>;
  using S = Stage<kType, TileOf>;

  const ProductOperands& operands;
  const TileRows<TileOf>& tile;

  // Copies bytes [begin, begin + kBytes) of every row by 16, as far as rows of `row_bytes` go;
  // from(r) is where row r begins.
  template <int kRows, int kBytes, typename From>
  __device__ static void CopyRows(const From& from, int64_t row_bytes, int64_t begin, std::byte* to,
                                  int to_stride) {
    constexpr int kChunks = kBytes / 16;
#pragma unroll
    for (int first = 0; first < kRows * kChunks; first += TileOf::kThreads) {
      const int i = first + static_cast<int>(threadIdx.x);
      const int row = i / kChunks, at = i % kChunks * 16;
      if (row >= kRows || begin + at >= row_bytes) continue;
      CopyAsync<16>(to + row * to_stride + at, from(row) + begin + at);
    }
  }

  __device__ void LoadWeights(int64_t stage, std::byte* to) const {
    const QuantisedLayout& layout = operands.weight.layout;
    const std::byte* data = operands.weight.data;
    constexpr int kQuantBytes = S::kUnits * Traits::kQuantWords * 4;
    CopyRows<TileOf::kRows, kQuantBytes>([&](int r) { return tile.quants[r]; }, layout.quant_stride,
                                         stage * kQuantBytes, to, S::kQuantStride);
    if constexpr (Traits::kExtraWords > 0) {
      constexpr int kExtraBytes = S::kUnits * Traits::kExtraWords * 4;
      const auto from = [&](int r) {
        return data + layout.extra + tile.row[r] * layout.extra_stride;
      };
      CopyRows<TileOf::kRows, kExtraBytes>(from, layout.extra_stride, stage * kExtraBytes,
                                           to + S::kExtra, S::kExtraStride);
    }
    for (int r = threadIdx.x; r < TileOf::kRows; r += TileOf::kThreads) {
      if constexpr (Traits::kSubBytes > 0) {
        CopyAsync<Traits::kSubBytes>(
            to + S::kSub + r * Traits::kSubBytes,
            data + layout.sub + tile.row[r] * layout.sub_stride + stage * Traits::kSubBytes);
      }
      // Of a 256-block without a minimum, the scale is one half of a word.
      constexpr bool kHalfWord = Traits::kBlock256 && !Traits::kMinimum;
      const int64_t at = kHalfWord ? stage / 2 * 4 : stage * S::kScaleBytes;
      CopyAsync<S::kScaleBytes>(to + S::kScale + r * S::kScaleBytes,
                                data + layout.scale + tile.row[r] * layout.scale_stride + at);
    }
  }

  __device__ void LoadTokens(int64_t stage, std::byte* to) const {
    const QuantisedView& x = operands.x;
    constexpr int kBytes = S::kUnits * 32;
    CopyRows<TileOf::kTokens, kBytes>([&](int t) { return tile.x[t]; }, x.cols, stage * kBytes,
                                      to + S::kX, S::kXStride);
    const int64_t blocks = x.cols / (32 * Traits::kBlockUnits);
    for (int i = threadIdx.x; i < TileOf::kTokens * S::kBlocks; i += TileOf::kThreads) {
      const int t = i / S::kBlocks, b = i % S::kBlocks;
      if (stage * S::kBlocks + b >= blocks) continue;
      CopyAsync<4>(to + S::kXScale + (b * TileOf::kTokens + t) * 4,
                   tile.x_scale[t] + stage * S::kBlocks + b);
    }
    if constexpr (Traits::kMinimum) LoadSums(stage, to);
  }

  __device__ void LoadSums(int64_t stage, std::byte* to) const {
    const QuantisedView& x = operands.x;
    if constexpr (Traits::kBlock256) {
      for (int i = threadIdx.x; i < TileOf::kTokens * 2; i += TileOf::kThreads) {
        CopyAsync<16>(to + S::kSum + i / 2 * S::kSumStride + i % 2 * 16,
                      x.sum + tile.input[i / 2] * (x.cols / 16) + stage * 16 + i % 2 * 8);
      }
    } else {
      // Rows of sums may begin at half a word.
      const int64_t units = x.cols / 32;
      for (int i = threadIdx.x; i < TileOf::kTokens * 3; i += TileOf::kThreads) {
        const int64_t word = (tile.input[i / 3] * units + stage * 4) / 2 + i % 3;
        if (word * 2 >= x.rows * units) continue;
        CopyAsync<4>(to + S::kSum + i / 3 * S::kSumStride + i % 3 * 4, x.sum + word * 2);
      }
    }
  }
};

// A warp's part of a tile: kM by kN times 16 by 8 outputs, spread over threads as mma.cuh says.
template <DType kType, typename TileOf>
struct WarpTile {
  using Traits = UnitTraits<kType>;
  using S = Stage<kType, TileOf>;
  static constexpr int kM = TileOf::kM, kN = TileOf::kN;

  float total[kM][kN][4];
  int row;    // of the warp in the tile
  int token;  // likewise
  int g, i;

  __device__ WarpTile() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row = warp / TileOf::kWarpColumns * 16 * kM;
    token = warp % TileOf::kWarpColumns * 8 * kN;
    g = lane / 4, i = lane % 4;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) total[m][n][c] = 0;
      }
    }
  }

  __device__ int RowOf(int m, int half) const { return row + 16 * m + 8 * half + g; }

  // Quad `quad` of the stage, rows g and g + 8 of part m.
  __device__ void Weights(const std::byte* stage, int m, int quad,
                          QuadWords<kType> (&words)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = RowOf(m, half);
      words[half].Load(
          reinterpret_cast<const uint4*>(stage + r * S::kQuantStride) + quad * Traits::kQuantWords,
          reinterpret_cast<const uint4*>(stage + S::kExtra + r * S::kExtraStride) +
              quad * Traits::kExtraWords,
          i);
    }
  }

  __device__ void Tokens(const std::byte* stage, int n, int unit, uint32_t (&b)[2]) const {
    const auto* x =
        reinterpret_cast<const uint32_t*>(stage + S::kX + (token + 8 * n + g) * S::kXStride);
    b[0] = x[8 * unit + i];
    b[1] = x[8 * unit + 4 + i];
  }

  // Scales of x of block b of the stage, for tokens 2 i and 2 i + 1.
  __device__ float2 XScales(const std::byte* stage, int n, int b) const {
    const auto* scales = reinterpret_cast<const float*>(stage + S::kXScale);
    return *reinterpret_cast<const float2*>(scales + b * TileOf::kTokens + token + 8 * n + 2 * i);
  }

  // f16 scales of a row's block b of the stage, in one word.
  __device__ uint32_t RowScales(const std::byte* stage, int m, int half, int b, bool odd) const {
    const auto* at = stage + S::kScale + RowOf(m, half) * S::kScaleBytes;
    if constexpr (Traits::kMinimum) return reinterpret_cast<const uint32_t*>(at)[b];
    return reinterpret_cast<const uint16_t*>(at)[Traits::kBlock256 ? (odd ? 1 : 0) : b];
  }

  // One stage of 32-blocks, a quad: all of its units, or the first `units` where not kWhole.
  template <bool kWhole>
  __device__ void Multiply32(const std::byte* stage, const int* sum_shift, int units) {
    QuadWords<kType> words[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) Weights(stage, m, 0, words[m]);
#pragma unroll
    for (int u = 0; u < S::kUnits; ++u) {
      if (!kWhole && u >= units) break;
      Fragment a[kM];
      float d[kM][2], least[kM][2];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        a[m] = WeightFragment<kType>(words[m], nullptr, u, i);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t scales = RowScales(stage, m, half, u, false);
          d[m][half] = BlockScale<kType>(scales);
          if constexpr (Traits::kMinimum) least[m][half] = BlockMinimum(scales);
        }
      }
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        uint32_t b[2];
        Tokens(stage, n, u, b);
        const float2 dx = XScales(stage, n, u);
        float sums[2];
        if constexpr (Traits::kMinimum) XSums(stage, sum_shift, n, u, sums);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          int c[4] = {};
          Mma32(c, a[m], b);
#pragma unroll
          for (int o = 0; o < 4; ++o) {
            float& sum = total[m][n][o];
            const float x_scale = o % 2 == 0 ? dx.x : dx.y;
            sum = fmaf(d[m][o / 2] * x_scale, __int2float_rn(c[o]), sum);
            if constexpr (Traits::kMinimum) sum = fmaf(least[m][o / 2] * x_scale, sums[o % 2], sum);
          }
        }
      }
    }
  }

  // Sums of x of unit u of a stage of 32-blocks, for tokens 2 i and 2 i + 1.
  __device__ void XSums(const std::byte* stage, const int* sum_shift, int n, int u,
                        float (&sums)[2]) const {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const int at = token + 8 * n + 2 * i + t;
      const auto* words = reinterpret_cast<const int16_t*>(stage + S::kSum + at * S::kSumStride);
      sums[t] = __int2float_rn(words[sum_shift[at] + u]);
    }
  }

  __device__ const uint8_t* Sub(const std::byte* stage, int m, int half) const {
    return reinterpret_cast<const uint8_t*>(stage + S::kSub + RowOf(m, half) * Traits::kSubBytes);
  }

  // One 256-block: two quads.
  __device__ void Multiply256(const std::byte* stage, const uint2* grid, bool odd) {
    int sums[kM][kN][4] = {};
#pragma unroll 1
    for (int quad = 0; quad < 2; ++quad) {
      QuadWords<kType> words[kM][2];
      QuadScales<kType> scales[kM][2];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        Weights(stage, m, quad, words[m]);
#pragma unroll
        for (int half = 0; half < 2; ++half) scales[m][half].Load(Sub(stage, m, half), quad);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Fragment a[kM];
        int scale[kM][2][2];
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          a[m] = WeightFragment<kType>(words[m], grid, j, i);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            constexpr bool kHalves = QuadScales<kType>::kHalves;
            scale[m][half][0] = scales[m][half].Of(j, 0, words[m][half]);
            scale[m][half][1] = kHalves ? scales[m][half].Of(j, 1, words[m][half]) : 0;
          }
        }
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          uint32_t b[2];
          Tokens(stage, n, 4 * quad + j, b);
#pragma unroll
          for (int m = 0; m < kM; ++m) AddScaled<kType>(a[m], b, scale[m], sums[m][n]);
        }
      }
    }
    Fold256(stage, sums, odd);
  }

  __device__ void Fold256(const std::byte* stage, const int (&sums)[kM][kN][4], bool odd) {
    float d[kM][2], least[kM][2];
    uint32_t minima[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t scales = RowScales(stage, m, half, 0, odd);
        d[m][half] = BlockScale<kType>(scales);
        if constexpr (Traits::kMinimum) {
          least[m][half] = BlockMinimum(scales);
          minima[m][half] = MinimaOf<kType>(Sub(stage, m, half), i);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float2 dx = XScales(stage, n, 0);
      uint2 x_sums = {};
      if constexpr (Traits::kMinimum) {
        x_sums = *reinterpret_cast<const uint2*>(stage + S::kSum +
                                                 (token + 8 * n + g) * S::kSumStride + 8 * i);
      }
      const SumDigits digits(x_sums);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        int least_sums[4] = {};
        if constexpr (Traits::kMinimum) MultiplyMinima(minima[m], digits, least_sums);
#pragma unroll
        for (int o = 0; o < 4; ++o) {
          float& sum = total[m][n][o];
          const float x_scale = o % 2 == 0 ? dx.x : dx.y;
          sum = fmaf(d[m][o / 2] * x_scale, __int2float_rn(sums[m][n][o]), sum);
          if constexpr (Traits::kMinimum) {
            sum = fmaf(-(least[m][o / 2] * x_scale), __int2float_rn(least_sums[o]), sum);
          }
        }
      }
    }
  }

  __device__ void Store(const ProductOperands& operands, const TokenGroup& group,
                        int64_t column) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int o = 0; o < 4; ++o) {
          const int64_t to = column + RowOf(m, o / 2);
          const int t = token + 8 * n + 2 * i + o % 2;
          if (to >= operands.y.cols || !group.Contains(t)) continue;
          const float value = total[m][n][o];
          operands.y.data[(group.begin + t) * operands.y.stride + to] =
              operands.bias != nullptr ? value + operands.bias[to] : value;
        }
      }
    }
  }
};

// All of a block's shared memory.
template <DType kType, typename TileOf>
struct Shared {
  alignas(16) std::byte stages[TileOf::kStages][Stage<kType, TileOf>::kBytes];
  uint2 grid[UnitTraits<kType>::kGrid ? 256 : 1];
  TileRows<TileOf> tile;
};

// The tile at `column` of y and a group of tokens.
template <DType kType, typename TileOf>
__device__ void TileProduct(const ProductOperands& operands, const TokenGroup& group,
                            int64_t column, Shared<kType, TileOf>& shared) {
  using S = Stage<kType, TileOf>;
  constexpr int kStages = TileOf::kStages;
  const int units = static_cast<int>(operands.x.cols / 32);
  const int stages = (units + S::kUnits - 1) / S::kUnits;
  const Loader<kType, TileOf> loader = {operands, shared.tile};
  const auto load = [&](int stage) {
    if (stage < stages) {
      std::byte* to = shared.stages[stage % kStages];
      loader.LoadWeights(stage, to);
      loader.LoadTokens(stage, to);
    }
    CommitCopies();
  };
  for (int stage = 0; stage + 1 < kStages; ++stage) load(stage);
  WarpTile<kType, TileOf> warp;
  for (int stage = 0; stage < stages; ++stage) {
    WaitForCopies<kStages - 2>();
    __syncthreads();
    load(stage + kStages - 1);
    const std::byte* at = shared.stages[stage % kStages];
    if constexpr (UnitTraits<kType>::kBlock256) {
      warp.Multiply256(at, shared.grid, stage % 2 == 1);
    } else if (const int left = units - stage * S::kUnits; left >= S::kUnits) {
      warp.template Multiply32<true>(at, shared.tile.sum_shift, S::kUnits);
    } else {
      warp.template Multiply32<false>(at, shared.tile.sum_shift, left);
    }
  }
  WaitForCopies<0>();
  warp.Store(operands, group, column);
}

template <DType kType, typename TileOf>
__global__ void __launch_bounds__(TileOf::kThreads) ManyProducts(ProductOperands operands) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<kType, TileOf>*>(memory);
  if constexpr (UnitTraits<kType>::kGrid) {
    for (int p = threadIdx.x; p < 256; p += TileOf::kThreads) {
      shared.grid[p] = GridOf(operands.weight)[p];
    }
  }
  const int64_t column = int64_t{blockIdx.x} * TileOf::kRows;
  const int64_t blocks = operands.x.cols / (32 * UnitTraits<kType>::kBlockUnits);
  TokenGroup group;
  for (int index = static_cast<int>(blockIdx.y);
       FindGroup(operands, index, TileOf::kTokens, &group); index += static_cast<int>(gridDim.y)) {
    __syncthreads();
    shared.tile.Fill(operands, group, column, blocks);
    __syncthreads();
    TileProduct<kType, TileOf>(operands, group, column, shared);
  }
}

template <DType kType, typename TileOf>
void Launch(Stream stream, const ProductOperands& operands, int64_t slots) {
  constexpr size_t kBytes = sizeof(Shared<kType, TileOf>);
  static_assert(kBytes <= 227 << 10);
  const dim3 grid(Blocks(operands.y.cols, TileOf::kRows),
                  GroupCount(operands, slots, TileOf::kTokens));
  LaunchInTurn(ManyProducts<kType, TileOf>, grid, TileOf::kThreads, kBytes, stream, operands);
}

// Large tiles where they are enough to fill a GPU; fewer stages where blocks have little room.
// `tokens`: about how many rows share weights.
template <DType kType>
void LaunchType(Stream stream, const ProductOperands& operands, int64_t slots, int tokens) {
  // Sums of 256-blocks take registers beside the totals: half the tokens, two blocks at a time.
  using Large =
      std::conditional_t<UnitTraits<kType>::kBlock256, Tile<2, 4, 4, 2, 3>, Tile<2, 8, 4, 2, 3>>;
  using Small = Tile<1, 4, 4, 2, 4>;
  // Of packed types there are stacks of experts alone, for which that has no form.
  if constexpr (PackedFormOf(kType) == PackedForm::kNone) {
    if (warpgroup::Fits<kType>(operands, tokens)) return warpgroup::Launch<kType>(stream, operands);
  }
  constexpr int64_t kEnough = 120;
  const bool room = sizeof(Shared<kType, Large>) <= ThisGpu().block_shared;
  constexpr bool kFitsAll = sizeof(Shared<kType, Small>) <= kBlockSharedLeast;
  const int64_t tiles =
      int64_t{Blocks(operands.y.cols, Large::kRows)} * Blocks(slots, Large::kTokens);
  if (room && tokens >= 96 && tiles >= kEnough) {
    Launch<kType, Large>(stream, operands, slots);
  } else if (kFitsAll || sizeof(Shared<kType, Small>) <= ThisGpu().block_shared) {
    Launch<kType, Small>(stream, operands, slots);
  } else if constexpr (!kFitsAll) {
    using Least = Tile<1, 4, 4, 2, 2>;
    static_assert(sizeof(Shared<kType, Least>) <= kBlockSharedLeast);
    Launch<kType, Least>(stream, operands, slots);
  }
}

}  // namespace many
}  // namespace reprise::cuda
