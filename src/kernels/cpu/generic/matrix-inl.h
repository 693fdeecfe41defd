// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/generic/prefetch-inl.h"
#include "kernels/cpu/generic/weights256-inl.h"
#include "kernels/cpu/generic/weights32-inl.h"
#include "kernels/cpu/table.h"

// Products with quantised weights, written once against an integer vector V of an ISA. A tile is
// kVectors vectors of rows times kTokens tokens, held in registers over all blocks of the row:
// every weight is read and widened once per tile, every activation is broadcast once per vector.
namespace reprise::cpu {
namespace {

struct Output {
  float* y;  // of the tile's first row and token
  int64_t stride;
  int rows;       // of the tile that exist, may be <= 0
  bool more;      // y holds the sum over the blocks before
  uintptr_t ask;  // what is asked for meanwhile begins here;
  int ask_bytes;  // so much of it with every block
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
  Asked asked(out.ask);
  int32_t correction[kTokens][kBlocksAtOnce];
  for (int64_t first = 0; first < blocks; first += kBlocksAtOnce) {
    const int64_t left = blocks - first;
    const int count = left < kBlocksAtOnce ? static_cast<int>(left) : kBlocksAtOnce;
    for (int t = 0; t < kTokens && Bias<V, W>() != 0; ++t) {
      const int16_t* sum = x.sum + t * x.sum_stride + first;
      for (int b = 0; b < count; ++b) correction[t][b] = -Bias<V, W>() * sum[b];
    }
    for (int b = 0; b < count; ++b, block += W::kBytes) {
      asked.More<W::kBytes>(out.ask_bytes);
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

// Whether products of two are summed in 16 bits as long as they fit, and meet the scale there: for
// instruction sets that have no sum of four products. kMost is the largest value of a weight as it
// is read, kOffset what it is too large by.
template <typename V, typename W>
constexpr bool SumsPairs() {
  if constexpr (requires { W::kMost; }) return V::kPairSums;
  return false;
}

// A sub-block of such a type: sums of the steps that fit, times the scale; `correction` is half of
// what the offset adds, twice.
template <typename V, typename W, int kVectors, int kTokens>
inline void AddPairSums(const W& weights, const uint8_t* block, int row, int chunk, int sub,
                        const int8_t* q, int64_t q_stride,
                        const int32_t (&correction)[kTokens][16],
                        typename V::Int (&total)[kTokens][kVectors]) {
  using Int = typename V::Int;
  constexpr int kSteps = W::kSub / 4;
  constexpr int kFitting = 32767 / (2 * 127 * W::kMost);
  constexpr int kAtOnce = kFitting < kSteps ? kFitting : kSteps;
  static_assert(kSteps % kAtOnce == 0 && W::kOffset % 2 == 0 && W::kOffset / 2 * 127 * 16 < 32768);
  const int s = chunk * W::kSubs + sub;
  Int scale[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const Int of_rows = weights.Scale(block, row + v * V::kLanes, s);
    const Int low = V::And(of_rows, V::Set(0xFFFF));
    scale[v] = V::Or(low, V::template ShiftLeft<16>(of_rows));
  }
#pragma GCC unroll 4
  for (int first = 0; first < kSteps; first += kAtOnce) {
    Int sum[kTokens][kVectors];
#pragma GCC unroll 8
    for (int i = first; i < first + kAtOnce; ++i) {
      Int w[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        w[v] = weights.Step(block, row + v * V::kLanes, chunk, sub, i);
      }
      for (int t = 0; t < kTokens; ++t) {
        const Int a = V::Broadcast(q + t * q_stride + s * W::kSub + 4 * i);
        for (int v = 0; v < kVectors; ++v) {
          const Int pairs = V::PairProducts(w[v], a);
          sum[t][v] = i == first ? pairs : V::AddHalves(sum[t][v], pairs);
        }
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      for (int v = 0; v < kVectors; ++v) {
        total[t][v] = V::DotPairs(total[t][v], sum[t][v], scale[v]);
      }
    }
  }
  for (int t = 0; t < kTokens && W::kOffset != 0; ++t) {
    const Int offset = V::Set(correction[t][s]);
    for (int v = 0; v < kVectors; ++v) total[t][v] = V::DotPairs(total[t][v], offset, scale[v]);
  }
}

// Corrections of the sub-blocks of one block.
template <typename V, typename W>
inline void Correct(const int16_t* sum, int32_t (&correction)[16]) {
  for (int s = 0; s < 256 / W::kSub && Bias<V, W>() != 0; ++s) {
    const int total = W::kSub == 16 ? sum[s] : sum[2 * s] + sum[2 * s + 1];
    if constexpr (SumsPairs<V, W>()) {
      const auto half = static_cast<uint16_t>(-W::kOffset / 2 * total);
      correction[s] = static_cast<int32_t>(half * 0x10001u);
    } else {
      correction[s] = -Bias<V, W>() * total;
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

// d of the rows from `row` on, as it is stored.
template <typename V, typename W>
inline typename V::Float ScaleOf256(const uint8_t* block, int row) {
  if constexpr (requires { W::kFloatScale; }) {
    return V::LoadRows(reinterpret_cast<const float*>(block) + row, V::kLanes);
  } else {
    return V::LoadHalves(block + row * 2);
  }
}

template <typename V, typename W, int kVectors, int kTokens>
void Tile256(const uint8_t* block, int row, int64_t blocks, const QuantisedRows& x,
             const Output& out) {
  using Int = typename V::Int;
  using Float = typename V::Float;
  const W weights;
  Float acc[kTokens][kVectors];
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      const int left = out.rows - v * V::kLanes;
      acc[t][v] = out.more ? V::LoadRows(out.y + t * out.stride + v * V::kLanes, left) : V::Zero();
    }
  }
  Asked asked(out.ask);
  int32_t correction[kTokens][16];
  for (int64_t b = 0; b < blocks; ++b, block += W::kBytes) {
    for (int t = 0; t < kTokens; ++t) {
      Correct<V, W>(x.sum + t * x.sum_stride + 16 * b, correction[t]);
    }
    if constexpr (kTokens == V::kTokens256) AskActivations<kTokens>(x, b);
    Int total[kTokens][kVectors];
    for (auto& of_token : total) {
      for (Int& i : of_token) i = V::Set(0);
    }
    for (int chunk = 0; chunk < W::kChunks; ++chunk) {
      asked.More<W::kBytes / W::kChunks>(out.ask_bytes / W::kChunks);
#pragma GCC unroll 8
      for (int sub = 0; sub < W::kSubs; ++sub) {
        if constexpr (SumsPairs<V, W>()) {
          AddPairSums<V, W, kVectors, kTokens>(weights, block, row, chunk, sub, x.q + 256 * b,
                                               x.q_stride, correction, total);
        } else {
          AddSubBlock<V, W, kVectors, kTokens>(weights, block, row, chunk, sub, x.q + 256 * b,
                                               x.q_stride, correction, total);
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      Float d = ScaleOf256<V, W>(block, row + v * V::kLanes);
      if (W::kUnit != 1) d = V::Mul(d, V::SetFloat(W::kUnit));
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

}  // namespace
}  // namespace reprise::cpu
