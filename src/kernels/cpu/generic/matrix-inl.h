// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/generic/prefetch-inl.h"
#include "kernels/cpu/generic/weights256-inl.h"
#include "kernels/cpu/generic/weights32-inl.h"
#include "kernels/cpu/interleave.h"
#include "kernels/cpu/table.h"

// Products with quantised weights, written once against an integer vector V of an ISA. A tile is
// kVectors vectors of rows times kTokens tokens, held in registers over all blocks of the row:
// every weight is read and widened once per tile, every activation is broadcast once per vector.
namespace reprise::cpu {
namespace {

struct Output {
  float* y;  // of the tile's first row and token
  int64_t stride;
  int rows;     // of the tile that exist, may be <= 0
  bool stream;  // the weights come from memory: this is the group's first tile
};

template <typename V, int kVectors, int kTokens>
inline void StoreTile(const typename V::Float (&acc)[kTokens][kVectors], const Output& out) {
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      V::Store(out.y + t * out.stride + v * V::kLanes, acc[t][v], out.rows - v * V::kLanes);
    }
  }
}

// What a dot product of the bytes of W must be corrected by, per sum of the activations.
template <typename V, typename W>
constexpr int Bias() {
  return W::kSigned ? V::kSignedBias : W::kOffset;
}

template <typename V, typename W>
inline typename V::Int DotStep(typename V::Int acc, typename V::Int w, typename V::Int a) {
  if constexpr (W::kSigned) {
    return V::DotSigned(acc, w, a);
  } else {
    return V::Dot(acc, w, a);
  }
}

constexpr int kBlocksAtOnce = 32;  // whose corrections are computed ahead

template <typename V, typename W, int kVectors, int kTokens>
void Tile32(const uint8_t* block, int row, int64_t blocks, const QuantisedRows& x,
            const Output& out) {
  using Int = typename V::Int;
  using Float = typename V::Float;
  const W weights;
  Float acc[kTokens][kVectors];
  for (auto& of_token : acc) {
    for (Float& a : of_token) a = V::Zero();
  }
  int32_t correction[kTokens][kBlocksAtOnce];
  for (int64_t first = 0; first < blocks; first += kBlocksAtOnce) {
    const int64_t left = blocks - first;
    const int count = left < kBlocksAtOnce ? static_cast<int>(left) : kBlocksAtOnce;
    for (int t = 0; t < kTokens && Bias<V, W>() != 0; ++t) {
      const int16_t* sum = x.sum + t * x.sum_stride + first;
      for (int b = 0; b < count; ++b) correction[t][b] = -Bias<V, W>() * sum[b];
    }
    for (int b = 0; b < count; ++b, block += W::kBytes) {
      if (out.stream) PrefetchAhead(block, W::kBytes);
      const int8_t* q = x.q + 32 * (first + b);
      Int dot[kTokens][kVectors];
      for (int t = 0; t < kTokens; ++t) {
        for (Int& d : dot[t]) d = Bias<V, W>() != 0 ? V::Set(correction[t][b]) : V::Set(0);
      }
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 2
        for (int i = j; i < 8; i += 4) {  // i and i + 4 may share their bytes
          Int w[kVectors];
          for (int v = 0; v < kVectors; ++v) w[v] = weights.Step(block, row + v * V::kLanes, i);
          for (int t = 0; t < kTokens; ++t) {
            const Int a = V::Broadcast(q + t * x.q_stride + 4 * i);
            for (int v = 0; v < kVectors; ++v) dot[t][v] = DotStep<V, W>(dot[t][v], w[v], a);
          }
        }
      }
      for (int v = 0; v < kVectors; ++v) {
        const Float d = ScaleOf<V, W>(block, row + v * V::kLanes);
        for (int t = 0; t < kTokens; ++t) {
          const Float dx = V::SetFloat(x.scale[t * x.scale_stride + first + b]);
          acc[t][v] = V::Fma(V::Mul(d, dx), V::ToFloat(dot[t][v]), acc[t][v]);
          if constexpr (W::kMinimum) {
            const Float m = V::LoadHalves(block + kUnit2 + (row + v * V::kLanes) * 2);
            const Float sum = V::SetFloat(float(x.sum[t * x.sum_stride + first + b]));
            acc[t][v] = V::Fma(V::Mul(m, dx), sum, acc[t][v]);
          }
        }
      }
    }
  }
  StoreTile<V, kVectors, kTokens>(acc, out);
}

