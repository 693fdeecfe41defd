// SPDX-License-Identifier: Apache-2.0
#include "kernels/joint_ops.h"

#include <cmath>

#include "base/check.h"
#include "kernels/front/op_scope.h"

namespace reprise {
namespace {

bool DeltaAsOne(const OpContext& context, const StepLayout& step, const GatedDeltaLayer& layer,
                const ConstRows& qkv, const Rows& a, const Rows& b, const ConstRows& z,
                const Rows& y) {
  const OpScope scope(context, "gated delta layer");
  return !scope.runs() ||
         context.backend->GatedDeltaMix(*context.scratch, step, layer, qkv, a, b, z, y);
}

bool HeadsAsOne(const OpContext& context, const StepLayout& step, const KvPlace& place,
                const KvShape& shape, const HeadInputs& inputs, const Rows& q, const ConstRows& k,
                const ConstRows& v) {
  const OpScope scope(context, "store heads");
  return !scope.runs() || context.backend->StoreHeads(step, place, shape, inputs, q, k, v);
}

bool AttendAsOne(const OpContext& context, const StepLayout& step, const KvPlace& place,
                 const KvShape& shape, const AttentionParams& params, const ConstRows& gate,
                 const ConstRows& q, const Rows& out) {
  const OpScope scope(context, "attend, gated");
  return !scope.runs() || context.backend->AttendGated(*context.scratch, step, place, shape, params,
                                                       gate, q, out);
}

}  // namespace

void GatedDeltaMix(const OpContext& context, const StepLayout& step, const GatedDeltaLayer& layer,
                   const ConstRows& qkv, const Rows& a, const Rows& b, const ConstRows& z,
                   const Rows& y) {
  const GatedDeltaShape& shape = layer.shape;
  const int64_t keys = int64_t{shape.key_heads} * shape.key_dim;
  const int64_t values = int64_t{shape.value_heads} * shape.value_dim;
  CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
  CHECK(qkv.cols == 2 * keys + values && a.cols == shape.value_heads && SameShape(a, b));
  CHECK(y.cols == values && SameShape(z, y) && a.stride == b.stride);
  CHECK(qkv.rows == step.rows() && a.rows == qkv.rows && y.rows == qkv.rows);
  if (qkv.rows == 0 || DeltaAsOne(context, step, layer, qkv, a, b, z, y)) return;
  const ScratchScope scope(*context.scratch);
  const Rows mixed = {context.scratch->Floats(size_t(qkv.rows * qkv.cols)), qkv.rows, qkv.cols,
                      qkv.cols};
  ShortConv(context, step, layer.conv_offset, layer.conv, nullptr, layer.reach, true, qkv, mixed);
  const Rows q = Columns(mixed, 0, keys);
  const Rows k = Columns(mixed, keys, keys);
  const Rows v = Columns(mixed, 2 * keys, values);
  L2Norm(context, q, shape.key_heads, layer.l2_eps, 1 / std::sqrt(float(shape.key_dim)), q);
  L2Norm(context, k, shape.key_heads, layer.l2_eps, 1, k);
  GatedDeltaGates(context, a, b, layer.exp_a, layer.dt_bias, a, b);
  GatedDelta(context, step, layer.delta_offset, shape, q, k, v, a, b, y);
  RmsNormGated(context, y, z, layer.norm, shape.value_heads, layer.norm_eps, y);
}

void StoreHeads(const OpContext& context, const StepLayout& step, const KvPlace& place,
                const KvShape& shape, const HeadInputs& inputs, const Rows& q, const Rows& k,
                const ConstRows& v) {
  CHECK(inputs.q_heads > 0 && q.cols == int64_t{inputs.q_heads} * shape.head_dim);
  CHECK(k.cols == int64_t{shape.kv_heads} * shape.head_dim && !shape.value_in_key);
  CHECK(v.cols == int64_t{shape.kv_heads} * shape.value_dim);
  CHECK(q.rows == step.rows() && k.rows == q.rows && v.rows == q.rows);
  CHECK(!inputs.q_norm == !inputs.k_norm && 2 * inputs.rope.half <= shape.head_dim);
  if (q.rows == 0 || HeadsAsOne(context, step, place, shape, inputs, q, k, v)) return;
  if (inputs.q_norm) {
    RmsNorm(context, q, inputs.q_norm, inputs.q_heads, inputs.eps, q);
    RmsNorm(context, k, inputs.k_norm, shape.kv_heads, inputs.eps, k);
  }
  if (inputs.rope.half > 0) {
    Rope(context, inputs.rope, inputs.q_heads, q);
    Rope(context, inputs.rope, shape.kv_heads, k);
  }
  StoreKv(context, step, place, shape, k, v);
}

void AttendGated(const OpContext& context, const StepLayout& step, const KvPlace& place,
                 const KvShape& shape, const AttentionParams& params, const ConstRows& gate,
                 const ConstRows& q, const Rows& out) {
  CHECK(params.q_heads % shape.kv_heads == 0 && out.rows == q.rows && SameShape(gate, out));
  CHECK(q.cols == int64_t{params.q_heads} * shape.head_dim && q.rows == step.rows());
  CHECK(out.cols == int64_t{params.q_heads} * shape.value_dim);
  if (q.rows == 0 || AttendAsOne(context, step, place, shape, params, gate, q, out)) return;
  Attend(context, step, place, shape, params, q, out);
  SigmoidMul(context, gate, out, out);
}

}  // namespace reprise
