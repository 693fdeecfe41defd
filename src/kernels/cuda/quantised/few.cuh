// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/quantised/product.cuh"
#include "kernels/cuda/quantised/unit.cuh"

// Products for a few tokens: bound by reading the weights. A warp takes kRows rows of weights and
// kTokens tokens and walks over k in chunks of 32 units, a thread a unit: its sums go to shared
// memory, and then one thread per output folds the chunk's blocks in order while the weights of
// the next chunk are on their way.
namespace reprise::cuda {
namespace few {

constexpr int kWarps = 4;
constexpr int kChunk = 32;  // units

// What one unit adds to an output. 32-blocks: two factors (and two of the minimum) for the fold.
// 256-blocks: integers, to be summed over the block first.
template <bool kBlock256, bool kMinimum>
struct Term;
template <>
struct Term<false, false> {
  float scale, sum;
};
template <>
struct alignas(16) Term<false, true> {
  float scale, sum, min_scale, min_sum;
};
template <>
struct Term<true, false> {
  int sum;
};
template <>
struct alignas(8) Term<true, true> {
  int sum, min_sum;
};
template <DType kType>
using TermOf = Term<UnitTraits<kType>::kBlock256, UnitTraits<kType>::kMinimum>;

// A unit of weights on its way.
template <DType kType>
struct Unit {
  using Traits = UnitTraits<kType>;
  uint32_t quants[Traits::kQuantWords];
  uint32_t extra[Traits::kExtraWords + 1];
  uint32_t scales;  // of 32-blocks
  HalfScales sub;   // of 256-blocks

  __device__ void Load(const QuantisedMatrix& matrix, int64_t row, int64_t unit) {
    const UnitPlace<kType> place(matrix, row, unit);
    if constexpr (Traits::kQuantWords == 2) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(place.quants));
      quants[0] = v.x, quants[1] = v.y;
    } else {
#pragma unroll
      for (int i = 0; i < Traits::kQuantWords; i += 4) {
        const uint4 v = __ldg(reinterpret_cast<const uint4*>(place.quants + i));
        quants[i] = v.x, quants[i + 1] = v.y, quants[i + 2] = v.z, quants[i + 3] = v.w;
      }
    }
#pragma unroll
    for (int i = 0; i < Traits::kExtraWords; ++i) extra[i] = __ldg(place.extra + i);
    if constexpr (Traits::kBlock256) {
      sub = SubScalesOf<kType>(place.sub, quants, static_cast<int>(unit % 8));
    } else {
      scales = place.Scales();
    }
  }
};

// Eight words of four int8.
struct Words {
  uint32_t word[8];
};

template <DType kType>
__device__ Words Expand(const Unit<kType>& unit, const uint2* grid) {
  Words words;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint2 pair = WordPair<kType>(unit.quants, unit.extra, grid, i);
    words.word[i] = pair.x;
    words.word[4 + i] = pair.y;
  }
  return words;
}

__device__ inline int Dot4(const uint32_t* a, const uint32_t* b) {
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = __dp4a(static_cast<int>(a[i]), static_cast<int>(b[i]), sum);
  }
  return sum;
}

// The activations of one token under a unit.
struct TokenUnit {
  Words words;
  float scale;        // 32-blocks
  int sum, sum_high;  // of the unit (32-blocks); of its halves (256-blocks)

  template <DType kType>
  __device__ void Load(const QuantisedView& x, int64_t row, int64_t unit) {
    const uint4* q = reinterpret_cast<const uint4*>(x.q + row * x.cols) + 2 * unit;
    const uint4 low = __ldg(q), high = __ldg(q + 1);
    words = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
    if constexpr (!UnitTraits<kType>::kBlock256) scale = x.scale[row * (x.cols / 32) + unit];
    if constexpr (UnitTraits<kType>::kMinimum) {
      if constexpr (UnitTraits<kType>::kBlock256) {
        const int16_t* sums = x.sum + row * (x.cols / 16) + 2 * unit;
        sum = sums[0], sum_high = sums[1];
      } else {
        sum = x.sum[row * (x.cols / 32) + unit];
      }
    }
  }
};

template <DType kType>
__device__ TermOf<kType> Multiply(const Unit<kType>& unit, const Words& weights,
                                  const TokenUnit& x) {
  using Traits = UnitTraits<kType>;
  const int low = Dot4(weights.word, x.words.word);
  const int high = Dot4(weights.word + 4, x.words.word + 4);
  if constexpr (!Traits::kBlock256) {
    const float scale = BlockScale<kType>(unit.scales) * x.scale;
    const float sum = __int2float_rn(low + high);
    if constexpr (!Traits::kMinimum)
      return {scale, sum};
    else
      return {scale, sum, BlockMinimum(unit.scales) * x.scale, __int2float_rn(x.sum)};
  } else {
    const int sum = unit.sub.scale[0] * low + unit.sub.scale[1] * high;
    if constexpr (!Traits::kMinimum)
      return {sum};
    else
      return {sum, unit.sub.min[0] * x.sum + unit.sub.min[1] * x.sum_high};
  }
}

// One output's chain over the blocks, held by one thread.
template <DType kType>
struct Fold {
  using Traits = UnitTraits<kType>;
  float total = 0;

