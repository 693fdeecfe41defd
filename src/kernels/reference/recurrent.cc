// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/recurrent.h"

#include <cmath>

#include "kernels/reference/math.h"

namespace reprise::reference {

void ShortConv(const float* x, int64_t x_stride, int rows, const float* weight, const float* bias,
               int reach, int64_t weight_stride, int channels, bool silu, float* window,
               int64_t window_stride, float* y, int64_t y_stride) {
  for (int t = 0; t < rows; ++t) {
    for (int c = 0; c < channels; ++c) {
      const float current = x[t * x_stride + c];
      float sum = bias != nullptr ? bias[c] : 0.0f;
      for (int j = 0; j + 1 < reach; ++j) {
        float* past = window + j * window_stride + c;
        sum = std::fma(weight[j * weight_stride + c], *past, sum);
        *past = j + 2 < reach ? past[window_stride] : current;
      }
      sum = std::fma(weight[(reach - 1) * weight_stride + c], current, sum);
      y[t * y_stride + c] = silu ? Silu(sum) : sum;
    }
  }
}

void DeltaGates(const float* a, const float* b, const float* exp_a, const float* dt_bias, int64_t n,
                float* decay, float* beta) {
  for (int64_t i = 0; i < n; ++i) {
    decay[i] = Exp(-(exp_a[i] * Softplus(a[i] + dt_bias[i])));
    beta[i] = Sigmoid(b[i]);
  }
}

void GatedDelta(float* state, int64_t state_stride, int key_dim, int columns, const float* q,
                const float* k, int64_t qk_stride, const float* v, int64_t v_stride,
                const float* decay, const float* beta, int64_t gate_stride, int rows, float* y,
                int64_t y_stride, const float* /*ahead*/) {
  for (int t = 0; t < rows; ++t) {
    for (int c = 0; c < columns; ++c) {
      float* s = state + c;
      float read = 0;
      for (int i = 0; i < key_dim; ++i) {
        s[i * state_stride] *= decay[t * gate_stride];
        read = std::fma(s[i * state_stride], k[t * qk_stride + i], read);
      }
      const float delta = beta[t * gate_stride] * (v[t * v_stride + c] - read);
      float out = 0;
      for (int i = 0; i < key_dim; ++i) {
        s[i * state_stride] = std::fma(k[t * qk_stride + i], delta, s[i * state_stride]);
        out = std::fma(s[i * state_stride], q[t * qk_stride + i], out);
      }
      y[t * y_stride + c] = out;
    }
  }
}

}  // namespace reprise::reference
