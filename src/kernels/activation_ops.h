// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/ops.h"

// Row ops beside those of ops.h, for families that need them. Outputs may be an input unless a
// comment says otherwise.
namespace reprise {

void Mul(const OpContext& context, const ConstRows& a, const ConstRows& b, const Rows& y);
void Scale(const OpContext& context, const ConstRows& x, float factor, const Rows& y);
void Silu(const OpContext& context, const ConstRows& x, const Rows& y);
void Gelu(const OpContext& context, const ConstRows& x, const Rows& y);  // tanh form
// (0.5 * x) * (1 + erf(x / sqrt 2)). REQUIRES: the backend sees (Backend::sees).
void GeluErf(const OpContext& context, const ConstRows& x, const Rows& y);
// min(max(x, least), most); what is no number stays that. REQUIRES: the backend sees.
void Clamp(const OpContext& context, const ConstRows& x, float least, float most, const Rows& y);
void GeGlu(const OpContext& context, const ConstRows& gate, const ConstRows& up, const Rows& y);
// GeGlu with the form of GeluErf. REQUIRES: y is not up.
void GeGluErf(const OpContext& context, const ConstRows& gate, const ConstRows& up, const Rows& y);
// y = (u + 1) * (g * sigmoid(alpha * g)) with g = gate, but at most limit, and u = up, but within
// [-limit, limit]; NaN stays NaN.
void ClampedSwiGlu(const OpContext& context, const ConstRows& gate, const ConstRows& up,
                   float alpha, float limit, const Rows& y);
void ReluSquared(const OpContext& context, const ConstRows& x, const Rows& y);
void Softcap(const OpContext& context, const ConstRows& x, float cap, const Rows& y);
// Of x + bias; bias: [cols].
void Sigmoid(const OpContext& context, const ConstRows& x, ConstFloats bias, const Rows& y);
void Softplus(const OpContext& context, const ConstRows& x, ConstFloats bias, const Rows& y);
// y = fma(b - a, t, a), element by element.
void Lerp(const OpContext& context, const ConstRows& a, const ConstRows& b, const ConstRows& t,
          const Rows& y);

// Layer norm of each of `groups` equal parts of every row; weight and bias: [cols], each part has
// its own (groups = 1: layer norm; = heads: group norm). bias may be null.
void LayerNorm(const OpContext& context, const ConstRows& x, ConstFloats weight, ConstFloats bias,
               int groups, float eps, const Rows& y);
// RMS norm of each part with its own piece of weight [cols].
void GroupRmsNorm(const OpContext& context, const ConstRows& x, ConstFloats weight, int groups,
                  float eps, const Rows& y);
// y = rms_norm(x * silu(gate)) per part, weight [cols]: the gated norm of Mamba-2. REQUIRES: y is
// not gate.
void GateRmsNorm(const OpContext& context, const ConstRows& x, const ConstRows& gate,
                 ConstFloats weight, int groups, float eps, const Rows& y);

// y = (x * rms(like)) / sqrt(max(mean of x^2, least)), row by row.
void MatchMagnitude(const OpContext& context, const ConstRows& x, const ConstRows& like,
                    float least, const Rows& y);
// y = max(x - (mean + factor * deviation), 0) with the mean and the deviation of the row; NaN stays
// NaN.
void CutBelow(const OpContext& context, const ConstRows& x, float factor, const Rows& y);
// y = x * factors[position / period], by the row's position in the text.
void ScaleByPosition(const OpContext& context, const StepLayout& step, ConstFloats factors,
                     int period, const ConstRows& x, const Rows& y);

// Several streams in a row, of one width and one behind another: [rows, streams * width].
inline constexpr int kMostStreams = 8;
// Stream i of y = (((f[i][0] * stream 0 of x) + f[i][1] * stream 1 of x) + ...) + stream i of x;
// f: [rows, streams^2]. REQUIRES: y is not x.
void MixStreams(const OpContext& context, const ConstRows& x, const ConstRows& factors, int streams,
                const Rows& y);
// Stream i of y += (f[i] + 1) * x; f: [rows, streams]. REQUIRES: x is no stream of y.
void AddToStreams(const OpContext& context, const ConstRows& x, const ConstRows& factors,
                  const Rows& y);

// RWKV-7: decay w = exp(-0.606531 * sigmoid(x + bias)).
void RwkvDecay(const OpContext& context, const ConstRows& x, ConstFloats bias, const Rows& y);
// RWKV-7: y += (sum over the head of r * k * weight) * v, per head; weight: [cols].
void RwkvBonus(const OpContext& context, const ConstRows& r, const ConstRows& k, ConstFloats weight,
               const ConstRows& v, int heads, const Rows& y);

}  // namespace reprise
