// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/generic/prefetch-inl.h"
#include "kernels/cpu/interleave.h"
#include "kernels/cpu/table.h"

// Products with f32, f16 and bf16 weights ("quads16"), written once against a float vector F of an
// ISA: kParts registers of F::kLanes hold the 16 virtual lanes of one output element.
namespace reprise::cpu {
namespace {

// Register tile: kRows (4 or 2, of a quad) times kTokens elements.
template <typename F, typename W, int kRows, int kTokens>
void FloatTile(const uint8_t* quad, int first_row, int64_t cols, const float* x, int64_t x_stride,
               float* y, int64_t y_stride, int rows, bool stream) {
  using Vector = typename F::Vector;
  constexpr int kParts = kLanes / F::kLanes;
  constexpr int kLineElements = 64 / W::kBytes;
  // Every loop over accumulators is unrolled: an index at run time would keep them in memory.
  Vector acc[kTokens][kRows][kParts];
#pragma GCC unroll 64
  for (int i = 0; i < kTokens * kRows * kParts; ++i) {
    acc[i / (kRows * kParts)][i / kParts % kRows][i % kParts] = F::Zero();
  }
  const int64_t whole = cols / kLanes * kLanes;
  const auto weights_at = [&](int64_t i, int row) {
    const int64_t line = i / kLineElements;
    return quad + (line * kQuadRows + first_row + row) * 64 + i % kLineElements * W::kBytes;
  };
  for (int64_t i = 0; i < whole; i += kLanes) {
    const uint8_t* weights = weights_at(i, 0);  // 16 values lie in one line
    if (stream && i % kLineElements == 0) PrefetchAhead(weights, 64 * kRows);
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      Vector w[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) w[r] = W::Load(weights + 64 * r + p * F::kLanes * W::kBytes);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const Vector xs = F::Load(x + t * x_stride + i + p * F::kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) acc[t][r][p] = F::Fma(w[r], xs, acc[t][r][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < kParts; ++p) {  // lanes beyond cols keep their value, a -0 too
    const int64_t i = whole + p * F::kLanes;
    const int count = static_cast<int>(cols - i < F::kLanes ? cols - i : F::kLanes);
    if (count <= 0) continue;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Vector xs = F::LoadPartial(x + t * x_stride + i, count);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[t][r][p] = F::FmaPartial(W::Load(weights_at(i, r)), xs, acc[t][r][p], count);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      if (r < rows) y[t * y_stride + r] = F::Sum(acc[t][r]);
    }
  }
}

template <typename F, typename W, int kRows, int kTokens>
void FloatRest(const uint8_t* quad, int first_row, int64_t cols, const float* x, int64_t x_stride,
               int tokens, float* y, int64_t y_stride, int rows, bool stream) {
  if constexpr (kTokens > 0) {
    if (tokens == kTokens) {
      return FloatTile<F, W, kRows, kTokens>(quad, first_row, cols, x, x_stride, y, y_stride, rows,
                                             stream);
    }
    FloatRest<F, W, kRows, kTokens - 1>(quad, first_row, cols, x, x_stride, tokens, y, y_stride,
                                        rows, stream);
  }
}

// MatrixKernel::run.
template <typename F, typename W>
void RunFloats(const void* group, int rows, int64_t cols, const float* x, int64_t x_stride,
               const QuantisedRows*, int tokens, float* y, int64_t y_stride) {
  constexpr int kRows = F::kRows, kTokens = F::kTokens;
  const int64_t lines = (cols * W::kBytes + 63) / 64;
  for (int t = 0; t < tokens; t += kTokens) {
    const int count = tokens - t;
    for (int row = 0; row < rows; row += kRows) {
      const uint8_t* quad =
          static_cast<const uint8_t*>(group) + row / kQuadRows * lines * kQuadRows * 64;
      const float* xs = x + t * x_stride;
      float* ys = y + t * y_stride + row;
      if (count >= kTokens) {
        FloatTile<F, W, kRows, kTokens>(quad, row % kQuadRows, cols, xs, x_stride, ys, y_stride,
                                        rows - row, t == 0);
      } else {
        FloatRest<F, W, kRows, kTokens - 1>(quad, row % kQuadRows, cols, xs, x_stride, count, ys,
                                            y_stride, rows - row, t == 0);
      }
    }
  }
}

template <typename F, typename W>
void SetFloats(const char* isa, DType dtype, KernelTable* table) {
  MatrixKernel* kernel = &table->matrix[static_cast<int>(dtype)];
  UseInterleaved(dtype, kernel);
  kernel->isa = isa;
  kernel->run = RunFloats<F, W>;
}

}  // namespace
}  // namespace reprise::cpu
