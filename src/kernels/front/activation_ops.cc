// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_ops.h"

#include "base/check.h"
#include "kernels/front/op_scope.h"

namespace reprise {

void Mul(const OpContext& context, const ConstRows& a, const ConstRows& b, const Rows& y) {
  CHECK(SameShape(a, y) && SameShape(b, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "mul");
  if (scope.runs()) context.backend->Mul(a, b, y);
}

void Scale(const OpContext& context, const ConstRows& x, float factor, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "scale");
  if (scope.runs()) context.backend->Scale(x, factor, y);
}

void Silu(const OpContext& context, const ConstRows& x, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "silu");
  if (scope.runs()) context.backend->Silu(x, y);
}

void Gelu(const OpContext& context, const ConstRows& x, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "gelu");
  if (scope.runs()) context.backend->Gelu(x, y);
}

void GeluErf(const OpContext& context, const ConstRows& x, const Rows& y) {
  CHECK(SameShape(x, y) && context.backend->sees());
  if (y.rows == 0) return;
  const OpScope scope(context, "gelu erf");
  if (scope.runs()) context.backend->GeluErf(x, y);
}

void Clamp(const OpContext& context, const ConstRows& x, float least, float most, const Rows& y) {
  CHECK(SameShape(x, y) && context.backend->sees());
  if (y.rows == 0) return;
  const OpScope scope(context, "clamp");
  if (scope.runs()) context.backend->Clamp(x, least, most, y);
}

void GeGlu(const OpContext& context, const ConstRows& gate, const ConstRows& up, const Rows& y) {
  CHECK(SameShape(gate, y) && SameShape(up, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "geglu");
  if (scope.runs()) context.backend->GeGlu(gate, up, y);
}

void GeGluErf(const OpContext& context, const ConstRows& gate, const ConstRows& up, const Rows& y) {
  CHECK(SameShape(gate, y) && SameShape(up, y) && !(up.data == y.data));
  if (y.rows == 0) return;
  const OpScope scope(context, "geglu erf");
  if (scope.runs()) context.backend->GeGluErf(gate, up, y);
}

void ClampedSwiGlu(const OpContext& context, const ConstRows& gate, const ConstRows& up,
                   float alpha, float limit, const Rows& y) {
  CHECK(SameShape(gate, y) && SameShape(up, y) && limit > 0);
  if (y.rows == 0) return;
  const OpScope scope(context, "clamped swiglu");
  if (scope.runs()) context.backend->ClampedSwiGlu(gate, up, alpha, limit, y);
}

void ReluSquared(const OpContext& context, const ConstRows& x, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "relu squared");
  if (scope.runs()) context.backend->ReluSquared(x, y);
}

void Softcap(const OpContext& context, const ConstRows& x, float cap, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "softcap");
  if (scope.runs()) context.backend->Softcap(x, cap, y);
}

void Sigmoid(const OpContext& context, const ConstRows& x, ConstFloats bias, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "sigmoid");
  if (scope.runs()) context.backend->Sigmoid(x, bias, y);
}

void Softplus(const OpContext& context, const ConstRows& x, ConstFloats bias, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "softplus");
  if (scope.runs()) context.backend->Softplus(x, bias, y);
}

void Lerp(const OpContext& context, const ConstRows& a, const ConstRows& b, const ConstRows& t,
          const Rows& y) {
  CHECK(SameShape(a, y) && SameShape(b, y) && SameShape(t, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "lerp");
  if (scope.runs()) context.backend->Lerp(a, b, t, y);
}

void LayerNorm(const OpContext& context, const ConstRows& x, ConstFloats weight, ConstFloats bias,
               int groups, float eps, const Rows& y) {
  CHECK(SameShape(x, y) && groups > 0 && x.cols % groups == 0);
  if (y.rows == 0) return;
  const OpScope scope(context, "layer norm");
  if (scope.runs()) context.backend->LayerNorm(x, weight, bias, groups, eps, y);
}

void GroupRmsNorm(const OpContext& context, const ConstRows& x, ConstFloats weight, int groups,
                  float eps, const Rows& y) {
  CHECK(SameShape(x, y) && groups > 0 && x.cols % groups == 0);
  if (y.rows == 0) return;
  const OpScope scope(context, "group rms norm");
  if (scope.runs()) context.backend->GroupRmsNorm(x, weight, groups, eps, y);
}

void GateRmsNorm(const OpContext& context, const ConstRows& x, const ConstRows& gate,
                 ConstFloats weight, int groups, float eps, const Rows& y) {
  CHECK(SameShape(x, y) && SameShape(gate, y) && groups > 0 && x.cols % groups == 0);
  CHECK(!(gate.data == y.data));
  if (y.rows == 0) return;
  const OpScope scope(context, "gate rms norm");
  if (scope.runs()) context.backend->GateRmsNorm(x, gate, weight, groups, eps, y);
}

void MatchMagnitude(const OpContext& context, const ConstRows& x, const ConstRows& like,
                    float least, const Rows& y) {
  CHECK(SameShape(x, y) && SameShape(like, y) && least > 0);
  if (y.rows == 0) return;
  const OpScope scope(context, "match magnitude");
  if (scope.runs()) context.backend->MatchMagnitude(x, like, least, y);
}

void CutBelow(const OpContext& context, const ConstRows& x, float factor, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "cut below");
  if (scope.runs()) context.backend->CutBelow(x, factor, y);
}

void ScaleByPosition(const OpContext& context, const StepLayout& step, ConstFloats factors,
                     int period, const ConstRows& x, const Rows& y) {
  CHECK(SameShape(x, y) && y.rows == step.rows() && period > 0);
  if (y.rows == 0) return;
  const OpScope scope(context, "scale by position");
  if (scope.runs()) context.backend->ScaleByPosition(step, factors, period, x, y);
}

void MixStreams(const OpContext& context, const ConstRows& x, const ConstRows& factors, int streams,
                const Rows& y) {
  CHECK(SameShape(x, y) && streams > 0 && streams <= kMostStreams && x.cols % streams == 0);
  CHECK(factors.rows == x.rows && factors.cols == int64_t{streams} * streams);
  CHECK(!(x.data == y.data));
  if (y.rows == 0) return;
  const OpScope scope(context, "mix streams");
  if (scope.runs()) context.backend->MixStreams(x, factors, streams, y);
}

void AddToStreams(const OpContext& context, const ConstRows& x, const ConstRows& factors,
                  const Rows& y) {
  CHECK(x.rows == y.rows && factors.rows == y.rows && y.cols == x.cols * factors.cols);
  if (y.rows == 0) return;
  const OpScope scope(context, "add to streams");
  if (scope.runs()) context.backend->AddToStreams(x, factors, y);
}

void RwkvDecay(const OpContext& context, const ConstRows& x, ConstFloats bias, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "rwkv decay");
  if (scope.runs()) context.backend->RwkvDecay(x, bias, y);
}

void RwkvBonus(const OpContext& context, const ConstRows& r, const ConstRows& k, ConstFloats weight,
               const ConstRows& v, int heads, const Rows& y) {
  CHECK(SameShape(r, y) && SameShape(k, y) && SameShape(v, y) && heads > 0 && y.cols % heads == 0);
  if (y.rows == 0) return;
  const OpScope scope(context, "rwkv bonus");
  if (scope.runs()) context.backend->RwkvBonus(r, k, weight, v, heads, y);
}

}  // namespace reprise
