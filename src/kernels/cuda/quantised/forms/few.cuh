// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantised/forms/mma.cuh"
#include "kernels/cuda/quantised/forms/product.cuh"

// Products for few tokens: bound by reading the weights, so everything that can be asked for at
// once is. A block takes 16 rows of weights and up to 8 * kN tokens; its warps divide k, a quad
// each at a time. The integer sums of a round of quads meet in shared memory, where one thread per
// output folds them in order while the weights of the next round are on their way.
namespace reprise::cuda {
namespace few {

constexpr int kRows = 16;

template <DType kType, int kN_, int kWarps_>
struct Shape {
  using Traits = UnitTraits<kType>;
  static constexpr int kN = kN_, kWarps = kWarps_;
  static constexpr int kTokens = 8 * kN;
  static constexpr int kThreads = 32 * kWarps;
  // Integers per output and round: of every unit; of 256-blocks of every quad, and of its minima.
  static constexpr int kPlaces = Traits::kBlock256 ? kWarps : 4 * kWarps;
  static constexpr bool kLeast = Traits::kBlock256 && Traits::kMinimum;
  static constexpr bool kXSums = !Traits::kBlock256 && Traits::kMinimum;
  static constexpr int kStride = kPlaces * (kLeast ? 2 : 1) + 4;
  static constexpr int kTokenStride = kRows * kStride + 4;  // spreads stores over the banks
  static constexpr int kScaleStride = kPlaces + 4;
  // Where two rounds fit, one is folded while the next is multiplied.
  static constexpr int kBuffers = kN <= 2 ? 2 : 1;
  static constexpr bool kAhead = kN == 1;  // activations are asked for with the weights
};

// What a round leaves in shared memory for the fold: of every place (a unit, or a quad of a
// 256-block) the integer sums of all outputs, and the scales.
template <typename S>
struct Round {
  alignas(16) int sums[S::kTokens * S::kTokenStride];
  alignas(16) uint32_t scales[kRows * S::kScaleStride];  // f16, one or two
  alignas(16) float x_scales[S::kTokens * S::kScaleStride];
  alignas(16) int x_sums[S::kXSums ? S::kTokens * S::kScaleStride : 1];
};

// Words i and 4 + i of unit j of a quad of activations; past the end those of the last unit, whose
// sums nobody folds.
__device__ inline void LoadWords(const QuantisedView& x, int64_t row, int64_t quad, int j, int i,
                                 uint32_t (&words)[2]) {
  const int64_t unit = min(4 * quad + j, x.cols / 32 - 1);
  const auto* from = reinterpret_cast<const uint32_t*>(x.q + row * x.cols) + 8 * unit + i;
  words[0] = __ldg(from);
  words[1] = __ldg(from + 4);
}

// One quad on its way to a thread: weights of rows g and g + 8, activations of token g of every n.
template <DType kType, typename S>
struct Quad {
  using Traits = UnitTraits<kType>;
  QuadWords<kType> words[2];
  QuadScales<kType> sub[2];
  uint32_t minima[2];
  uint32_t scales[2];
  uint32_t x_words[S::kAhead ? S::kN : 1][4][2];
  float x_scale[S::kN];
  int x_sum[S::kN];

