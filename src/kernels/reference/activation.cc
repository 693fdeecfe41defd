// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/activation.h"

#include <cmath>
#include <limits>

#include "kernels/reference/lanes.h"
#include "kernels/reference/math.h"
#include "tensor/half.h"

namespace reprise::reference {

void SwiGlu(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Silu(gate[i]) * up[i];
}

void ClampedSwiGlu(const float* gate, const float* up, float alpha, float limit, int64_t n,
                   float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = ClampedSwiGlu(gate[i], up[i], alpha, limit);
}

void Silu(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Silu(x[i]);
}

void SigmoidMul(const float* gate, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Sigmoid(gate[i]) * x[i];
}

void Add(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void Mul(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

void Scale(const float* x, float factor, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

void ScaleAdd(const float* x, float factor, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(factor, x[i], y[i]);
}

void GeGlu(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Gelu(gate[i]) * up[i];
}

void Gelu(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Gelu(x[i]);
}

void GeluErf(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = GeluErf(x[i]);
}

void ReluSquared(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const float r = x[i] < 0 ? 0 : x[i];
    y[i] = r * r;
  }
}

void Softcap(const float* x, float cap, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = cap * Tanh(x[i] / cap);
}

void Softplus(const float* x, const float* bias, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Softplus(x[i] + bias[i]);
}

void Sigmoid(const float* x, const float* bias, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Sigmoid(x[i] + bias[i]);
}

void Lerp(const float* a, const float* b, const float* t, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(b[i] - a[i], t[i], a[i]);
}

void RwkvDecay(const float* x, const float* bias, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Exp(-(0.606531f * Sigmoid(x[i] + bias[i])));
}

void DotScaleAdd(const float* a, const float* b, const float* w, const float* v, int64_t n,
                 float* y) {
  Lanes lanes;
  for (int64_t i = 0; i < n; ++i) {
    lanes.lane[i % 16] = std::fma(a[i] * b[i], w[i], lanes.lane[i % 16]);
  }
  const float s = lanes.Sum();
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(s, v[i], y[i]);
}

void Exp(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Exp(x[i]);
}

void Softmax(const float* x, int64_t n, float* y) {
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  Lanes lanes;
  for (int64_t i = 0; i < n; ++i) {
    y[i] = Exp(x[i] - max);
    lanes.lane[i % 16] += y[i];
  }
  const float r = 1.0f / lanes.Sum();
  for (int64_t i = 0; i < n; ++i) y[i] *= r;
}

float MultiplyAdds(int64_t n) {
  float sum[256];
  for (int i = 0; i < 256; ++i) sum[i] = static_cast<float>(i);
  for (int64_t k = 0; k < n; ++k) {
    for (float& s : sum) s = std::fma(s, 0.999f, 1e-4f);
  }
  float total = 0;
  for (const float s : sum) total += s;
  return total;
}

void MixStreams(const float* x, const float* factors, int streams, int64_t width, float* y) {
  for (int i = 0; i < streams; ++i) {
    const float* factor = factors + i * streams;
    float* out = y + i * width;
    for (int64_t c = 0; c < width; ++c) out[c] = factor[0] * x[c];
    for (int j = 1; j < streams; ++j) {
      const float* in = x + j * width;
      for (int64_t c = 0; c < width; ++c) out[c] += factor[j] * in[c];
    }
    const float* own = x + i * width;
    for (int64_t c = 0; c < width; ++c) out[c] += own[c];
  }
}

void AddToStreams(const float* x, const float* factors, int streams, int64_t width, float* y) {
  for (int i = 0; i < streams; ++i) {
    const float factor = factors[i] + 1.0f;
    float* out = y + i * width;
    for (int64_t c = 0; c < width; ++c) out[c] += factor * x[c];
  }
}

void F32ToF16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = reprise::F32ToF16(x[i]);
}

void F16ToF32(const uint16_t* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = reprise::F16ToF32(x[i]);
}

void BF16ToF32(const uint16_t* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = reprise::BF16ToF32(x[i]);
}

void F32ToBF16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = reprise::F32ToBF16(x[i]);
}

}  // namespace reprise::reference
