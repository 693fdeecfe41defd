// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/front/op_scope.h"

namespace reprise {
namespace {

void CheckProjection(const ConstRows& x, const Projection& projection) {
  const Matrix& weight = *projection.weight;
  CHECK(weight.count() == 1 && weight.cols() == x.cols && projection.out.cols == weight.rows());
  CHECK(projection.out.rows == x.rows);
}

bool Divides(int groups, const ConstRows& x) { return groups > 0 && x.cols % groups == 0; }

void CheckKv(const OpContext& context, const StepLayout& step, const KvShape& shape,
             const ConstRows& x) {
  CHECK(x.rows == step.rows() && shape.kv_heads > 0);
  CHECK(context.backend->holds(shape.dtype));
  CHECK(!shape.value_in_key || shape.value_dim <= shape.head_dim);
}

}  // namespace

void Project(const OpContext& context, const ConstRows& x,
             std::span<const Projection> projections) {
  const ProjectionGroup group{x, projections};
  if (x.rows > 0) ProjectGroups(context, std::span(&group, 1));
}

void ProjectGroups(const OpContext& context, std::span<const ProjectionGroup> groups) {
  for (const ProjectionGroup& group : groups) {
    CHECK(group.x.rows > 0);
    for (const Projection& projection : group.projections) CheckProjection(group.x, projection);
  }
  if (groups.empty()) return;
  const OpScope scope(context, "project");
  if (!scope.runs()) return;
  if (context.adapters == nullptr) return context.backend->Project(*context.scratch, groups);
  context.backend->ProjectAdapted(*context.scratch, groups, *context.adapters);
}

void ProjectFirst(const OpContext& context, const ConstRows& x, const Matrix& weight,
                  const Rows& out) {
  CHECK(weight.count() == 1 && weight.cols() == x.cols && out.rows == x.rows && x.rows > 0);
  CHECK(out.cols > 0 && out.cols <= weight.rows());
  const OpScope scope(context, "project first");
  if (scope.runs()) context.backend->ProjectFirst(*context.scratch, x, weight, out);
}

void ProjectHeads(const OpContext& context, const ConstRows& x, int64_t x_step,
                  std::span<const HeadProjection> projections) {
  CHECK(!projections.empty());
  const Matrix& first = *projections.front().weights;
  for (const HeadProjection& projection : projections) {
    const Matrix& weights = *projection.weights;
    CHECK(weights.count() == first.count() && weights.cols() == first.cols());
    CHECK((weights.count() - 1) * x_step + weights.cols() <= x.cols);
    CHECK((weights.count() - 1) * projection.out_step + weights.rows() <= projection.out.cols);
    CHECK(projection.out.rows == x.rows && projection.out_step >= weights.rows());
  }
  if (x.rows == 0) return;
  const OpScope scope(context, "project heads");
  if (scope.runs()) context.backend->ProjectHeads(*context.scratch, x, x_step, projections);
}

void BeginStep(const OpContext& context, StepLayout* step) {
  const OpScope scope(context, "begin step");
  if (!scope.runs()) return;
  context.backend->TakeAdapters(context.adapters);
  context.backend->BeginStep(*context.scratch, step);
}

void Embed(const OpContext& context, const Matrix& table, const StepLayout& step, const Rows& out) {
  CHECK(out.rows == step.rows() && out.cols == table.cols() && table.count() == 1);
  const OpScope scope(context, "embed");
  if (scope.runs()) context.backend->Embed(table, step, out);
}

void GatherRows(const OpContext& context, const ConstRows& x, DevicePtr<const int32_t> index,
                const Rows& out) {
  CHECK(x.cols == out.cols);
  if (out.rows == 0) return;
  const OpScope scope(context, "gather rows");
  if (scope.runs()) context.backend->GatherRows(x, index, out);
}

void Fill(const OpContext& context, float value, const Rows& y) {
  if (y.rows == 0) return;
  const OpScope scope(context, "fill");
  if (scope.runs()) context.backend->Fill(value, y);
}

void FiniteRows(const OpContext& context, const StepLayout& step, const ConstRows& x,
                DevicePtr<uint8_t> finite) {
  CHECK(x.rows == step.rows());
  const OpScope scope(context, "finite rows");
  if (scope.runs()) context.backend->FiniteRows(step, x, finite);
}

void CopyHeads(const OpContext& context, int heads, int64_t width, const ConstRows& x,
               int64_t x_step, const Rows& y, int64_t y_step) {
  CHECK(x.rows == y.rows && heads > 0);
  CHECK((heads - 1) * x_step + width <= x.cols && (heads - 1) * y_step + width <= y.cols);
  if (x.rows == 0) return;
  const OpScope scope(context, "copy heads");
  if (scope.runs()) context.backend->CopyHeads(heads, width, x, x_step, y, y_step);
}

void RmsNorm(const OpContext& context, const ConstRows& x, ConstFloats weight, int groups,
             float eps, const Rows& y) {
  CHECK(SameShape(x, y) && Divides(groups, x));
  if (x.rows == 0) return;
  const OpScope scope(context, "rms norm");
  if (scope.runs()) context.backend->RmsNorm(x, weight, groups, eps, y);
}

void AddRmsNorm(const OpContext& context, const Rows& x, const ConstRows& y, ConstFloats weight,
                float eps, const Rows& h) {
  CHECK(SameShape(x, y) && SameShape(x, h) && !(x.data == h.data) && !(y.data == h.data));
  if (x.rows == 0) return;
  const OpScope scope(context, "add, rms norm");
  if (scope.runs()) context.backend->AddRmsNorm(x, y, weight, eps, h);
}

void RmsNormGated(const OpContext& context, const ConstRows& x, const ConstRows& gate,
                  ConstFloats weight, int groups, float eps, const Rows& y) {
  CHECK(SameShape(x, y) && SameShape(x, gate) && Divides(groups, x));
  CHECK(!(gate.data == y.data));
  if (x.rows == 0) return;
  const OpScope scope(context, "rms norm gated");
  if (scope.runs()) context.backend->RmsNormGated(x, gate, weight, groups, eps, y);
}

void L2Norm(const OpContext& context, const ConstRows& x, int groups, float eps, float scale,
            const Rows& y) {
  CHECK(SameShape(x, y) && Divides(groups, x));
  if (x.rows == 0) return;
  const OpScope scope(context, "l2 norm");
  if (scope.runs()) context.backend->L2Norm(x, groups, eps, scale, y);
}

void SwiGlu(const OpContext& context, const ConstRows& gate, const ConstRows& up, const Rows& y) {
  CHECK(SameShape(gate, y) && SameShape(up, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "swiglu");
  if (scope.runs()) context.backend->SwiGlu(gate, up, y);
}

void SigmoidMul(const OpContext& context, const ConstRows& gate, const ConstRows& x,
                const Rows& y) {
  CHECK(SameShape(gate, y) && SameShape(x, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "sigmoid mul");
  if (scope.runs()) context.backend->SigmoidMul(gate, x, y);
}

void Add(const OpContext& context, const ConstRows& a, const ConstRows& b, const Rows& y) {
  CHECK(SameShape(a, y) && SameShape(b, y));
  if (y.rows == 0) return;
  const OpScope scope(context, "add");
  if (scope.runs()) context.backend->Add(a, b, y);
}

RopeTable MakeRopeTable(const OpContext& context, const StepLayout& step,
                        ConstFloats inverse_frequencies, int half, float magnitude) {
  const auto make = [&] {
    return Rows{context.scratch->Floats(size_t(step.rows() * half)), step.rows(), half, half};
  };
  const Rows cos = make();
  const Rows sin = make();
  const OpScope scope(context, "rope table");
  if (scope.runs()) context.backend->MakeRopeTable(step, inverse_frequencies, magnitude, cos, sin);
  return {cos.data, sin.data, half};
}

RopeTable MakePlacedRopeTable(const OpContext& context, std::span<const RopePlace> places,
                              std::span<const uint8_t> axes, ConstFloats inverse_frequencies,
                              float magnitude) {
  CHECK(context.backend->sees() && !places.empty());
  CHECK(std::all_of(axes.begin(), axes.end(), [](uint8_t axis) { return axis < 3; }));
  const int64_t rows = int64_t(places.size()), half = int64_t(axes.size());
  const auto make = [&] {
    return Rows{context.scratch->Floats(size_t(rows * half)), rows, half, half};
  };
  const Rows cos = make();
  const Rows sin = make();
  const OpScope scope(context, "rope table");
  if (scope.runs()) {
    context.backend->MakePlacedRopeTable(places, axes, inverse_frequencies, magnitude, cos, sin);
  }
  return {cos.data, sin.data, int(half)};
}

void Rope(const OpContext& context, const RopeTable& table, int heads, const Rows& x,
          int64_t offset) {
  CHECK(Divides(heads, x) && offset >= 0 && offset + 2 * table.half <= x.cols / heads);
  if (x.rows == 0) return;
  const OpScope scope(context, "rope");
  if (scope.runs()) context.backend->Rope(table, heads, x, offset);
}

void StoreKv(const OpContext& context, const StepLayout& step, const KvPlace& place,
             const KvShape& shape, const ConstRows& k, const ConstRows& v) {
  CheckKv(context, step, shape, k);
  CHECK(k.cols == int64_t{shape.kv_heads} * shape.head_dim);
  CHECK(shape.value_in_key || v.cols == int64_t{shape.kv_heads} * shape.value_dim);
  const OpScope scope(context, "store kv");
  if (scope.runs()) context.backend->StoreKv(step, place, shape, k, v);
}

namespace {

bool EndsAreRight(const StepLayout& step, std::span<const int32_t> ends) {
  if (int64_t(ends.size()) != step.rows()) return false;
  for (const StepSequence& sequence : step.host.sequences) {
    int32_t least = sequence.position;
    for (int32_t row = 0; row < sequence.row_count; ++row) {
      const int32_t end = ends[size_t(sequence.row_begin + row)];
      least = std::max(least, sequence.position + row + 1);
      if (end < least || end > sequence.position + sequence.row_count) return false;
      least = end;
    }
  }
  return true;
}

}  // namespace

void Attend(const OpContext& context, const StepLayout& step, const KvPlace& place,
            const KvShape& shape, const AttentionParams& params, const ConstRows& q,
            const Rows& out) {
  CheckKv(context, step, shape, q);
  CHECK(params.q_heads % shape.kv_heads == 0 && out.rows == q.rows);
  CHECK(params.ends.empty() || context.backend->sees());
  CHECK(params.ends.empty() || EndsAreRight(step, params.ends));
  CHECK(q.cols == int64_t{params.q_heads} * shape.head_dim);
  CHECK(out.cols == int64_t{params.q_heads} * shape.value_dim);
  const OpScope scope(context, "attend");
  if (scope.runs()) context.backend->Attend(*context.scratch, step, place, shape, params, q, out);
}

void ShortConv(const OpContext& context, const StepLayout& step, size_t state_offset,
               ConstFloats weight, ConstFloats bias, int reach, bool silu, const ConstRows& x,
               const Rows& y) {
  CHECK(x.rows == step.rows() && SameShape(x, y) && reach >= 1);
  const OpScope scope(context, "short conv");
  if (scope.runs()) context.backend->ShortConv(step, state_offset, weight, bias, reach, silu, x, y);
}

void GatedDeltaGates(const OpContext& context, const ConstRows& a, const ConstRows& b,
                     ConstFloats exp_a, ConstFloats dt_bias, const Rows& decay, const Rows& beta) {
  CHECK(SameShape(a, b) && SameShape(a, decay) && SameShape(a, beta));
  if (a.rows == 0) return;
  const OpScope scope(context, "delta gates");
  if (scope.runs()) context.backend->GatedDeltaGates(a, b, exp_a, dt_bias, decay, beta);
}

void GatedDelta(const OpContext& context, const StepLayout& step, size_t state_offset,
                const GatedDeltaShape& shape, const ConstRows& q, const ConstRows& k,
                const ConstRows& v, const ConstRows& decay, const ConstRows& beta, const Rows& y) {
  CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
  CHECK(q.cols == int64_t{shape.key_heads} * shape.key_dim && k.cols == q.cols);
  CHECK(v.cols == int64_t{shape.value_heads} * shape.value_dim && y.cols == v.cols);
  CHECK(decay.cols == shape.value_heads && beta.cols == shape.value_heads);
  CHECK(q.stride == k.stride && decay.stride == beta.stride);
  CHECK(q.rows == step.rows() && y.rows == q.rows && v.rows == q.rows);
  const OpScope scope(context, "gated delta");
  if (scope.runs()) context.backend->GatedDelta(step, state_offset, shape, q, k, v, decay, beta, y);
}

}  // namespace reprise