  __device__ void Load(const RowPlanes<kType> (&rows)[2], const QuantisedView& x,
                       const int64_t (&input)[S::kN], int64_t quad, int i) {
    const int64_t units = x.cols / 32, blocks = units / Traits::kBlockUnits;
    // Thread i of four looks after unit i; past the end after the last one.
    const int64_t block = Traits::kBlock256 ? quad / 2 : min(4 * quad + i, units - 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      words[h].Load(rows[h].Quants(quad, 0), rows[h].Extra(quad, 0), i);
      scales[h] = rows[h].Scales(block);
      if constexpr (Traits::kBlock256) {
        const uint8_t* of_block = rows[h].Sub(quad / 2);
        const int half = static_cast<int>(quad % 2);
        sub[h].Load(of_block, half);
        // A quad has half of the sub-blocks: the first two threads of four hold them.
        if constexpr (Traits::kMinimum) {
          minima[h] = i < 2 ? MinimaOf<kType>(of_block, 2 * half + i) : 0;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < S::kN; ++n) {
      if constexpr (S::kAhead) {
#pragma unroll
        for (int j = 0; j < 4; ++j) LoadWords(x, input[n], quad, j, i, x_words[n][j]);
      }
      x_scale[n] = x.scale[input[n] * blocks + block];
      if constexpr (S::kXSums) {
        x_sum[n] = x.sum[input[n] * units + block];
      }
    }
  }

  // The scales go to their places in the round.
  __device__ void StoreScales(int warp, int g, int i, Round<S>* round) const {
    const int place = Traits::kBlock256 ? warp : 4 * warp + i;
#pragma unroll
    for (int h = 0; h < 2; ++h) round->scales[(g + 8 * h) * S::kScaleStride + place] = scales[h];
#pragma unroll
    for (int n = 0; n < S::kN; ++n) {
      const int at = (8 * n + g) * S::kScaleStride + place;
      round->x_scales[at] = x_scale[n];
      if constexpr (S::kXSums) round->x_sums[at] = x_sum[n];
    }
  }
};

// The sums of one quad of all tokens go to the round.
template <DType kType, typename S>
__device__ void MultiplyQuad(const Quad<kType, S>& quad, const uint2* grid, const QuantisedView& x,
                             const int64_t (&input)[S::kN], int64_t at, Round<S>* round) {
  using Traits = UnitTraits<kType>;
  constexpr int kN = S::kN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, i = lane % 4;
  int c[kN][Traits::kBlock256 ? 1 : 4][4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const Fragment a = WeightFragment<kType>(quad.words, grid, j, i);
    int scale[2][2];
    if constexpr (Traits::kBlock256) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        scale[h][0] = quad.sub[h].Of(j, 0, quad.words[h]);
        scale[h][1] = QuadScales<kType>::kHalves ? quad.sub[h].Of(j, 1, quad.words[h]) : 0;
      }
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      uint32_t b[2];
      if constexpr (S::kAhead) {
        b[0] = quad.x_words[n][j][0], b[1] = quad.x_words[n][j][1];
      } else {
        LoadWords(x, input[n], at, j, i, b);
      }
      if constexpr (Traits::kBlock256) {
        AddScaled<kType>(a, b, scale, c[n][0]);
      } else {
        Mma32(c[n][j], a, b);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    int least[4] = {};
    if constexpr (S::kLeast) {
      const int16_t* from = x.sum + input[n] * (x.cols / 16) + 8 * at + 4 * (i % 2);
      MultiplyMinima(quad.minima, SumDigits(*reinterpret_cast<const uint2*>(from)), least);
    }
#pragma unroll
    for (int o = 0; o < 4; ++o) {
      int* to =
          round->sums + (8 * n + 2 * i + o % 2) * S::kTokenStride + (g + 8 * (o / 2)) * S::kStride;
      if constexpr (!Traits::kBlock256) {
        *reinterpret_cast<int4*>(to + 4 * warp) =
            make_int4(c[n][0][o], c[n][1][o], c[n][2][o], c[n][3][o]);
      } else {
        to[warp] = c[n][0][o];
        if constexpr (S::kLeast) to[S::kPlaces + warp] = least[o];
      }
    }
  }
}

// Four neighbours in shared memory.
template <typename T>
struct alignas(16) Four {
  T of[4];
};
template <typename T>
__device__ Four<T> FourAt(const T* from) {
  return *reinterpret_cast<const Four<T>*>(from);
}

// One output's chain over the blocks of a round: kPlaces of them, or `places` where not kWhole.
template <DType kType, typename S, bool kWhole>
__device__ float Fold(const Round<S>& round, int row, int token, int places, float total) {
  using Traits = UnitTraits<kType>;
  const int* sums = round.sums + token * S::kTokenStride + row * S::kStride;
  const uint32_t* scales = round.scales + row * S::kScaleStride;
  const float* x_scales = round.x_scales + token * S::kScaleStride;
  const int* x_sums = round.x_sums + token * S::kScaleStride;
  constexpr int kStep = Traits::kBlock256 ? 2 : 1;
#pragma unroll
  for (int first = 0; first < S::kPlaces; first += 4) {
    const Four<int> sum = FourAt(sums + first);
    const Four<uint32_t> scale = FourAt(scales + first);
    const Four<float> x_scale = FourAt(x_scales + first);
    Four<int> least = {};
    if constexpr (S::kLeast) least = FourAt(sums + S::kPlaces + first);
    if constexpr (S::kXSums) least = FourAt(x_sums + first);
#pragma unroll
    for (int k = 0; k < 4; k += kStep) {
      if (!kWhole && first + k >= places) break;
      const int block_sum = Traits::kBlock256 ? sum.of[k] + sum.of[k + 1] : sum.of[k];
      total =
          fmaf(BlockScale<kType>(scale.of[k]) * x_scale.of[k], __int2float_rn(block_sum), total);
      if constexpr (!Traits::kMinimum) continue;
      const float least_scale = BlockMinimum(scale.of[k]) * x_scale.of[k];
      if constexpr (Traits::kBlock256) {
        total = fmaf(-least_scale, __int2float_rn(least.of[k] + least.of[k + 1]), total);
      } else {
        total = fmaf(least_scale, __int2float_rn(least.of[k]), total);
      }
    }
  }
  return total;
}

template <DType kType, typename S>
__device__ void BlockProduct(const ProductOperands& operands, const TokenGroup& group,
                             int64_t first, Round<S>* rounds) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, i = lane % 4;
  const int64_t last = operands.y.cols - 1;
  const auto planes = [&](int r) {
    return RowPlanes<kType>(operands.weight, group.weight_row + min(first + r, last));
  };
  const RowPlanes<kType> rows[2] = {planes(g), planes(g + 8)};
  int64_t input[S::kN];
#pragma unroll
  for (int n = 0; n < S::kN; ++n) input[n] = group.Input(operands, 8 * n + g);
  const int64_t units = operands.x.cols / 32, quads = (units + 3) / 4;
  Quad<kType, S> next;
  if (warp < quads) next.Load(rows, operands.x, input, warp, i);
  // Outputs of this thread: row threadIdx.x % 16, every kStep-th token from threadIdx.x / 16 on.
  constexpr int kStep = S::kThreads / kRows;
  constexpr int kEach = (S::kTokens + kStep - 1) / kStep;
  const int row = threadIdx.x % kRows;
  float totals[kEach] = {};
  for (int64_t begin = 0; begin < quads; begin += S::kWarps) {
    const Quad<kType, S> now = next;
    const int64_t at = begin + warp;
    if (at + S::kWarps < quads) next.Load(rows, operands.x, input, at + S::kWarps, i);
    Round<S>* round = rounds + begin / S::kWarps % S::kBuffers;
    if (at < quads) {
      now.StoreScales(warp, g, i, round);
      MultiplyQuad<kType, S>(now, GridOf(operands.weight), operands.x, input, at, round);
    }
    __syncthreads();
    const int64_t left = units - 4 * begin;
    const bool whole = left >= 4 * S::kWarps;
    const int places = static_cast<int>(UnitTraits<kType>::kBlock256 ? left / 4 : left);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int token = threadIdx.x / kRows + k * kStep;
      if (token >= S::kTokens || !group.Contains(token)) break;
      totals[k] = whole ? Fold<kType, S, true>(*round, row, token, places, totals[k])
                        : Fold<kType, S, false>(*round, row, token, places, totals[k]);
    }
    if (S::kBuffers == 1) __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int token = threadIdx.x / kRows + k * kStep;
    if (token >= S::kTokens || !group.Contains(token) || first + row > last) break;
    const float* bias = operands.bias;
    operands.y.data[(group.begin + token) * operands.y.stride + first + row] =
        bias != nullptr ? totals[k] + bias[first + row] : totals[k];
  }
}

template <DType kType, int kN, int kWarps>
__global__ void __launch_bounds__(32 * kWarps)
    FewProducts(const __grid_constant__ ProductList list) {
  using S = Shape<kType, kN, kWarps>;
  extern __shared__ __align__(16) std::byte shared[];
  WaitForInputs();
  LetNextStart();
  const int which = list.Find(static_cast<int>(blockIdx.x));
  const ProductOperands& operands = list.product[which];
  const int64_t first = int64_t{static_cast<int>(blockIdx.x) - list.begin[which]} * kRows;
  TokenGroup group;
  for (int index = static_cast<int>(blockIdx.y); FindGroup(operands, index, S::kTokens, &group);
       index += static_cast<int>(gridDim.y)) {
    __syncthreads();  // the last group's rounds are folded
    BlockProduct<kType, S>(operands, group, first, reinterpret_cast<Round<S>*>(shared));
  }
}

template <DType kType, int kN, int kWarps>
void Launch(Stream stream, std::span<const ProductOperands> products, int64_t slots) {
  using S = Shape<kType, kN, kWarps>;
  constexpr size_t kBytes = S::kBuffers * sizeof(Round<S>);
  static_assert(kBytes <= kBlockSharedLeast);
  const ProductList list(products, kRows);
  const dim3 grid(unsigned(list.begin[ProductList::kMost]),
                  GroupCount(products[0], slots, S::kTokens));
  LaunchEarly(FewProducts<kType, kN, kWarps>, grid, S::kThreads, kBytes, stream, list);
}

// Groups of up to 32 tokens.
template <DType kType>
void LaunchType(Stream stream, std::span<const ProductOperands> products, int64_t slots,
                int tokens) {
  if (tokens <= 8) {
    Launch<kType, 1, 8>(stream, products, slots);
  } else if (tokens <= 16) {
    Launch<kType, 2, 8>(stream, products, slots);
  } else {
    Launch<kType, 4, 8>(stream, products, slots);
  }
}

}  // namespace few
}  // namespace reprise::cuda
