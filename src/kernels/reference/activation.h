// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Element by element: entries of KernelTable of the same names. Outputs may be one of the inputs.
namespace reprise::reference {

void SwiGlu(const float* gate, const float* up, int64_t n, float* y);
void Silu(const float* x, int64_t n, float* y);
void SigmoidMul(const float* gate, const float* x, int64_t n, float* y);
void Add(const float* a, const float* b, int64_t n, float* y);
void Mul(const float* a, const float* b, int64_t n, float* y);
void Scale(const float* x, float factor, int64_t n, float* y);

float MultiplyAdds(int64_t n);

void F32ToF16(const float* x, int64_t n, uint16_t* y);
void F16ToF32(const uint16_t* x, int64_t n, float* y);
void BF16ToF32(const uint16_t* x, int64_t n, float* y);

}  // namespace reprise::reference
