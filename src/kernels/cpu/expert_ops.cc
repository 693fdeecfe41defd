// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/raw_rows.h"

namespace reprise::cpu {

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
void RouteRow(const KernelTable& table, const float* logits, int experts, const float* zeros,
              const RoutingParams& params, float* probability, float* score, int32_t* chosen,
              float* weights) {
  if (params.score == ExpertScore::kSoftmax) {
    table.softmax(logits, experts, probability);
  } else {
    table.sigmoid(logits, zeros, experts, probability);
  }
  if (params.selection_bias) {
    table.add(probability, Raw(params.selection_bias), experts, score);
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
    if (params.expert_scale) weights[k] *= Raw(params.expert_scale)[chosen[k]];
  }
}

}  // namespace

void CpuBackend::RouteExperts(ScratchArena& scratch, const ConstRows& logits,
                              const RoutingParams& params, const Routing& routing) {
  const int experts = static_cast<int>(logits.cols);
  const ScratchScope scope(scratch);
  float* zeros = Raw(scratch.Floats(size_t(experts)));
  std::fill_n(zeros, experts, 0.0f);
  float* memory = Raw(scratch.Floats(size_t(2 * logits.rows * experts)));
  const int64_t cost = int64_t{experts} * (8 + params.top_k);
  ForRows(*pool_, logits.rows, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* probability = memory + 2 * t * experts;
      RouteRow(*table_, RowOf(logits, t), experts, zeros, params, probability,
               probability + experts, Raw(routing.experts) + t * params.top_k,
               Raw(routing.weights) + t * params.top_k);
    }
  });
}

void CpuBackend::PlanExperts(ScratchArena&, const Routing& routing, const ExpertPlan& plan) {
  const int32_t* chosen = Raw(routing.experts);
  int32_t* begin = Raw(plan.begin);
  int32_t* row = Raw(plan.row);
  int32_t* slot = Raw(plan.slot);
  std::fill_n(begin, plan.experts + 1, 0);
  for (int64_t pair = 0; pair < plan.slots; ++pair) ++begin[chosen[pair] + 1];
  for (int e = 0; e < plan.experts; ++e) begin[e + 1] += begin[e];
  // begin[e] walks to the end of expert e while slots are given out, and is put back.
  for (int64_t pair = 0; pair < plan.slots; ++pair) {
    slot[pair] = begin[chosen[pair]]++;
    row[slot[pair]] = static_cast<int32_t>(pair / routing.top_k);
  }
  for (int e = plan.experts; e > 0; --e) begin[e] = begin[e - 1];
  begin[0] = 0;
}

void CpuBackend::AddExpertBias(const ExpertPlan& plan, ConstFloats bias, const Rows& y) {
  const int32_t* ends = Raw(plan.begin) + 1;
  ForRows(*pool_, y.rows, y.cols, [&](int64_t begin, int64_t end) {
    int64_t expert = std::upper_bound(ends, ends + plan.experts, begin) - ends;
    for (int64_t slot = begin; slot < end; ++slot) {
      while (slot >= ends[expert]) ++expert;
      table_->add(RowOf(y, slot), Raw(bias) + expert * y.cols, y.cols, RowOf(y, slot));
    }
  });
}

void CpuBackend::CombineExperts(const Routing& routing, const ExpertPlan& plan,
                                const ConstRows& slots, SumStart start, const Rows& y) {
  const float* weights = Raw(routing.weights);
  const int32_t* slot = Raw(plan.slot);
  ForRows(*pool_, y.rows, y.cols * routing.top_k, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (start == SumStart::kZero) std::fill_n(RowOf(y, t), y.cols, 0.0f);
      for (int k = 0; k < routing.top_k; ++k) {
        const int64_t pair = t * routing.top_k + k;
        table_->scale_add(RowOf(slots, slot[pair]), weights[pair], y.cols, RowOf(y, t));
      }
    }
  });
}

}  // namespace reprise::cpu
