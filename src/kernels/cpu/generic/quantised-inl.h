// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/generic/matrix-inl.h"
#include "kernels/cpu/generic/weights_coded-inl.h"
#include "kernels/cpu/interleave.h"
#include "kernels/cpu/table.h"

// The entries of quantised types: tiles of matrix-inl.h over all rows of a group and all tokens.
namespace reprise::cpu {
namespace {

// Blocks of a group and what they are multiplied with.
struct Span {
  const uint8_t* blocks;
  int rows;
  int64_t cols;
  bool more;        // y holds the sum over the blocks before
  uintptr_t ask;    // what is asked for meanwhile, evenly over all tiles of tokens
  int64_t ask_bytes;
};

// kTokens tokens against all rows.
template <typename V, typename W, int kTokens>
inline void RunTokens(const Span& span, const QuantisedRows& x, float* y, int64_t y_stride) {
  constexpr int kVectors = V::VectorsFor(kTokens);
  const int64_t blocks = span.cols / W::kBlock;
  for (int row = 0; row < span.rows; row += kVectors * V::kLanes) {
    const int ask_bytes = row == 0 ? static_cast<int>(span.ask_bytes / blocks) : 0;
    const Output out = {y + row, y_stride, span.rows - row, span.more, span.ask, ask_bytes};
    if constexpr (W::kBlock == 32) {
      Tile32<V, W, kVectors, kTokens>(span.blocks, row, blocks, x, out);
    } else {
      Tile256<V, W, kVectors, kTokens>(span.blocks, row, blocks, x, out);
    }
  }
}

// The last tokens, at most kTokens.
template <typename V, typename W, int kTokens>
void RunRest(const Span& span, const QuantisedRows& x, int tokens, float* y, int64_t y_stride) {
  if constexpr (kTokens > 0) {
    if (tokens == kTokens) return RunTokens<V, W, kTokens>(span, x, y, y_stride);
    RunRest<V, W, kTokens - 1>(span, x, tokens, y, y_stride);
  }
}

template <typename V, typename W>
inline void RunSpan(Span span, QuantisedRows x, int tokens, float* y, int64_t y_stride) {
  constexpr int kTokens = W::kBlock == 32 ? V::kTokens32 : V::kTokens256;
  span.ask_bytes /= (tokens + kTokens - 1) / kTokens;
  int t = 0;
  for (; t + kTokens <= tokens; t += kTokens) {
    RunTokens<V, W, kTokens>(span, x, y + t * y_stride, y_stride);
    span.ask += uintptr_t(span.ask_bytes);
    x.q += kTokens * x.q_stride;
    x.scale += kTokens * x.scale_stride;
    x.sum += kTokens * x.sum_stride;
  }
  if (t == tokens) return;
  RunRest<V, W, kTokens - 1>(span, x, tokens - t, y + t * y_stride, y_stride);
}

// MatrixKernel::run for a quantised type.
template <typename V, typename W>
void RunQuantised(const void* group, int rows, int64_t cols, const float*, int64_t,
                  const QuantisedRows* x, int tokens, float* y, int64_t y_stride) {
  // One tile of tokens reads weights as they come. Of several the first does, and memory would rest
  // while the others use what it brought: all of them ask for the next group.
  constexpr int kTokens = W::kBlock == 32 ? V::kTokens32 : V::kTokens256;
  const int64_t bytes = cols / W::kBlock * W::kBytes;
  const int64_t distance = tokens > kTokens && bytes > kPrefetchAhead ? bytes : kPrefetchAhead;
  const uintptr_t ask = reinterpret_cast<uintptr_t>(group) + uintptr_t(distance);
  const Span span = {static_cast<const uint8_t*>(group), rows, cols, false, ask, bytes};
  RunSpan<V, W>(span, *x, tokens, y, y_stride);
}

// MatrixKernel::run_many for a coded type: a few blocks at a time become bytes, which stay in the
// nearest cache while all tokens go over them.
template <typename V, typename W>
void RunWidened(const void* group, int rows, int64_t cols, const float*, int64_t,
                const QuantisedRows* quantised, int tokens, float* y, int64_t y_stride) {
  using Wide = WidenedWeights<V, W::kSub>;
  constexpr int kBlocks = 2;
  alignas(64) uint8_t panel[kBlocks * Wide::kBytes];
  const uint8_t* block = static_cast<const uint8_t*>(group);
  QuantisedRows x = *quantised;
  for (int64_t col = 0; col < cols; col += 256 * kBlocks) {
    const int64_t left = (cols - col) / 256;
    const int count = left < kBlocks ? static_cast<int>(left) : kBlocks;
    const uintptr_t ask = reinterpret_cast<uintptr_t>(block) + kPrefetchAhead;
    for (int i = 0; i < count; ++i, block += W::kBytes) {
      Widen<V, W>(block, panel + i * Wide::kBytes);
    }
    const Span span = {panel, rows, 256 * count, col > 0, ask, count * W::kBytes};
    RunSpan<V, Wide>(span, x, tokens, y, y_stride);
    x.q += 256 * count;
    x.scale += count;
    x.sum += 16 * count;
  }
}

template <typename V, typename W>
void SetQuantised(const char* isa, DType dtype, KernelTable* table) {
  MatrixKernel* kernel = &table->matrix[static_cast<int>(dtype)];
  UseInterleaved(dtype, kernel);
  kernel->isa = isa;
  kernel->run = RunQuantised<V, W>;
}

template <typename V, typename W>
void SetCoded(const char* isa, DType dtype, KernelTable* table) {
  SetQuantised<V, W>(isa, dtype, table);
  MatrixKernel* kernel = &table->matrix[static_cast<int>(dtype)];
  kernel->run_many = RunWidened<V, W>;
  kernel->many = 2 * V::kTokens256;
}

// Every quantised type.
template <typename V>
void OverlayQuantised(const char* isa, KernelTable* table) {
#define REPRISE_SET(name, ...) SetQuantised<V, Weights##name<V>>(isa, DType::k##name, table);
#define REPRISE_SET_CODED(name, ...) SetCoded<V, Weights##name<V>>(isa, DType::k##name, table);
  REPRISE_SMALL_TYPES(REPRISE_SET)
  REPRISE_SUPER_TYPES(REPRISE_SET)
  REPRISE_CODED_TYPES(REPRISE_SET_CODED)
#undef REPRISE_SET
#undef REPRISE_SET_CODED
}

}  // namespace
}  // namespace reprise::cpu
