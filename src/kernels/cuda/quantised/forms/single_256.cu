// SPDX-License-Identifier: Apache-2.0
// Products of 256-blocks for one token at a time, where most of a tensor core would multiply
// nothing. A warp takes kRows rows of weights and walks over k in chunks of four blocks, four
// threads a quad: what a thread has of its block goes to shared memory, and one thread per row adds
// it up and folds the chunk's blocks in order while the weights of the next chunk are on their way.
#include <type_traits>

#include "kernels/cuda/quantised/forms/mma.cuh"
#include "kernels/cuda/quantised/forms/product.cuh"

namespace reprise::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kChunkBlocks = 4;

// A thread's share of the sums of a block: any will do, as all are added.
struct Share {
  int sum;
  int least;  // minima times sums of x
};

// A thread's part of a quad of one row: the word pairs i of its four units, and the minima of unit
// i.
template <DType kType>
struct Part {
  QuadWords<kType> words;
  QuadScales<kType> scales;
  int minima[2];

  __device__ void Load(const RowPlanes<kType>& row, int64_t quad, int i) {
    words.Load(row.Quants(quad, 0), row.Extra(quad, 0), i);
    const uint8_t* sub = row.Sub(quad / 2);
    const int half = static_cast<int>(quad % 2);
    scales.Load(sub, half);
    if constexpr (UnitTraits<kType>::kMinimum) {
      const HalfScales unit = SubScalesOf<kType>(sub, 0, 4 * half + i);
      minima[0] = unit.min[0], minima[1] = unit.min[1];
    }
  }
};

// The same part of the activations.
template <DType kType>
struct TokenPart {
  uint32_t words[4][2];
  int sums[2];

  __device__ void Load(const QuantisedView& x, int64_t row, int64_t quad, int i) {
    const auto* from = reinterpret_cast<const uint32_t*>(x.q + row * x.cols) + 32 * quad + i;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      words[j][0] = __ldg(from + 8 * j), words[j][1] = __ldg(from + 8 * j + 4);
    }
    if constexpr (UnitTraits<kType>::kMinimum) {
      const int16_t* of_unit = x.sum + row * (x.cols / 16) + 2 * (4 * quad + i);
      sums[0] = of_unit[0], sums[1] = of_unit[1];
    }
  }
};

template <DType kType>
__device__ Share Multiply(const Part<kType>& part, const uint2* grid, const TokenPart<kType>& x,
                          int i) {
  Share share = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint2 pair = WordPair<kType>(part.words.Unit(j), grid, i);
    const int low = __dp4a(static_cast<int>(pair.x), static_cast<int>(x.words[j][0]), 0);
    const int high = __dp4a(static_cast<int>(pair.y), static_cast<int>(x.words[j][1]), 0);
    const int scale = part.scales.Of(j, 0, part.words);
    const int high_scale = QuadScales<kType>::kHalves ? part.scales.Of(j, 1, part.words) : scale;
    share.sum += scale * low + high_scale * high;
  }
  if constexpr (UnitTraits<kType>::kMinimum) {
    share.least = part.minima[0] * x.sums[0] + part.minima[1] * x.sums[1];
  }
  return share;
}

// What one row's chain needs of the blocks of a chunk besides their shares.
struct ChunkScales {
  uint32_t row[kChunkBlocks];
  float x[kChunkBlocks];

  // Of blocks [block, block + blocks).
  template <DType kType>
  __device__ void Load(const RowPlanes<kType>& planes, const float* x_scale, int64_t block,
                       int blocks) {
#pragma unroll
    for (int b = 0; b < kChunkBlocks; ++b) {
      if (b >= blocks) break;
      row[b] = planes.Scales(block + b);
      x[b] = x_scale[block + b];
    }
  }
};

// One row's chain over `blocks` blocks. shares: 8 of each block.
template <DType kType>
__device__ float Fold(const Share* shares, const ChunkScales& scales, int blocks, float total) {
#pragma unroll
  for (int b = 0; b < kChunkBlocks; ++b) {
    if (b >= blocks) break;
    Share of_block = {};
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      of_block.sum += shares[8 * b + s].sum;
      if constexpr (UnitTraits<kType>::kMinimum) of_block.least += shares[8 * b + s].least;
    }
    total =
        fmaf(BlockScale<kType>(scales.row[b]) * scales.x[b], __int2float_rn(of_block.sum), total);
    if constexpr (UnitTraits<kType>::kMinimum) {
      const float least = BlockMinimum(scales.row[b]) * scales.x[b];
      total = fmaf(-least, __int2float_rn(of_block.least), total);
    }
  }
  return total;
}

