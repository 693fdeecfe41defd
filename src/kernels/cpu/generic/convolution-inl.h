// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/lanes-inl.h"
#include "kernels/cpu/generic/math-inl.h"

// Short convolution: entry short_conv of KernelTable.
namespace reprise::cpu {
namespace {

// Arguments travel by value: stores of vectors may alias anything in memory.
struct ConvArguments {
  const float* x;
  int64_t x_stride;
  const float* weight;
  const float* bias;
  int64_t weight_stride;
  bool silu;
  float* window;
  int64_t window_stride;
  float* y;
  int64_t y_stride;
};

// Rows [begin, end) of up to sixteen channels; the window stays in registers.
template <int kReach, bool kPartial>
inline void ConvRows(const ConvArguments a, int channel, int lanes, int begin, int end) {
  V16 weight[kReach];
  V16 past[kReach];  // the last is the current input
#pragma GCC unroll 8
  for (int j = 0; j < kReach; ++j) {
    weight[j] = LoadLanes<kPartial>(a.weight + j * a.weight_stride + channel, lanes);
  }
#pragma GCC unroll 8
  for (int j = 0; j + 1 < kReach; ++j) {
    past[j] = LoadLanes<kPartial>(a.window + j * a.window_stride + channel, lanes);
  }
  const V16 bias = a.bias != nullptr ? LoadLanes<kPartial>(a.bias + channel, lanes) : Zero();
  for (int t = begin; t < end; ++t) {
    past[kReach - 1] = LoadLanes<kPartial>(a.x + t * a.x_stride + channel, lanes);
    V16 sum = bias;
#pragma GCC unroll 8
    for (int j = 0; j < kReach; ++j) sum = Fma(weight[j], past[j], sum);
#pragma GCC unroll 8
    for (int j = 0; j + 1 < kReach; ++j) past[j] = past[j + 1];
    if (a.silu) sum = Silu(sum);
    StoreLanes<kPartial>(a.y + t * a.y_stride + channel, sum, lanes);
  }
#pragma GCC unroll 8
  for (int j = 0; j + 1 < kReach; ++j) {
    StoreLanes<kPartial>(a.window + j * a.window_stride + channel, past[j], lanes);
  }
}

template <int kReach>
void ConvReach(const ConvArguments& a, int rows, int channels) {
  // A few rows at a time: rows are often a power of two apart and share cache sets.
  constexpr int kRows = 8;
  for (int begin = 0; begin < rows; begin += kRows) {
    const int end = begin + kRows < rows ? begin + kRows : rows;
    int c = 0;
    for (; c + 16 <= channels; c += 16) ConvRows<kReach, false>(a, c, 16, begin, end);
    if (c < channels) ConvRows<kReach, true>(a, c, channels - c, begin, end);
  }
}

void ShortConv(const float* x, int64_t x_stride, int rows, const float* weight, const float* bias,
               int reach, int64_t weight_stride, int channels, bool silu, float* window,
               int64_t window_stride, float* y, int64_t y_stride) {
  const ConvArguments a = {x,    x_stride, weight,        bias, weight_stride,
                           silu, window,   window_stride, y,    y_stride};
  switch (reach) {
    case 1:
      return ConvReach<1>(a, rows, channels);
    case 2:
      return ConvReach<2>(a, rows, channels);
    case 3:
      return ConvReach<3>(a, rows, channels);
    case 4:
      return ConvReach<4>(a, rows, channels);
    default:
      break;
  }
  for (int t = 0; t < rows; ++t) {
    for (int c = 0; c < channels; c += 16) {
      const int n = channels - c < 16 ? channels - c : 16;
      const V16 current = LoadPartial(x + t * x_stride + c, n);
      V16 sum = bias != nullptr ? LoadPartial(bias + c, n) : Zero();
      for (int j = 0; j + 1 < reach; ++j) {
        float* past = window + j * window_stride + c;
        sum = Fma(LoadPartial(weight + j * weight_stride + c, n), LoadPartial(past, n), sum);
        StorePartial(past, j + 2 < reach ? LoadPartial(past + window_stride, n) : current, n);
      }
      sum = Fma(LoadPartial(weight + (reach - 1) * weight_stride + c, n), current, sum);
      StorePartial(y + t * y_stride + c, silu ? Silu(sum) : sum, n);
    }
  }
}

void OverlayConvolution(KernelTable* table) { table->short_conv = ShortConv; }

}  // namespace
}  // namespace reprise::cpu
