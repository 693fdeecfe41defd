// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_ops.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"

namespace reprise {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Index of the largest value, the lowest of equals; NaN is never chosen, but some index is returned
// even if nothing else is there.
int Best(const float* values, int count) {
  int best = 0;
  for (int i = 1; i < count; ++i) {
    if (values[i] > values[best] || values[best] != values[best]) best = i;
  }
  return best;
}

// Leaves the scores of experts outside the best groups at -inf. A group counts by the sum of its
// two best scores.
void KeepBestGroups(const RoutingParams& params, int experts, float* scores) {
  const int width = experts / params.groups;
  float worth[64];
  CHECK(params.groups <= 64 && width >= 2);
  for (int g = 0; g < params.groups; ++g) {
    float* group = scores + g * width;
    const int first = Best(group, width);
    float second = kNever;
    for (int i = 0; i < width; ++i) {
      if (i != first && group[i] > second) second = group[i];
    }
    worth[g] = group[first] + second;
  }
  bool kept[64] = {};
  for (int n = 0; n < params.group_top_k; ++n) {
    const int best = Best(worth, params.groups);
    kept[best] = true;
    worth[best] = kNever;
  }
  for (int g = 0; g < params.groups; ++g) {
    if (!kept[g]) std::fill_n(scores + g * width, width, kNever);
  }
}

// Experts and weights of one row. probability and score: [experts] each, scratch.
void RouteRow(const OpContext& context, const float* logits, int experts, const float* zeros,
              const RoutingParams& params, float* probability, float* score, int32_t* chosen,
              float* weights) {
  if (params.score == ExpertScore::kSoftmax) {
    context.table->softmax(logits, experts, probability);
  } else {
    context.table->sigmoid(logits, zeros, experts, probability);
  }
  if (params.selection_bias != nullptr) {
    context.table->add(probability, params.selection_bias, experts, score);
  } else {
    std::memcpy(score, probability, size_t(experts) * sizeof(float));
  }
  if (params.groups > 1) KeepBestGroups(params, experts, score);
  float sum = 0;
  for (int k = 0; k < params.top_k; ++k) {
    const int best = Best(score, experts);
    chosen[k] = best;
    weights[k] = probability[best];
    sum += weights[k];
    score[best] = kNever;
  }
  for (int k = 0; k < params.top_k; ++k) {
    if (params.renormalise) weights[k] /= sum + params.sum_floor;
    weights[k] *= params.scale;
  }
}

}  // namespace

Routing RouteExperts(const OpContext& context, const Rows& logits, const RoutingParams& params) {
  const int experts = static_cast<int>(logits.cols);
  CHECK(params.top_k > 0 && params.top_k <= experts && experts % params.groups == 0);
  CHECK(params.groups == 1 || params.group_top_k * (experts / params.groups) >= params.top_k);
  const size_t pairs = size_t(logits.rows * params.top_k);
  Routing routing;
  routing.experts = static_cast<int32_t*>(context.scratch->Bytes(pairs * sizeof(int32_t)));
  routing.weights = context.scratch->Floats(pairs);
  routing.rows = logits.rows;
  routing.top_k = params.top_k;
  const ScratchScope scope(*context.scratch);
  float* zeros = context.scratch->Floats(size_t(experts));
  std::fill_n(zeros, experts, 0.0f);
  float* memory = context.scratch->Floats(size_t(2 * logits.rows * experts));
  const int64_t cost = int64_t{experts} * (8 + params.top_k);
  cpu::ForRows(context, logits.rows, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* probability = memory + 2 * t * experts;
      RouteRow(context, logits.row(t), experts, zeros, params, probability, probability + experts,
               routing.experts + t * params.top_k, routing.weights + t * params.top_k);
    }
  });
  return routing;
}

ExpertPlan PlanExperts(const OpContext& context, const Routing& routing, int experts) {
  const int64_t pairs = routing.rows * routing.top_k;
  const size_t words = size_t(experts + 1 + 2 * pairs);
  int32_t* begin = static_cast<int32_t*>(context.scratch->Bytes(words * sizeof(int32_t)));
  int32_t* row = begin + experts + 1;
  int32_t* slot = row + pairs;
  std::fill_n(begin, experts + 1, 0);
  for (int64_t pair = 0; pair < pairs; ++pair) ++begin[routing.experts[pair] + 1];
  for (int e = 0; e < experts; ++e) begin[e + 1] += begin[e];
  // begin[e] walks to the end of expert e while slots are given out, and is put back.
  for (int64_t pair = 0; pair < pairs; ++pair) {
    slot[pair] = begin[routing.experts[pair]]++;
    row[slot[pair]] = static_cast<int32_t>(pair / routing.top_k);
  }
  for (int e = experts; e > 0; --e) begin[e] = begin[e - 1];
  begin[0] = 0;
  return {begin, row, slot};
}

void GatherRows(const OpContext& context, const Rows& x, const int32_t* index, const Rows& out) {
  CHECK(x.cols == out.cols);
  cpu::ForRows(context, out.rows, out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      std::memcpy(out.row(t), x.row(index[t]), size_t(out.cols) * sizeof(float));
    }
  });
}

void CombineExperts(const OpContext& context, const Routing& routing, const ExpertPlan& plan,
                    const Rows& slots, const Rows& y) {
  CHECK(y.rows == routing.rows && slots.cols == y.cols);
  cpu::ForRows(context, y.rows, y.cols * routing.top_k, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int k = 0; k < routing.top_k; ++k) {
        const int64_t pair = t * routing.top_k + k;
        context.table->scale_add(slots.row(plan.slot[pair]), routing.weights[pair], y.cols,
                                 y.row(t));
      }
    }
  });
}

}  // namespace reprise
