// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_ops.h"

#include "base/check.h"
#include "kernels/front/op_scope.h"

namespace reprise {

void Mul(const OpContext& context, const ConstRows& a, const ConstRows& b, const Rows& y) {
  CHECK(SameShape(a, y) && SameShape(b, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "mul");
  context.backend->Mul(a, b, y);
}

void Scale(const OpContext& context, const ConstRows& x, float factor, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "scale");
  context.backend->Scale(x, factor, y);
}

void Silu(const OpContext& context, const ConstRows& x, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "silu");
  context.backend->Silu(x, y);
}

void Gelu(const OpContext& context, const ConstRows& x, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "gelu");
  context.backend->Gelu(x, y);
}

void GeGlu(const OpContext& context, const ConstRows& gate, const ConstRows& up, const Rows& y) {
  CHECK(SameShape(gate, y) && SameShape(up, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "geglu");
  context.backend->GeGlu(gate, up, y);
}

void ReluSquared(const OpContext& context, const ConstRows& x, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "relu squared");
  context.backend->ReluSquared(x, y);
}

void Softcap(const OpContext& context, const ConstRows& x, float cap, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "softcap");
  context.backend->Softcap(x, cap, y);
}

void Sigmoid(const OpContext& context, const ConstRows& x, ConstFloats bias, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "sigmoid");
  context.backend->Sigmoid(x, bias, y);
}

void Softplus(const OpContext& context, const ConstRows& x, ConstFloats bias, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "softplus");
  context.backend->Softplus(x, bias, y);
}

void Lerp(const OpContext& context, const ConstRows& a, const ConstRows& b, const ConstRows& t,
          const Rows& y) {
  CHECK(SameShape(a, y) && SameShape(b, y) && SameShape(t, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "lerp");
  context.backend->Lerp(a, b, t, y);
}

void LayerNorm(const OpContext& context, const ConstRows& x, ConstFloats weight, ConstFloats bias,
               int groups, float eps, const Rows& y) {
  CHECK(SameShape(x, y) && groups > 0 && x.cols % groups == 0);
  if (y.rows == 0) return;
  const OpScope scope(context, "layer norm");
  context.backend->LayerNorm(x, weight, bias, groups, eps, y);
}

void GroupRmsNorm(const OpContext& context, const ConstRows& x, ConstFloats weight, int groups,
                  float eps, const Rows& y) {
  CHECK(SameShape(x, y) && groups > 0 && x.cols % groups == 0);
  if (y.rows == 0) return;
  const OpScope scope(context, "group rms norm");
  context.backend->GroupRmsNorm(x, weight, groups, eps, y);
}

void GateRmsNorm(const OpContext& context, const ConstRows& x, const ConstRows& gate,
                 ConstFloats weight, int groups, float eps, const Rows& y) {
  CHECK(SameShape(x, y) && SameShape(gate, y) && groups > 0 && x.cols % groups == 0);
  CHECK(!(gate.data == y.data));
  if (y.rows == 0) return;
  const OpScope scope(context, "gate rms norm");
  context.backend->GateRmsNorm(x, gate, weight, groups, eps, y);
}

void RwkvDecay(const OpContext& context, const ConstRows& x, ConstFloats bias, const Rows& y) {
  CHECK(SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "rwkv decay");
  context.backend->RwkvDecay(x, bias, y);
}

void RwkvBonus(const OpContext& context, const ConstRows& r, const ConstRows& k, ConstFloats weight,
               const ConstRows& v, int heads, const Rows& y) {
  CHECK(SameShape(r, y) && SameShape(k, y) && SameShape(v, y) && heads > 0 && y.cols % heads == 0);
  if (y.rows == 0) return;
  const OpScope scope(context, "rwkv bonus");
  context.backend->RwkvBonus(r, k, weight, v, heads, y);
}

}  // namespace reprise
