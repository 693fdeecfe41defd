// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product_float.h"
#include "kernels/cuda/tensor/mma.cuh"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 16;
constexpr int kTeams = kThreads / kLanes;  // 16 threads that hold the lanes of some outputs

// kRows rows of weights times kTokens tokens by one team; `token` gives the row of x of each.
template <int kRows, int kTokens>
__device__ void TeamProduct(const float* const (&w)[kRows], const float* const (&x)[kTokens],
                            int64_t cols, int lane, float (&sum)[kRows][kTokens]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sum[r][t] = 0;
  }
#pragma unroll 4
  for (int64_t i = lane; i < cols; i += kLanes) {
    float a[kRows], b[kTokens];
#pragma unroll
    for (int r = 0; r < kRows; ++r) a[r] = w[r][i];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) b[t] = x[t][i];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t) sum[r][t] = fmaf(a[r], b[t], sum[r][t]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sum[r][t] = SumLanes(sum[r][t]);
  }
}

// Tokens [begin, end) of y, a block of kTeams * kRows weight rows and kTokens tokens. row: the row
// of x of a token, or null for its own.
template <int kRows, int kTokens>
__device__ void BlockProduct(const float* weight, const float* bias, const int32_t* row,
                             int64_t begin, int64_t end, const View& x, const View& y) {
  const int lane = threadIdx.x % kLanes;
  const int64_t first = (int64_t{blockIdx.x} * kTeams + threadIdx.x / kLanes) * kRows;
  const float* w[kRows];
  const float* in[kTokens];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    w[r] = weight + (first + r < y.cols ? first + r : y.cols - 1) * x.cols;
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int64_t token = begin + t < end ? begin + t : end - 1;
    in[t] = x.data + (row != nullptr ? row[token] : token) * x.stride;
  }
  float sum[kRows][kTokens];
  TeamProduct<kRows, kTokens>(w, in, x.cols, lane, sum);
  if (lane != 0) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (first + r >= y.cols || begin + t >= end) continue;
      const float value = bias != nullptr ? sum[r][t] + bias[first + r] : sum[r][t];
      y.data[(begin + t) * y.stride + first + r] = value;
    }
  }
}

template <int kRows, int kTokens>
__global__ void __launch_bounds__(kThreads)
    TokenProducts(const float* weight, const float* bias, View x, View y) {
  WaitForInputs();
  LetNextStart();
  for (int64_t t = int64_t{blockIdx.y} * kTokens; t < y.rows; t += int64_t{gridDim.y} * kTokens) {
    BlockProduct<kRows, kTokens>(weight, bias, nullptr, t, y.rows, x, y);
  }
}

template <int kRows, int kTokens>
__global__ void __launch_bounds__(kThreads)
    ExpertProducts(const float* weight, PlanView plan, bool gather, View x, View y) {
  WaitForInputs();
  LetNextStart();
  const int expert = static_cast<int>(blockIdx.z);
  const float* of_expert = weight + expert * y.cols * x.cols;
  const int64_t end = plan.begin[expert + 1];
  for (int64_t s = plan.begin[expert] + int64_t{blockIdx.y} * kTokens; s < end;
       s += int64_t{gridDim.y} * kTokens) {
    BlockProduct<kRows, kTokens>(of_expert, nullptr, gather ? plan.row : nullptr, s, end, x, y);
  }
}

template <int kRows, int kTokens>
void LaunchTokens(Stream stream, const float* weight, const float* bias, const View& x,
                  const View& y) {
  const dim3 grid(Blocks(y.cols, kTeams * kRows), RowBlocks(Blocks(y.rows, kTokens)));
  LaunchEarly(TokenProducts<kRows, kTokens>, grid, kThreads, 0, stream, weight, bias, x, y);
}

// --- Tiles: rows of weights and tokens pass through shared memory in pieces of their columns ----

constexpr int kTiledProducts = 4;

// Teams stand in a grid; a team has every kRowTeams-th row and every kTokenTeams-th token of its
// block, so that the two of a warp read one row of weights and neighbouring tokens.
template <int kRowTeams_, int kTokenTeams_, int kRows_, int kTokens_, int kPiece_, int kStages_>
struct Tile {
  static constexpr int kRowTeams = kRowTeams_, kTokenTeams = kTokenTeams_;
  static constexpr int kRows = kRows_, kTokens = kTokens_;  // of a team
  static constexpr int kBlockRows = kRowTeams * kRows, kBlockTokens = kTokenTeams * kTokens;
  static constexpr int kBlockThreads = kRowTeams * kTokenTeams * kLanes;
  static constexpr int kPiece = kPiece_;       // columns
  static constexpr int kStride = kPiece + 16;  // neighbouring rows lie in different banks
  static constexpr int kStages = kStages_;
  static constexpr int kStageFloats = (kBlockRows + kBlockTokens) * kStride;
  static constexpr size_t kBytes = size_t{kStages} * kStageFloats * sizeof(float);
};
using FewTokens = Tile<2, 2, 1, 1, 512, 8>;
using SomeTokens = Tile<2, 4, 2, 2, 256, 7>;
using MoreTokens = Tile<2, 4, 4, 4, 128, 6>;
using ManyTokens = Tile<4, 4, 8, 16, 128, 3>;

