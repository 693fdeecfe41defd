// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512_vnni/matrix_panels.h"

#include <cstdint>

#include "kernels/cpu/avx512_vnni/integer-inl.h"
#include "kernels/cpu/generic/quantised-inl.h"
#include "kernels/cpu/generic/weights256-inl.h"
#include "kernels/cpu/interleave.h"
#include "kernels/cpu/table.h"

// k-quants for many tokens: a few blocks of a group become bytes in a panel that stays in the
// nearest cache while all tokens go over it. What takes a weight apart is done once, not once for
// each tile of tokens.
namespace reprise::cpu {
namespace {

using V = IntegerVnni;

// A block of a type with minima that has become bytes: d and dmin as they were, bytes as [64
// steps][32 rows][4], scales as [sub-block][32 rows], minima as [8][32 rows] as MinPair tells them.
template <int kSubValues>
struct PanelWeights {
  using Int = V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 1;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = true;
  static constexpr int kOffset = 0;
  static constexpr int kChunks = 4, kSubs = 64 / kSubValues, kSub = kSubValues;
  static constexpr int kSteps = 2 * kUnit2;
  static constexpr int kScales = kSteps + 64 * kUnit4;
  static constexpr int kMinPairs = kScales + 256 / kSub * kUnit4;
  static constexpr int kBytes = kMinPairs + 8 * kUnit4;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    const int step = (chunk * kSubs + sub) * (kSub / 4) + i;
    return V::Load(block + kSteps + step * kUnit4 + row * 4);
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return V::Load(block + kScales + s * kUnit4 + row * 4);
  }
  static Int MinPair(const uint8_t* block, int row, int j) {
    return V::Load(block + kMinPairs + j * kUnit4 + row * 4);
  }
};

template <typename W>
void MakePanel(const uint8_t* block, uint8_t* out) {
  using Panel = PanelWeights<W::kSub>;
  static_assert(W::kMinimum && !W::kSigned && W::kOffset == 0);
  __builtin_memcpy(out, block, 2 * kUnit2);
  for (int row = 0; row < 32; row += V::kLanes) {
    for (int chunk = 0; chunk < W::kChunks; ++chunk) {
#pragma GCC unroll 8
      for (int sub = 0; sub < W::kSubs; ++sub) {
        const int s = chunk * W::kSubs + sub;
        V::Store(out + Panel::kScales + s * kUnit4 + row * 4, W::Scale(block, row, s));
        for (int i = 0; i < W::kSub / 4; ++i) {
          V::Store(out + Panel::kSteps + (s * W::kSub / 4 + i) * kUnit4 + row * 4,
                   W::Step(block, row, chunk, sub, i));
        }
      }
    }
    for (int j = 0; j < 8; ++j) {
      V::Store(out + Panel::kMinPairs + j * kUnit4 + row * 4, W::MinPair(block, row, j));
    }
  }
}

// MatrixKernel::run_many of a type with minima.
template <typename W>
void RunPanels(const void* group, int rows, int64_t cols, const float*, int64_t,
               const QuantisedRows* quantised, int tokens, float* y, int64_t y_stride) {
  using Panel = PanelWeights<W::kSub>;
  constexpr int kBlocks = 2;
  alignas(64) uint8_t panel[kBlocks * Panel::kBytes];
  const uint8_t* block = static_cast<const uint8_t*>(group);
  QuantisedRows x = *quantised;
  for (int64_t col = 0; col < cols; col += 256 * kBlocks) {
    const int64_t left = (cols - col) / 256;
    const int count = left < kBlocks ? static_cast<int>(left) : kBlocks;
    const uintptr_t ask = reinterpret_cast<uintptr_t>(block) + kPrefetchAhead;
    for (int i = 0; i < count; ++i, block += W::kBytes) {
      MakePanel<W>(block, panel + i * Panel::kBytes);
    }
    const Span span = {panel, rows, 256 * count, col > 0, ask, count * W::kBytes};
    RunSpan<V, Panel>(span, x, tokens, y, y_stride);
    x.q += 256 * count;
    x.scale += count;
    x.sum += 16 * count;
  }
}

template <typename W>
void SetPanels(DType dtype, KernelTable* table) {
  MatrixKernel* kernel = &table->matrix[static_cast<int>(dtype)];
  if constexpr (W::kMinimum) {
    kernel->run_many = RunPanels<W>;
  } else {
    kernel->run_many = RunWidened<V, W>;
  }
  kernel->many = 2 * V::kTokens256;
}

}  // namespace

void OverlayVnniPanels(KernelTable* table) {
  SetPanels<WeightsQ2_K<V>>(DType::kQ2_K, table);
  SetPanels<WeightsQ3_K<V>>(DType::kQ3_K, table);
  SetPanels<WeightsQ4_K<V>>(DType::kQ4_K, table);
  SetPanels<WeightsQ5_K<V>>(DType::kQ5_K, table);
  SetPanels<WeightsQ6_K<V>>(DType::kQ6_K, table);
}

}  // namespace reprise::cpu
