// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/view.h"

// Element by element, with the bits of the CPU: the functions of kernels/reference/math.h in the
// order that kernels/cpu/table.h and scan_table.h state. Views have one shape; vectors are [cols].
// Outputs may be an input. Nothing is launched where a shape is empty.
namespace reprise::cuda {

void Fill(Stream stream, float value, const View& y);
void Add(Stream stream, const View& a, const View& b, const View& y);
void Mul(Stream stream, const View& a, const View& b, const View& y);
void Scale(Stream stream, const View& x, float factor, const View& y);
void ScaleAdd(Stream stream, const View& x, float factor, const View& y);  // y = fma(factor, x, y)
// y = fma(b - a, t, a).
void Lerp(Stream stream, const View& a, const View& b, const View& t, const View& y);

void SwiGlu(Stream stream, const View& gate, const View& up, const View& y);  // silu(gate) * up
void ClampedSwiGlu(Stream stream, const View& gate, const View& up, float alpha, float limit,
                   const View& y);
void GeGlu(Stream stream, const View& gate, const View& up, const View& y);  // gelu(gate) * up
void GeGluErf(Stream stream, const View& gate, const View& up, const View& y);
void SigmoidMul(Stream stream, const View& gate, const View& x, const View& y);
void Silu(Stream stream, const View& x, const View& y);
void Gelu(Stream stream, const View& x, const View& y);
void GeluErf(Stream stream, const View& x, const View& y);
// min(max(x, least), most); NaN stays NaN.
void Clamp(Stream stream, const View& x, float least, float most, const View& y);
void ReluSquared(Stream stream, const View& x, const View& y);
void Softcap(Stream stream, const View& x, float cap, const View& y);
// Of x + bias.
void Sigmoid(Stream stream, const View& x, const float* bias, const View& y);
void Softplus(Stream stream, const View& x, const float* bias, const View& y);

// Gates of recurrent layers.
// decay = exp(-(exp_a * softplus(a + dt_bias))), beta = sigmoid(b).
void DeltaGates(Stream stream, const View& a, const View& b, const float* exp_a,
                const float* dt_bias, const View& decay, const View& beta);
// decay = exp(-(rate * softplus(x + bias))).
void DecayGates(Stream stream, const View& x, const float* bias, const float* rate,
                const View& decay);
// dt = min(max(softplus(x + bias), low), high), decay = exp(dt * a).
void SsdGates(Stream stream, const View& x, const float* bias, const float* a, float low,
              float high, const View& dt, const View& decay);
// exp(-(0.606531 * sigmoid(x + bias))).
void RwkvDecay(Stream stream, const View& x, const float* bias, const View& y);

}  // namespace reprise::cuda