struct TileCall {
  View x;
  FloatProduct product[kTiledProducts];
  int begin[kTiledProducts + 1];  // the first block of each, and the end
};

template <class T>
__device__ __forceinline__ void MultiplyPiece(const float* stage, int row_team, int token_team,
                                              int lane, float (&sum)[T::kRows][T::kTokens]) {
  const float* weights = stage + row_team * T::kStride + lane;
  const float* tokens = stage + (T::kBlockRows + token_team) * T::kStride + lane;
#pragma unroll(T::kRows* T::kTokens > 16 ? 2 : 8)
  for (int i = 0; i < T::kPiece; i += kLanes) {
    float a[T::kRows], b[T::kTokens];
#pragma unroll
    for (int r = 0; r < T::kRows; ++r) a[r] = weights[r * T::kRowTeams * T::kStride + i];
#pragma unroll
    for (int t = 0; t < T::kTokens; ++t) b[t] = tokens[t * T::kTokenTeams * T::kStride + i];
#pragma unroll
    for (int r = 0; r < T::kRows; ++r) {
#pragma unroll
      for (int t = 0; t < T::kTokens; ++t) sum[r][t] = fmaf(a[r], b[t], sum[r][t]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(T::kBlockThreads)
    TileKernel(const __grid_constant__ TileCall call) {
  extern __shared__ __align__(
      16) float shared[];  // [kStages][kBlockRows + kBlockTokens, T::kStride]
  const int block = static_cast<int>(blockIdx.x);
  int which = 0;
  while (block >= call.begin[which + 1]) ++which;
  const FloatProduct& product = call.product[which];
  const int64_t row = int64_t{block - call.begin[which]} * T::kBlockRows;
  const int64_t token = int64_t{blockIdx.y} * T::kBlockTokens;
  const int pieces = static_cast<int>(call.x.cols / T::kPiece);
  constexpr int kCopies = T::kPiece / 4;  // of a row
  const auto copy_weights = [&](int piece) {
    float* to = shared + piece % T::kStages * T::kStageFloats;
    for (int i = threadIdx.x; i < T::kBlockRows * kCopies; i += T::kBlockThreads) {
      const int r = i / kCopies, at = i % kCopies * 4;
      const int64_t from =
          min(row + r, product.out.cols - 1) * call.x.cols + piece * T::kPiece + at;
      CopyAsync16(to + r * T::kStride + at, product.weight + from, true);
    }
  };
  const auto copy_tokens = [&](int piece) {
    float* to = shared + piece % T::kStages * T::kStageFloats + T::kBlockRows * T::kStride;
    for (int i = threadIdx.x; i < T::kBlockTokens * kCopies; i += T::kBlockThreads) {
      const int t = i / kCopies, at = i % kCopies * 4;
      const int64_t from = min(token + t, call.x.rows - 1) * call.x.stride + piece * T::kPiece + at;
      CopyAsync16(to + t * T::kStride + at, call.x.data + from, true);
    }
  };
  const int first = min(T::kStages - 1, pieces);
  for (int piece = 0; piece < first; ++piece) copy_weights(piece);
  WaitForInputs();
  LetNextStart();
  for (int piece = 0; piece < T::kStages - 1; ++piece) {
    if (piece < pieces) copy_tokens(piece);
    CommitAsync();
  }
  const int lane = threadIdx.x % kLanes;
  const int team = threadIdx.x / kLanes;
  const int row_team = team / T::kTokenTeams, token_team = team % T::kTokenTeams;
  float sum[T::kRows][T::kTokens] = {};
  for (int piece = 0; piece < pieces; ++piece) {
    WaitAsync<T::kStages - 2>();
    __syncthreads();  // all have this piece, and none is at the one before
    const int next = piece + T::kStages - 1;
    if (next < pieces) {
      copy_weights(next);
      copy_tokens(next);
    }
    CommitAsync();
    MultiplyPiece<T>(shared + piece % T::kStages * T::kStageFloats, row_team, token_team, lane,
                     sum);
  }
#pragma unroll
  for (int r = 0; r < T::kRows; ++r) {
    const int64_t to_row = row + row_team + r * T::kRowTeams;
    const float bias =
        product.bias != nullptr && to_row < product.out.cols ? product.bias[to_row] : 0;
#pragma unroll
    for (int t = 0; t < T::kTokens; ++t) {
      const int64_t to_token = token + token_team + t * T::kTokenTeams;
      const float value = SumLanes(sum[r][t]);
      if (lane != t % kLanes || to_row >= product.out.cols || to_token >= call.x.rows) continue;
      product.out.data[to_token * product.out.stride + to_row] =
          product.bias != nullptr ? value + bias : value;
    }
  }
}

bool AreTiled(std::span<const FloatProduct> products, const View& x) {
  return x.cols % MoreTokens::kPiece == 0 && Aligned16(x.data, x.stride) &&
         std::all_of(products.begin(), products.end(),
                     [](const FloatProduct& one) { return Aligned16(one.weight, 0); });
}

template <class T>
int64_t TileBlocks(std::span<const FloatProduct> products, const View& x) {
  int64_t blocks = 0;
  for (const FloatProduct& one : products) blocks += Blocks(one.out.cols, T::kBlockRows);
  return blocks * Blocks(x.rows, T::kBlockTokens);
}

template <class T>
void LaunchTiles(Stream stream, std::span<const FloatProduct> products, const View& x) {
  TileCall call = {x, {}, {}};
  for (int i = 0; i < kTiledProducts; ++i) {
    const bool there = i < static_cast<int>(products.size());
    if (there) call.product[i] = products[size_t(i)];
    const auto blocks = there ? Blocks(products[size_t(i)].out.cols, T::kBlockRows) : 0;
    call.begin[i + 1] = call.begin[i] + static_cast<int>(blocks);
  }
  const dim3 grid(unsigned(call.begin[kTiledProducts]), Blocks(x.rows, T::kBlockTokens));
  LaunchEarly(TileKernel<T>, grid, T::kBlockThreads, T::kBytes, stream, call);
}

template <class T>
bool Fits(const View& x) {
  return x.cols % T::kPiece == 0 && T::kBytes <= ThisGpu().block_shared;
}

static_assert(MoreTokens::kBytes <= kBlockSharedLeast);

// The largest tiles of which most multiprocessors get one.
void RunTiles(Stream stream, std::span<const FloatProduct> products, const View& x) {
  const int64_t enough = ThisGpu().multiprocessors * 3 / 4;
  if (x.rows <= FewTokens::kBlockTokens && Fits<FewTokens>(x)) {
    LaunchTiles<FewTokens>(stream, products, x);
  } else if (Fits<ManyTokens>(x) && TileBlocks<ManyTokens>(products, x) >= enough) {
    LaunchTiles<ManyTokens>(stream, products, x);
  } else if (Fits<SomeTokens>(x) && TileBlocks<MoreTokens>(products, x) < enough) {
    LaunchTiles<SomeTokens>(stream, products, x);
  } else {
    LaunchTiles<MoreTokens>(stream, products, x);
  }
}

}  // namespace

void ProductsF32(Stream stream, std::span<const FloatProduct> products, const View& x) {
  if (x.rows == 0) return;
  if (!AreTiled(products, x)) {
    for (const FloatProduct& one : products) ProductF32(stream, one.weight, one.bias, x, one.out);
    return;
  }
  for (size_t first = 0; first < products.size(); first += kTiledProducts) {
    RunTiles(stream,
             products.subspan(first, std::min<size_t>(kTiledProducts, products.size() - first)), x);
  }
}

void ProductF32(Stream stream, const float* weight, const float* bias, const View& x,
                const View& y) {
  if (y.rows == 0 || y.cols == 0) return;
  const FloatProduct one[] = {{weight, bias, y}};
  if (AreTiled(one, x)) {
    RunTiles(stream, one, x);
  } else if (y.rows <= 4) {
    LaunchTokens<2, 4>(stream, weight, bias, x, y);
  } else {
    LaunchTokens<4, 8>(stream, weight, bias, x, y);
  }
}

void ExpertsProductF32(Stream stream, const float* weight, const PlanView& plan, bool gather,
                       const View& x, const View& y) {
  if (plan.slots == 0 || y.cols == 0) return;
  constexpr int kRows = 2, kTokens = 4;
  const int64_t each = (plan.slots + plan.experts - 1) / plan.experts;
  const dim3 grid(Blocks(y.cols, kTeams * kRows), RowBlocks(Blocks(each, kTokens)),
                  static_cast<unsigned>(plan.experts));
  LaunchEarly(ExpertProducts<kRows, kTokens>, grid, kThreads, 0, stream, weight, plan, gather, x,
              y);
}

}  // namespace reprise::cuda