// The sum of min * sum over one block, and its part of the result.
template <typename V, typename W, int kVectors, int kTokens>
inline void FoldMinima(const W& weights, const uint8_t* block, int row, int64_t b,
                       const QuantisedRows& x, typename V::Float (&acc)[kTokens][kVectors]) {
  using Int = typename V::Int;
  Int minima[kTokens][kVectors];
  for (auto& of_token : minima) {
    for (Int& m : of_token) m = V::Set(0);
  }
  for (int j = 0; j < 8; ++j) {
    for (int v = 0; v < kVectors; ++v) {
      const Int pair = weights.MinPair(block, row + v * V::kLanes, j);
      for (int t = 0; t < kTokens; ++t) {
        const Int sums = V::Broadcast(x.sum + t * x.sum_stride + 16 * b + 2 * j);
        minima[t][v] = V::DotPairs(minima[t][v], pair, sums);
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const auto dmin = V::LoadHalves(block + kUnit2 + (row + v * V::kLanes) * 2);
    for (int t = 0; t < kTokens; ++t) {
      const auto dx = V::SetFloat(x.scale[t * x.scale_stride + b]);
      acc[t][v] = V::FmaNegated(V::Mul(dmin, dx), V::ToFloat(minima[t][v]), acc[t][v]);
    }
  }
}

// One sub-block: scale * dot added to `total`.
template <typename V, typename W, int kVectors, int kTokens>
inline void AddSubBlock(const W& weights, const uint8_t* block, int row, int chunk, int sub,
                        const int8_t* q, int64_t q_stride, const int32_t (&correction)[kTokens][16],
                        typename V::Int (&total)[kTokens][kVectors]) {
  using Int = typename V::Int;
  const int s = chunk * W::kSubs + sub;
  Int dot[kTokens][kVectors];
  for (int t = 0; t < kTokens; ++t) {
    for (Int& d : dot[t]) d = Bias<V, W>() != 0 ? V::Set(correction[t][s]) : V::Set(0);
  }
#pragma GCC unroll 8
  for (int i = 0; i < W::kSub / 4; ++i) {
    Int w[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      w[v] = weights.Step(block, row + v * V::kLanes, chunk, sub, i);
    }
    for (int t = 0; t < kTokens; ++t) {
      const Int a = V::Broadcast(q + t * q_stride + s * W::kSub + 4 * i);
      for (int v = 0; v < kVectors; ++v) dot[t][v] = DotStep<V, W>(dot[t][v], w[v], a);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const Int scale = weights.Scale(block, row + v * V::kLanes, s);
    for (int t = 0; t < kTokens; ++t) {
      total[t][v] = V::Add(total[t][v], V::Multiply(scale, dot[t][v]));
    }
  }
}

template <typename V, typename W, int kVectors, int kTokens>
void Tile256(const uint8_t* block, int row, int64_t blocks, const QuantisedRows& x,
             const Output& out) {
  using Int = typename V::Int;
  using Float = typename V::Float;
  const W weights;
  Float acc[kTokens][kVectors];
  for (auto& of_token : acc) {
    for (Float& a : of_token) a = V::Zero();
  }
  int32_t correction[kTokens][16];
  for (int64_t b = 0; b < blocks; ++b, block += W::kBytes) {
    for (int t = 0; t < kTokens && Bias<V, W>() != 0; ++t) {
      const int16_t* sum = x.sum + t * x.sum_stride + 16 * b;
      for (int s = 0; s < 256 / W::kSub; ++s) {
        const int total = W::kSub == 16 ? sum[s] : sum[2 * s] + sum[2 * s + 1];
        correction[t][s] = -Bias<V, W>() * total;
      }
    }
    Int total[kTokens][kVectors];
    for (auto& of_token : total) {
      for (Int& i : of_token) i = V::Set(0);
    }
    constexpr int kChunkBytes = W::kBytes / W::kChunks;
    for (int chunk = 0; chunk < W::kChunks; ++chunk) {
      if (out.stream) PrefetchAhead(block + chunk * kChunkBytes, kChunkBytes);
#pragma GCC unroll 8
      for (int sub = 0; sub < W::kSubs; ++sub) {
        AddSubBlock<V, W, kVectors, kTokens>(weights, block, row, chunk, sub, x.q + 256 * b,
                                             x.q_stride, correction, total);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      Float d = V::LoadHalves(block + (row + v * V::kLanes) * 2);
      if (W::kEighths) d = V::Mul(d, V::SetFloat(0.125f));
      for (int t = 0; t < kTokens; ++t) {
        const Float dx = V::SetFloat(x.scale[t * x.scale_stride + b]);
        acc[t][v] = V::Fma(V::Mul(d, dx), V::ToFloat(total[t][v]), acc[t][v]);
      }
    }
    if constexpr (W::kMinimum) {
      FoldMinima<V, W, kVectors, kTokens>(weights, block, row, b, x, acc);
    }
  }
  StoreTile<V, kVectors, kTokens>(acc, out);
}

// kTokens tokens against all rows.
template <typename V, typename W, int kTokens>
inline void RunTokens(const uint8_t* group, int rows, int64_t cols, const QuantisedRows& x,
                      bool first, float* y, int64_t y_stride) {
  constexpr int kVectors = V::VectorsFor(kTokens);
  for (int row = 0; row < rows; row += kVectors * V::kLanes) {
    const Output out = {y + row, y_stride, rows - row, first && row == 0};
    if constexpr (W::kBlock == 32) {
      Tile32<V, W, kVectors, kTokens>(group, row, cols / 32, x, out);
    } else {
      Tile256<V, W, kVectors, kTokens>(group, row, cols / 256, x, out);
    }
  }
}

// The last tokens, at most kTokens.
template <typename V, typename W, int kTokens>
void RunRest(const uint8_t* group, int rows, int64_t cols, const QuantisedRows& x, int tokens,
             bool first, float* y, int64_t y_stride) {
  if constexpr (kTokens > 0) {
    if (tokens == kTokens) {
      return RunTokens<V, W, kTokens>(group, rows, cols, x, first, y, y_stride);
    }
    RunRest<V, W, kTokens - 1>(group, rows, cols, x, tokens, first, y, y_stride);
  }
}

// MatrixKernel::run for a quantised type.
template <typename V, typename W>
void RunQuantised(const void* group, int rows, int64_t cols, const float*, int64_t,
                  const QuantisedRows* quantised, int tokens, float* y, int64_t y_stride) {
  constexpr int kTokens = W::kBlock == 32 ? V::kTokens32 : V::kTokens256;
  const uint8_t* bytes = static_cast<const uint8_t*>(group);
  QuantisedRows x = *quantised;
  int t = 0;
  for (; t + kTokens <= tokens; t += kTokens) {
    RunTokens<V, W, kTokens>(bytes, rows, cols, x, t == 0, y + t * y_stride, y_stride);
    x.q += kTokens * x.q_stride;
    x.scale += kTokens * x.scale_stride;
    x.sum += kTokens * x.sum_stride;
  }
  if (t == tokens) return;
  RunRest<V, W, kTokens - 1>(bytes, rows, cols, x, tokens - t, t == 0, y + t * y_stride, y_stride);
}

template <typename V, typename W>
void SetQuantised(const char* isa, DType dtype, KernelTable* table) {
  MatrixKernel* kernel = &table->matrix[static_cast<int>(dtype)];
  UseInterleaved(dtype, kernel);
  kernel->isa = isa;
  kernel->run = RunQuantised<V, W>;
}

// Every quantised type.
template <typename V>
void OverlayQuantised(const char* isa, KernelTable* table) {
  SetQuantised<V, WeightsQ8_0<V>>(isa, DType::kQ8_0, table);
  SetQuantised<V, WeightsQ4_0<V>>(isa, DType::kQ4_0, table);
  SetQuantised<V, WeightsQ4_1<V>>(isa, DType::kQ4_1, table);
  SetQuantised<V, WeightsQ5_0<V>>(isa, DType::kQ5_0, table);
  SetQuantised<V, WeightsQ5_1<V>>(isa, DType::kQ5_1, table);
  SetQuantised<V, WeightsQ2_K<V>>(isa, DType::kQ2_K, table);
  SetQuantised<V, WeightsQ3_K<V>>(isa, DType::kQ3_K, table);
  SetQuantised<V, WeightsQ4_K<V>>(isa, DType::kQ4_K, table);
  SetQuantised<V, WeightsQ5_K<V>>(isa, DType::kQ5_K, table);
  SetQuantised<V, WeightsQ6_K<V>>(isa, DType::kQ6_K, table);
  SetQuantised<V, WeightsIQ4_NL<V>>(isa, DType::kIQ4_NL, table);
  SetQuantised<V, WeightsIQ4_XS<V>>(isa, DType::kIQ4_XS, table);
  SetQuantised<V, WeightsIQ2_XXS<V>>(isa, DType::kIQ2_XXS, table);
  SetQuantised<V, WeightsMXFP4<V>>(isa, DType::kMXFP4, table);
}

}  // namespace
}  // namespace reprise::cpu
