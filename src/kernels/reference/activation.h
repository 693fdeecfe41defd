// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Element by element: entries of KernelTable of the same names. Outputs may be one of the inputs.
namespace reprise::reference {

void SwiGlu(const float* gate, const float* up, int64_t n, float* y);
void ClampedSwiGlu(const float* gate, const float* up, float alpha, float limit, int64_t n,
                   float* y);
void Silu(const float* x, int64_t n, float* y);
void SigmoidMul(const float* gate, const float* x, int64_t n, float* y);
void Add(const float* a, const float* b, int64_t n, float* y);
void Mul(const float* a, const float* b, int64_t n, float* y);
void Scale(const float* x, float factor, int64_t n, float* y);

void ScaleAdd(const float* x, float factor, int64_t n, float* y);
void GeGlu(const float* gate, const float* up, int64_t n, float* y);
void Gelu(const float* x, int64_t n, float* y);
void GeluErf(const float* x, int64_t n, float* y);
void ReluSquared(const float* x, int64_t n, float* y);
void Softcap(const float* x, float cap, int64_t n, float* y);
void Softplus(const float* x, const float* bias, int64_t n, float* y);
void Sigmoid(const float* x, const float* bias, int64_t n, float* y);
void Lerp(const float* a, const float* b, const float* t, int64_t n, float* y);
void RwkvDecay(const float* x, const float* bias, int64_t n, float* y);
void DotScaleAdd(const float* a, const float* b, const float* w, const float* v, int64_t n,
                 float* y);
void Exp(const float* x, int64_t n, float* y);
void Softmax(const float* x, int64_t n, float* y);

float MultiplyAdds(int64_t n);

// Ops of activation_ops.h on one row; no instruction set has an entry of its own for them.
void MixStreams(const float* x, const float* factors, int streams, int64_t width, float* y);
void AddToStreams(const float* x, const float* factors, int streams, int64_t width, float* y);

void F32ToF16(const float* x, int64_t n, uint16_t* y);
void F16ToF32(const uint16_t* x, int64_t n, float* y);
void BF16ToF32(const uint16_t* x, int64_t n, float* y);
void F32ToBF16(const float* x, int64_t n, uint16_t* y);

}  // namespace reprise::reference
