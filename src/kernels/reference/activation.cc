// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/activation.h"

#include <cmath>

#include "kernels/reference/math.h"
#include "tensor/half.h"

namespace reprise::reference {

void SwiGlu(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Silu(gate[i]) * up[i];
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

void F32ToF16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = reprise::F32ToF16(x[i]);
}

void F16ToF32(const uint16_t* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = reprise::F16ToF32(x[i]);
}

void BF16ToF32(const uint16_t* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = reprise::BF16ToF32(x[i]);
}

}  // namespace reprise::reference
