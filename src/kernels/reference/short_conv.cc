// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/short_conv.h"

#include <cmath>

#include "kernels/reference/math.h"

namespace reprise::reference {

void ShortConv(const float* x, int64_t x_stride, int rows, const float* weight, const float* bias,
               int taps, int64_t weight_stride, int channels, bool silu, float* window,
               int64_t window_stride, float* y, int64_t y_stride) {
  for (int t = 0; t < rows; ++t) {
    for (int c = 0; c < channels; ++c) {
      const float current = x[t * x_stride + c];
      float sum = bias != nullptr ? bias[c] : 0.0f;
      for (int j = 0; j + 1 < taps; ++j) {
        float* past = window + j * window_stride + c;
        sum = std::fma(weight[j * weight_stride + c], *past, sum);
        *past = j + 2 < taps ? past[window_stride] : current;
      }
      sum = std::fma(weight[(taps - 1) * weight_stride + c], current, sum);
      y[t * y_stride + c] = silu ? Silu(sum) : sum;
    }
  }
}

}  // namespace reprise::reference