  // Blocks [block, block + blocks) from their terms; row and token say whose scales (256-blocks).
  __device__ void Add(const TermOf<kType>* terms, int64_t block, int blocks,
                      const QuantisedMatrix& matrix, int64_t row, const float* x_scale) {
    if constexpr (!Traits::kBlock256) {
#pragma unroll 8
      for (int b = 0; b < blocks; ++b) {
        const TermOf<kType> term = terms[b];
        total = fmaf(term.scale, term.sum, total);
        if constexpr (Traits::kMinimum) total = fmaf(term.min_scale, term.min_sum, total);
      }
    } else {
#pragma unroll
      for (int b = 0; b < kChunk / 8; ++b) {
        if (b >= blocks) break;
        const uint32_t scales = UnitPlace<kType>(matrix, row, (block + b) * 8).Scales();
        const float dx = x_scale[block + b];
        int sum = 0, min_sum = 0;
#pragma unroll
        for (int u = 0; u < 8; ++u) {
          sum += terms[8 * b + u].sum;
          if constexpr (Traits::kMinimum) min_sum += terms[8 * b + u].min_sum;
        }
        total = fmaf(BlockScale<kType>(scales) * dx, __int2float_rn(sum), total);
        if constexpr (Traits::kMinimum) {
          total = fmaf(-(BlockMinimum(scales) * dx), __int2float_rn(min_sum), total);
        }
      }
    }
  }
};

// kRows rows of weights from weight_row + first on, times the tokens of a group.
template <DType kType, int kRows, int kTokens>
__device__ void WarpProduct(const ProductOperands& operands, const TokenGroup& group, int64_t first,
                            TermOf<kType> (*terms)[kChunk + 1]) {
  using Traits = UnitTraits<kType>;
  const int lane = threadIdx.x % 32;
  const int64_t units = operands.x.cols / 32;
  const uint2* grid = GridOf(operands.weight);
  const auto weight_row = [&](int r) {
    return group.weight_row + min(first + r, operands.y.cols - 1);
  };
  int64_t input[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) input[t] = group.Input(operands, t);
  Unit<kType> next[kRows];
  if (lane < units) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) next[r].Load(operands.weight, weight_row(r), lane);
  }
  const int my_row = lane / kTokens, my_token = lane % kTokens;
  const float* x_scale = operands.x.scale + group.Input(operands, my_token) *
                                                (operands.x.cols / (32 * Traits::kBlockUnits));
  Fold<kType> fold;
  for (int64_t begin = 0; begin < units; begin += kChunk) {
    const int64_t unit = begin + lane;
    Unit<kType> now[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) now[r] = next[r];
    if (unit + kChunk < units) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        next[r].Load(operands.weight, weight_row(r), unit + kChunk);
      }
    }
    if (unit < units) {
      Words weights[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) weights[r] = Expand<kType>(now[r], grid);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        TokenUnit x;
        x.Load<kType>(operands.x, input[t], unit);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          terms[r * kTokens + t][lane] = Multiply<kType>(now[r], weights[r], x);
        }
      }
    }
    __syncwarp();
    if (lane < kRows * kTokens) {
      const int blocks =
          static_cast<int>(min(int64_t{kChunk}, units - begin)) / Traits::kBlockUnits;
      fold.Add(terms[lane], begin / Traits::kBlockUnits, blocks, operands.weight,
               weight_row(my_row), x_scale);
    }
    __syncwarp();
  }
  const int64_t column = first + my_row;
  if (lane < kRows * kTokens && column < operands.y.cols && group.Contains(my_token)) {
    const float* bias = operands.bias;
    operands.y.data[(group.begin + my_token) * operands.y.stride + column] =
        bias != nullptr ? fold.total + bias[column] : fold.total;
  }
}

template <DType kType, int kRows, int kTokens>
__global__ void __launch_bounds__(32 * kWarps) FewProducts(ProductOperands operands) {
  __shared__ TermOf<kType> terms[kWarps][kRows * kTokens][kChunk + 1];
  const int warp = threadIdx.x / 32;
  const int64_t first = (int64_t{blockIdx.x} * kWarps + warp) * kRows;
  if (first >= operands.y.cols) return;
  TokenGroup group;
  for (int index = static_cast<int>(blockIdx.y); FindGroup(operands, index, kTokens, &group);
       index += static_cast<int>(gridDim.y)) {
    WarpProduct<kType, kRows, kTokens>(operands, group, first, terms[warp]);
  }
}

template <DType kType, int kRows, int kTokens>
void Launch(Stream stream, const ProductOperands& operands, int64_t slots) {
  const dim3 grid(Blocks(operands.y.cols, kWarps * kRows), GroupCount(operands, slots, kTokens));
  FewProducts<kType, kRows, kTokens><<<grid, 32 * kWarps, 0, stream>>>(operands);
}

// A group of `tokens` (1 to 8). Small matrices are spread over more warps.
template <DType kType>
void LaunchType(Stream stream, const ProductOperands& operands, int64_t slots, int tokens) {
  constexpr int64_t kSmall = 4096;  // rows
  if (tokens == 1 && operands.y.cols < kSmall) {
    Launch<kType, 1, 1>(stream, operands, slots);
  } else if (tokens == 1) {
    Launch<kType, 4, 1>(stream, operands, slots);
  } else if (tokens == 2) {
    Launch<kType, 2, 2>(stream, operands, slots);
  } else if (tokens <= 4) {
    Launch<kType, 2, 4>(stream, operands, slots);
  } else {
    Launch<kType, 2, 8>(stream, operands, slots);
  }
}

}  // namespace few
}  // namespace reprise::cuda
