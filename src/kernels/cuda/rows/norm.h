// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/view.h"

// Norms and the other ops that reduce a row, or each of its `groups` equal parts, with the bits of
// the CPU: 16 virtual lanes and their tree (kernels/cpu/table.h), one thread a lane. Long rows are
// brought into shared memory by a whole block first. y may be x; it may not be another operand
// unless a comment says so.
namespace reprise::cuda {

// weight: [cols / groups], the same for every part.
void RmsNorm(Stream stream, const View& x, const float* weight, int groups, float eps,
             const View& y);
// sum = a + b, y = rms_norm(sum), over whole rows: an Add and an RmsNorm in one pass. sum may be a
// or b.
void AddRmsNorm(Stream stream, const View& a, const View& b, const float* weight, float eps,
                const View& sum, const View& y);
// y = rms_norm(x) * silu(gate); weight as in RmsNorm.
void RmsNormGated(Stream stream, const View& x, const View& gate, const float* weight, int groups,
                  float eps, const View& y);
// y = x / sqrt(sum x^2 + eps) * scale.
void L2Norm(Stream stream, const View& x, int groups, float eps, float scale, const View& y);

// weight, bias: [cols], every part has its own piece.
void GroupRmsNorm(Stream stream, const View& x, const float* weight, int groups, float eps,
                  const View& y);
// y = rms_norm(x * silu(gate)).
void GateRmsNorm(Stream stream, const View& x, const View& gate, const float* weight, int groups,
                 float eps, const View& y);
// bias may be null.
void LayerNorm(Stream stream, const View& x, const float* weight, const float* bias, int groups,
               float eps, const View& y);

// y = max(x - (mean + factor * deviation), 0) over whole rows; NaN stays NaN.
void CutBelow(Stream stream, const View& x, float factor, const View& y);

void Softmax(Stream stream, const View& x, const View& y);
// RWKV-7: y += (sum over the head of r * k * weight) * v; weight: [cols]. No operand may be y.
void RwkvBonus(Stream stream, const View& r, const View& k, const float* weight, const View& v,
               int heads, const View& y);

}  // namespace reprise::cuda
