// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/quantised/product.cuh"
#include "kernels/cuda/quantised/unit.cuh"

// Products for many tokens: integer tensor cores (mma.sync s8), weights on the side of 16, tokens
// on the side of 8. A block multiplies a tile of weights and tokens; its warps divide the outputs,
// never a sum. k runs in stages (128 values of 32-blocks, one 256-block) through a ring of shared
// memory that cp.async fills; the fold of a block is done in registers as soon as its sums are.
namespace reprise::cuda {
namespace many {

// Words from one row of a tile to the next, so that 8 rows by 4 words lie in 32 banks.
constexpr int PaddedWords(int words) { return words + (12 - words % 8) % 8; }

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
  static constexpr int kQuantStride = 4 * PaddedWords(kUnits * Traits::kQuantWords);
  static constexpr int kExtraStride =
      Traits::kExtraWords == 0 ? 0 : 4 * PaddedWords(kUnits * Traits::kExtraWords);
  // f16 scales of the stage's blocks: of one 256-block without a minimum, the word it lies in.
  static constexpr int kScaleBytes = Traits::kBlock256 ? 4 : (Traits::kMinimum ? 16 : 8);
  static constexpr int kXStride = 4 * PaddedWords(kUnits * 8);
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

template <int kBytes>
__device__ void CopyAsync(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;\n" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  }
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kPending>
__device__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Fills stages: what a block copies, and from where.
template <DType kType, typename TileOf>
struct Loader {
  using Traits = UnitTraits<kType>;
  using S = Stage<kType, TileOf>;

  const ProductOperands& operands;
  const TokenGroup& group;
  int64_t first;      // weight row of the tile
  int64_t last;       // weight row that stands in for those behind the matrix
  const int* inputs;  // [tokens] rows of x, shared

  __device__ int64_t WeightRow(int r) const { return min(first + r, last); }

  // Copies chunks of 16 bytes [begin, begin + kBytes) of every row of a plane, as far as rows go.
  template <int kBytes>
  __device__ void CopyPlane(const std::byte* plane, int64_t row_bytes, int64_t begin, std::byte* to,
                            int to_stride) const {
    constexpr int kChunks = kBytes / 16;
    for (int i = threadIdx.x; i < TileOf::kRows * kChunks; i += TileOf::kThreads) {
      const int row = i / kChunks, at = i % kChunks * 16;
      if (begin + at >= row_bytes) continue;
      CopyAsync<16>(to + row * to_stride + at, plane + WeightRow(row) * row_bytes + begin + at);
    }
  }

  __device__ void LoadWeights(int64_t stage, std::byte* to) const {
    const QuantisedLayout& layout = operands.weight.layout;
    const std::byte* data = operands.weight.data;
    constexpr int kQuantBytes = S::kUnits * Traits::kQuantWords * 4;
    CopyPlane<kQuantBytes>(data, layout.quant_stride, stage * kQuantBytes, to, S::kQuantStride);
    if constexpr (Traits::kExtraWords > 0) {
      constexpr int kExtraBytes = S::kUnits * Traits::kExtraWords * 4;
      CopyPlane<kExtraBytes>(data + layout.extra, layout.extra_stride, stage * kExtraBytes,
                             to + S::kExtra, S::kExtraStride);
    }
    for (int r = threadIdx.x; r < TileOf::kRows; r += TileOf::kThreads) {
      if constexpr (Traits::kSubBytes > 0) {
        CopyAsync<Traits::kSubBytes>(
            to + S::kSub + r * Traits::kSubBytes,
            data + layout.sub + WeightRow(r) * layout.sub_stride + stage * Traits::kSubBytes);
      }
      // Of a 256-block without a minimum, the scale is one half of a word.
      constexpr bool kHalfWord = Traits::kBlock256 && !Traits::kMinimum;
      const int64_t at = kHalfWord ? stage / 2 * 4 : stage * S::kScaleBytes;
      CopyAsync<S::kScaleBytes>(to + S::kScale + r * S::kScaleBytes,
                                data + layout.scale + WeightRow(r) * layout.scale_stride + at);
    }
  }

  __device__ void LoadTokens(int64_t stage, std::byte* to) const {
    const QuantisedView& x = operands.x;
    constexpr int kChunks = S::kUnits * 2;
    for (int i = threadIdx.x; i < TileOf::kTokens * kChunks; i += TileOf::kThreads) {
      const int t = i / kChunks, at = i % kChunks * 16;
      const int64_t column = stage * S::kUnits * 32 + at;
      if (column >= x.cols) continue;
      CopyAsync<16>(to + S::kX + t * S::kXStride + at, x.q + inputs[t] * x.cols + column);
    }
    const int64_t blocks = x.cols / (32 * Traits::kBlockUnits);
    for (int i = threadIdx.x; i < TileOf::kTokens * S::kBlocks; i += TileOf::kThreads) {
      const int t = i / S::kBlocks, b = i % S::kBlocks;
      if (stage * S::kBlocks + b >= blocks) continue;
      CopyAsync<4>(to + S::kXScale + (b * TileOf::kTokens + t) * 4,
                   x.scale + inputs[t] * blocks + stage * S::kBlocks + b);
    }
    if constexpr (Traits::kMinimum) LoadSums(stage, to);
  }

  __device__ void LoadSums(int64_t stage, std::byte* to) const {
    const QuantisedView& x = operands.x;
    if constexpr (Traits::kBlock256) {
      for (int i = threadIdx.x; i < TileOf::kTokens * 2; i += TileOf::kThreads) {
        CopyAsync<16>(to + S::kSum + i / 2 * S::kSumStride + i % 2 * 16,
                      x.sum + inputs[i / 2] * (x.cols / 16) + stage * 16 + i % 2 * 8);
      }
    } else {
      // Rows of sums may begin at half a word.
      const int64_t units = x.cols / 32;
      for (int i = threadIdx.x; i < TileOf::kTokens * 3; i += TileOf::kThreads) {
        const int64_t word = (inputs[i / 3] * units + stage * 4) / 2 + i % 3;
        if (word * 2 >= x.rows * units) continue;
        CopyAsync<4>(to + S::kSum + i / 3 * S::kSumStride + i % 3 * 4, x.sum + word * 2);
      }
    }
  }
};

struct Fragment {
  uint32_t a[4];
};

__device__ inline void Mma32(int (&c)[4], const Fragment& a, const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void Mma16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};\n"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

// A warp's part of a tile. Thread (g, i), g = lane / 4, i = lane % 4, holds of every 16 by 8 the
// outputs of rows g and g + 8 and tokens 2 i and 2 i + 1: index 2 * (row half) + token half.
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

  __device__ Fragment Weights(const std::byte* stage, const uint2* grid, int m, int unit) const {
    uint2 pair[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = RowOf(m, half);
      pair[half] = WordPair<kType>(
          reinterpret_cast<const uint32_t*>(stage + r * S::kQuantStride) +
              unit * Traits::kQuantWords,
          reinterpret_cast<const uint32_t*>(stage + S::kExtra + r * S::kExtraStride) +
              unit * Traits::kExtraWords,
          grid, i);
    }
    return {{pair[0].x, pair[1].x, pair[0].y, pair[1].y}};
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

  // One stage of 32-blocks: `units` of its units are inside the rows.
  __device__ void Multiply32(const std::byte* stage, const int* sum_shift, int units) {
#pragma unroll
    for (int u = 0; u < S::kUnits; ++u) {
      if (u >= units) break;
      Fragment a[kM];
      float d[kM][2], least[kM][2];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        a[m] = Weights(stage, nullptr, m, u);
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
        if constexpr (Traits::kMinimum) {
#pragma unroll
          for (int t = 0; t < 2; ++t) {
            const int at = token + 8 * n + 2 * i + t;
            const auto* words =
                reinterpret_cast<const int16_t*>(stage + S::kSum + at * S::kSumStride);
            sums[t] = __int2float_rn(words[sum_shift[at] + u]);
          }
        }
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

  // Four minima, of sub-blocks of 16 values 4 i .. 4 i + 3, of a row.
  __device__ uint32_t Minima(const std::byte* stage, int m, int half) const {
    const auto* sub =
        reinterpret_cast<const uint32_t*>(stage + S::kSub + RowOf(m, half) * Traits::kSubBytes);
    if constexpr (kType == DType::kQ2_K) return sub[i] >> 4 & 0x0F0F0F0F;
    return __byte_perm(sub[2], sub[3], 0x1100 + 0x2222 * i);  // one for two of them
  }

  // The sums of minimum * sum of x of a block: tensor cores again, the sums as two digits.
  __device__ void MultiplyMinima(const uint32_t (&low)[2], const uint32_t (&digits)[2],
                                 int (&c)[4]) const {
    Mma16(c, low[0], low[1], digits[1]);
#pragma unroll
    for (int o = 0; o < 4; ++o) c[o] *= 64;
    Mma16(c, low[0], low[1], digits[0]);
  }

  // Sums of x of sub-blocks 4 i .. 4 i + 3 of token g of tile column n as 64 * high + low.
  __device__ void SumDigits(const std::byte* stage, int n, uint32_t (&digits)[2]) const {
    const auto* sums =
        reinterpret_cast<const int16_t*>(stage + S::kSum + (token + 8 * n + g) * S::kSumStride);
    digits[0] = digits[1] = 0;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int sum = sums[4 * i + s];
      digits[0] |= static_cast<uint32_t>(sum & 63) << (8 * s);
      digits[1] |= static_cast<uint32_t>(sum >> 6 & 255) << (8 * s);
    }
  }

  // One 256-block.
  __device__ void Multiply256(const std::byte* stage, const uint2* grid, bool odd) {
    int sums[kM][kN][4] = {};
#pragma unroll 2
    for (int u = 0; u < 8; ++u) {
      Fragment a[kM];
      HalfScales scales[kM][2];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        a[m] = Weights(stage, grid, m, u);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int r = RowOf(m, half);
          scales[m][half] = SubScalesOf<kType>(
              reinterpret_cast<const uint8_t*>(stage + S::kSub + r * Traits::kSubBytes),
              reinterpret_cast<const uint32_t*>(stage + r * S::kQuantStride) +
                  u * Traits::kQuantWords,
              u);
        }
      }
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        uint32_t b[2];
        Tokens(stage, n, u, b);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          int c[4] = {};
          if constexpr (Traits::kSub == SubScales::kByHalf) {
            int high[4] = {};
            Mma16(c, a[m].a[0], a[m].a[1], b[0]);
            Mma16(high, a[m].a[2], a[m].a[3], b[1]);
#pragma unroll
            for (int o = 0; o < 4; ++o) {
              sums[m][n][o] += scales[m][o / 2].scale[0] * c[o];
              sums[m][n][o] += scales[m][o / 2].scale[1] * high[o];
            }
          } else {
            Mma32(c, a[m], b);
#pragma unroll
            for (int o = 0; o < 4; ++o) sums[m][n][o] += scales[m][o / 2].scale[0] * c[o];
          }
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
          minima[m][half] = Minima(stage, m, half);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float2 dx = XScales(stage, n, 0);
      uint32_t digits[2];
      if constexpr (Traits::kMinimum) SumDigits(stage, n, digits);
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

// Bytes behind the stages: rows of x of the tokens, where their sums begin, and the grid.
template <DType kType, typename TileOf>
constexpr int SharedBytes() {
  const int grid = UnitTraits<kType>::kGrid ? 256 * 8 : 0;
  return TileOf::kStages * Stage<kType, TileOf>::kBytes + grid + TileOf::kTokens * 8;
}

template <DType kType, typename TileOf>
__global__ void __launch_bounds__(TileOf::kThreads) ManyProducts(ProductOperands operands) {
  using S = Stage<kType, TileOf>;
  constexpr int kStages = TileOf::kStages;
  extern __shared__ __align__(16) std::byte shared[];
  std::byte* rest = shared + kStages * S::kBytes;
  uint2* grid = reinterpret_cast<uint2*>(rest);
  if constexpr (UnitTraits<kType>::kGrid) {
    for (int p = threadIdx.x; p < 256; p += TileOf::kThreads) grid[p] = GridOf(operands.weight)[p];
    rest += 256 * 8;
  }
  int* inputs = reinterpret_cast<int*>(rest);
  int* sum_shift = inputs + TileOf::kTokens;
  const int64_t units = operands.x.cols / 32;
  const int64_t stages = (units + S::kUnits - 1) / S::kUnits;
  const int64_t column = int64_t{blockIdx.x} * TileOf::kRows;
  TokenGroup group;
  for (int index = static_cast<int>(blockIdx.y);
       FindGroup(operands, index, TileOf::kTokens, &group); index += static_cast<int>(gridDim.y)) {
    __syncthreads();
    for (int t = threadIdx.x; t < TileOf::kTokens; t += TileOf::kThreads) {
      inputs[t] = static_cast<int>(group.Input(operands, t));
      sum_shift[t] = static_cast<int>(inputs[t] * units % 2);
    }
    __syncthreads();
    const Loader<kType, TileOf> loader = {operands, group, group.weight_row + column,
                                          group.weight_row + operands.y.cols - 1, inputs};
    const auto load = [&](int64_t stage) {
      if (stage < stages) {
        std::byte* to = shared + stage % kStages * S::kBytes;
        loader.LoadWeights(stage, to);
        loader.LoadTokens(stage, to);
      }
      CommitCopies();
    };
    for (int stage = 0; stage + 1 < kStages; ++stage) load(stage);
    WarpTile<kType, TileOf> warp;
    for (int64_t stage = 0; stage < stages; ++stage) {
      WaitForCopies<kStages - 2>();
      __syncthreads();
      load(stage + kStages - 1);
      const std::byte* at = shared + stage % kStages * S::kBytes;
      if constexpr (UnitTraits<kType>::kBlock256) {
        warp.Multiply256(at, grid, stage % 2 == 1);
      } else {
        const int64_t left = units - stage * S::kUnits;
        warp.Multiply32(at, sum_shift, static_cast<int>(min(left, int64_t{S::kUnits})));
      }
    }
    WaitForCopies<0>();
    warp.Store(operands, group, column);
  }
}

template <DType kType, typename TileOf>
void Launch(Stream stream, const ProductOperands& operands, int64_t slots) {
  constexpr int kBytes = SharedBytes<kType, TileOf>();
  static_assert(kBytes <= 227 << 10);
  if (kBytes > 48 << 10) {
    cudaFuncSetAttribute(ManyProducts<kType, TileOf>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         kBytes);
  }
  const dim3 grid(Blocks(operands.y.cols, TileOf::kRows),
                  GroupCount(operands, slots, TileOf::kTokens));
  ManyProducts<kType, TileOf><<<grid, TileOf::kThreads, kBytes, stream>>>(operands);
}

// Tiles for about `tokens` rows that share weights.
template <DType kType>
void LaunchType(Stream stream, const ProductOperands& operands, int64_t slots, int tokens) {
  if (tokens <= 16) {
    Launch<kType, Tile<1, 2, 2, 1, 4>>(stream, operands, slots);
  } else if (tokens <= 64) {
    Launch<kType, Tile<1, 4, 4, 2, 4>>(stream, operands, slots);
  } else {
    Launch<kType, Tile<2, 8, 4, 2, 3>>(stream, operands, slots);
  }
}

}  // namespace many
}  // namespace reprise::cuda