// kRows rows of weights from `first` on times the token of a group.
template <DType kType, int kRows>
__device__ void WarpProduct(const ProductOperands& operands, const TokenGroup& group, int64_t first,
                            Share (*shares)[8 * kChunkBlocks + 1]) {
  const int lane = threadIdx.x % 32, i = lane % 4;
  const int64_t blocks = operands.x.cols / 256;
  const auto planes = [&](int r) {
    return RowPlanes<kType>(operands.weight,
                            group.weight_row + min(first + r, operands.y.cols - 1));
  };
  const int64_t input = group.Input(operands, 0);
  // Past the end threads work on the last quad again; nobody folds it.
  const auto quad_of = [&](int64_t block) { return min(2 * block + lane / 4, 2 * blocks - 1); };
  Part<kType> next[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) next[r].Load(planes(r), quad_of(0), i);
  float total = 0;
  for (int64_t block = 0; block < blocks; block += kChunkBlocks) {
    Part<kType> now[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) now[r] = next[r];
    if (block + kChunkBlocks < blocks) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) next[r].Load(planes(r), quad_of(block + kChunkBlocks), i);
    }
    const int here = static_cast<int>(min(blocks - block, int64_t{kChunkBlocks}));
    ChunkScales scales;
    if (lane < kRows) {
      scales.Load<kType>(planes(lane), operands.x.scale + input * blocks, block, here);
    }
    TokenPart<kType> x;
    x.Load(operands.x, input, quad_of(block), i);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      shares[r][lane] = Multiply<kType>(now[r], GridOf(operands.weight), x, i);
    }
    __syncwarp();
    if (lane < kRows) total = Fold<kType>(shares[lane], scales, here, total);
    __syncwarp();
  }
  const int64_t column = first + lane;
  if (lane < kRows && column < operands.y.cols) {
    const float* bias = operands.bias;
    operands.y.data[group.begin * operands.y.stride + column] =
        bias != nullptr ? total + bias[column] : total;
  }
}

template <DType kType, int kRows>
__global__ void __launch_bounds__(32 * kWarps)
    SingleProducts(const __grid_constant__ ProductList list) {
  __shared__ Share shares[kWarps][kRows][8 * kChunkBlocks + 1];
  WaitForInputs();
  LetNextStart();
  const int which = list.Find(static_cast<int>(blockIdx.x));
  const ProductOperands& operands = list.product[which];
  const int warp = threadIdx.x / 32;
  const int block = static_cast<int>(blockIdx.x) - list.begin[which];
  const int64_t first = (int64_t{block} * kWarps + warp) * kRows;
  if (first >= operands.y.cols) return;
  TokenGroup group;
  for (int index = static_cast<int>(blockIdx.y); FindRow(operands, index, &group);
       index += static_cast<int>(gridDim.y)) {
    WarpProduct<kType, kRows>(operands, group, first, shares[warp]);
  }
}

// Where there is little to do it is spread over more warps.
template <DType kType>
void LaunchType(Stream stream, std::span<const ProductOperands> products, int64_t slots) {
  constexpr int64_t kSmall = 4096;  // rows of weights, of all tokens
  int64_t rows = 0;
  for (const ProductOperands& one : products) rows += one.y.cols * slots;
  const auto launch = [&]<int kRows>(std::integral_constant<int, kRows>) {
    const ProductList list(products, kWarps * kRows);
    const dim3 grid(unsigned(list.begin[ProductList::kMost]), GroupCount(products[0], slots, 1));
    LaunchEarly(SingleProducts<kType, kRows>, grid, 32 * kWarps, 0, stream, list);
  };
  if (rows < kSmall) {
    launch(std::integral_constant<int, 1>{});
  } else {
    launch(std::integral_constant<int, 4>{});
  }
}

}  // namespace

void LaunchSingle256(Stream stream, std::span<const ProductOperands> products, int64_t slots) {
  switch (products[0].weight.layout.dtype) {
#define REPRISE_SINGLE(name) \
  case DType::k##name:       \
    return LaunchType<DType::k##name>(stream, products, slots)
    REPRISE_SINGLE(Q2_K);
    REPRISE_SINGLE(Q3_K);
    REPRISE_SINGLE(Q4_K);
    REPRISE_SINGLE(Q5_K);
    REPRISE_SINGLE(Q6_K);
    REPRISE_SINGLE(IQ4_XS);
    REPRISE_SINGLE(IQ2_XXS);
#undef REPRISE_SINGLE
    default:
      return;
  }
}

}  // namespace reprise::cuda
