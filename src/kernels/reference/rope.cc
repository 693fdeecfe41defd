// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/rope.h"

#include <cmath>

#include "kernels/reference/math.h"

namespace reprise::reference {

void Rope(float* x, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = std::fma(a, cos[i], -(b * sin[i]));
    x[i + half] = std::fma(b, cos[i], a * sin[i]);
  }
}

void RopeAngles(float position, const float* inverse_frequency, int half, float* cos, float* sin) {
  for (int i = 0; i < half; ++i) {
    const float angle = position * inverse_frequency[i];
    const SinCosResult result = SinCos(angle);
    cos[i] = static_cast<float>(result.cos);
    sin[i] = static_cast<float>(result.sin);
  }
}

}  // namespace reprise::reference
