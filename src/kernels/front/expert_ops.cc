// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_ops.h"

#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/front/op_scope.h"
#include "kernels/low_rank_ops.h"

namespace reprise {

Routing RouteExperts(const OpContext& context, const ConstRows& logits,
                     const RoutingParams& params) {
  const int experts = static_cast<int>(logits.cols);
  CHECK(params.top_k > 0 && params.top_k <= experts && experts % params.groups == 0);
  CHECK(params.groups == 1 || (params.groups <= 64 && experts / params.groups >= 2));
  CHECK(params.groups == 1 || params.group_top_k * (experts / params.groups) >= params.top_k);
  const size_t pairs = size_t(logits.rows * params.top_k);
  const Routing routing = {context.scratch->Take<int32_t>(pairs), context.scratch->Floats(pairs),
                           logits.rows, params.top_k};
  const OpScope scope(context, "route experts");
  if (logits.rows > 0 && scope.runs()) {
    context.backend->RouteExperts(*context.scratch, logits, params, routing);
  }
  return routing;
}

ExpertPlan PlanExperts(const OpContext& context, const Routing& routing, int experts) {
  const int64_t slots = routing.rows * routing.top_k;
  const ExpertPlan plan = {context.scratch->Take<int32_t>(size_t(experts + 1)),
                           context.scratch->Take<int32_t>(size_t(slots)),
                           context.scratch->Take<int32_t>(size_t(slots)), experts, slots};
  const OpScope scope(context, "plan experts");
  if (scope.runs()) context.backend->PlanExperts(*context.scratch, routing, plan);
  return plan;
}

void ProjectExperts(const OpContext& context, const ExpertPlan& plan, const ConstRows& x,
                    ExpertInput input, std::span<const ExpertProjection> projections) {
  CHECK(!projections.empty() && (input == ExpertInput::kRows || x.rows == plan.slots));
  const Matrix& first = *projections.front().weights;
  for (const ExpertProjection& projection : projections) {
    const Matrix& weights = *projection.weights;
    CHECK(weights.count() == first.count() && weights.count() <= plan.experts);
    CHECK(weights.cols() == x.cols && projection.out.cols == weights.rows());
    CHECK(projection.out.rows == plan.slots);
  }
  if (plan.slots == 0) return;
  {
    const OpScope scope(context, "project experts");
    if (scope.runs()) {
      context.backend->ProjectExperts(*context.scratch, plan, x, input, projections);
    }
  }
  if (context.adapters == nullptr) return;
  std::vector<ExpertLowRankSum> sums;
  for (const ExpertProjection& projection : projections) {
    const auto weight = context.adapters->weights->find(projection.weights);
    if (weight == context.adapters->weights->end()) continue;
    for (const AdaptedRows& rows : context.adapters->rows) {
      const LowRank& product = rows.products[weight->second];
      if (product.empty()) continue;
      sums.push_back({&product, rows.row_begin, rows.row_count, projection.out});
    }
  }
  AddExpertLowRank(context, plan, x, input, sums);
}

void AddExpertLowRank(const OpContext& context, const ExpertPlan& plan, const ConstRows& x,
                      ExpertInput input, std::span<const ExpertLowRankSum> sums) {
  CHECK(input == ExpertInput::kRows || x.rows == plan.slots);
  for (const ExpertLowRankSum& sum : sums) {
    const LowRank& product = *sum.product;
    CHECK(product.down.count() == product.up.count() && product.down.count() <= plan.experts);
    CHECK(product.down.cols() == x.cols && product.up.rows() == sum.out.cols);
    CHECK(product.down.rows() == product.up.cols() && sum.out.rows == plan.slots);
    CHECK(sum.row_begin >= 0 && sum.row_count > 0);
  }
  if (sums.empty() || plan.slots == 0) return;
  const OpScope scope(context, "add low rank of experts");
  if (!scope.runs()) return;
  context.backend->AddExpertLowRank(*context.scratch, plan, x, input, sums);
}

void AddExpertBias(const OpContext& context, const ExpertPlan& plan, ConstFloats bias,
                   const Rows& y) {
  CHECK(y.rows == plan.slots && bias);
  if (y.rows == 0) return;
  const OpScope scope(context, "add expert bias");
  if (scope.runs()) context.backend->AddExpertBias(plan, bias, y);
}

void CombineExperts(const OpContext& context, const Routing& routing, const ExpertPlan& plan,
                    const ConstRows& slots, SumStart start, const Rows& y) {
  CHECK(y.rows == routing.rows && slots.cols == y.cols && slots.rows == plan.slots);
  if (y.rows == 0) return;
  const OpScope scope(context, "combine experts");
  if (scope.runs()) context.backend->CombineExperts(routing, plan, slots, start, y);
}

}  // namespace reprise
