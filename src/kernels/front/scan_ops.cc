// SPDX-License-Identifier: Apache-2.0
#include "kernels/scan_ops.h"

#include "base/check.h"
#include "kernels/front/op_scope.h"

namespace reprise {

void KeyDecayDelta(const OpContext& context, const StepLayout& step, size_t state_offset, int heads,
                   const ConstRows& q, const ConstRows& k, const ConstRows& v,
                   const ConstRows& decay, const ConstRows& beta, const Rows& y) {
  CHECK(q.rows == step.rows() && heads > 0 && q.cols % heads == 0);
  CHECK(SameShape(k, q) && SameShape(decay, q));
  CHECK(v.cols % heads == 0 && SameShape(y, v) && v.rows == q.rows && beta.cols == heads);
  const OpScope scope(context, "key decay delta");
  if (!scope.runs()) return;
  context.backend->KeyDecayDelta(step, state_offset, heads, q, k, v, decay, beta, y);
}

void DecayGates(const OpContext& context, const ConstRows& x, ConstFloats bias, ConstFloats rate,
                const Rows& decay) {
  CHECK(SameShape(x, decay));
  if (x.rows == 0) return;
  const OpScope scope(context, "decay gates");
  if (scope.runs()) context.backend->DecayGates(x, bias, rate, decay);
}

void Ssd(const OpContext& context, const StepLayout& step, size_t state_offset,
         const SsdShape& shape, const ConstRows& x, const ConstRows& b, const ConstRows& c,
         const ConstRows& dt, const ConstRows& decay, ConstFloats skip, const Rows& y) {
  CHECK(x.rows == step.rows() && shape.groups > 0 && shape.heads % shape.groups == 0);
  CHECK(b.cols == int64_t{shape.groups} * shape.state_dim && c.cols == b.cols);
  CHECK(x.cols == int64_t{shape.heads} * shape.head_dim && SameShape(y, x));
  CHECK(dt.cols == shape.heads && decay.cols == shape.heads);
  const OpScope scope(context, "ssd");
  if (scope.runs()) context.backend->Ssd(step, state_offset, shape, x, b, c, dt, decay, skip, y);
}

void SsdGates(const OpContext& context, const ConstRows& x, ConstFloats bias, ConstFloats a,
              float low, float high, const Rows& dt, const Rows& decay) {
  CHECK(SameShape(x, dt) && SameShape(x, decay));
  if (x.rows == 0) return;
  const OpScope scope(context, "ssd gates");
  if (scope.runs()) context.backend->SsdGates(x, bias, a, low, high, dt, decay);
}

void SelectiveScan(const OpContext& context, const StepLayout& step, size_t state_offset,
                   ConstFloats a, ConstFloats skip, const ConstRows& x, const ConstRows& dt,
                   const ConstRows& b, const ConstRows& c, const Rows& y) {
  CHECK(x.rows == step.rows() && SameShape(x, y) && SameShape(dt, y) && SameShape(b, c));
  const OpScope scope(context, "selective scan");
  if (scope.runs()) context.backend->SelectiveScan(step, state_offset, a, skip, x, dt, b, c, y);
}

void Wkv7(const OpContext& context, const StepLayout& step, size_t state_offset, int heads,
          const Wkv7Operands& operands, const Rows& y) {
  for (const ConstRows* rows :
       {&operands.r, &operands.w, &operands.k, &operands.v, &operands.a, &operands.b}) {
    CHECK(SameShape(*rows, y));
  }
  CHECK(y.rows == step.rows() && heads > 0 && y.cols % heads == 0);
  const OpScope scope(context, "wkv7");
  if (scope.runs()) context.backend->Wkv7(step, state_offset, heads, operands, y);
}

void TokenShift(const OpContext& context, const StepLayout& step, size_t state_offset,
                const ConstRows& x, std::span<const ConstFloats> mix, std::span<const Rows> outs) {
  CHECK(x.rows == step.rows() && mix.size() == outs.size());
  for (const Rows& out : outs) CHECK(SameShape(out, x) && !(out.data == x.data));
  const OpScope scope(context, "token shift");
  if (scope.runs()) context.backend->TokenShift(step, state_offset, x, mix, outs);
}

void RgLru(const OpContext& context, const StepLayout& step, size_t state_offset, ConstFloats rate,
           const ConstRows& x, const ConstRows& r, const ConstRows& i, const Rows& y) {
  CHECK(x.rows == step.rows() && SameShape(x, y) && SameShape(r, y) && SameShape(i, y));
  const OpScope scope(context, "rg lru");
  if (scope.runs()) context.backend->RgLru(step, state_offset, rate, x, r, i, y);
}

}  // namespace reprise
