// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"

// Mixture of experts around Project: which experts a row goes to, its rows brought together by
// expert, and the results added up. A row's choice, weights and order of addition depend on that
// row alone.
namespace reprise {

struct LowRank;

enum class ExpertScore : uint8_t { kSoftmax, kSigmoid };

struct RoutingParams {
  int top_k = 0;
  ExpertScore score = ExpertScore::kSoftmax;
  ConstFloats selection_bias = nullptr;  // [experts] added for the choice only, or null
  // Experts in `groups` equal groups: only the best `group_top_k` groups (by the sum of their two
  // best) take part. 1: no groups.
  int groups = 1;
  int group_top_k = 1;
  bool renormalise = false;  // weights divided by their sum
  float sum_floor = 0;       // added to that sum
  float scale = 1;
  ConstFloats expert_scale = nullptr;  // [experts] of their weights, behind all of that, or null
};

// The experts of each row, best first (ties: the lower index), with their weights: [rows, top_k].
struct Routing {
  DevicePtr<int32_t> experts;
  DevicePtr<float> weights;
  int64_t rows = 0;
  int top_k = 0;
};
// logits: [rows, experts]. The result lies in the scratch arena.
Routing RouteExperts(const OpContext& context, const ConstRows& logits,
                     const RoutingParams& params);

// The (row, choice) pairs in order of expert, then row: pair slots [begin[e], begin[e + 1]) belong
// to expert e. It lies where the backend computes: nobody else knows how many rows an expert has.
struct ExpertPlan {
  DevicePtr<int32_t> begin;  // [experts + 1]
  DevicePtr<int32_t> row;    // [slots] row of the pair in a slot
  DevicePtr<int32_t> slot;   // [rows, top_k] slot of a pair
  int experts = 0;
  int64_t slots = 0;  // rows * top_k
};
ExpertPlan PlanExperts(const OpContext& context, const Routing& routing, int experts);

// out[s] = weights[expert of slot s] . x[...] for every slot of an expert that the stack has (those
// of further choices are left alone). x has a row per slot, or the rows that plan.row speaks of.
enum class ExpertInput : uint8_t { kSlots, kRows };
struct ExpertProjection {
  const Matrix* weights = nullptr;  // [experts or fewer]
  Rows out;                         // [slots, weight rows]
};
void ProjectExperts(const OpContext& context, const ExpertPlan& plan, const ConstRows& x,
                    ExpertInput input, std::span<const ExpertProjection> projections);

// What adapters add to products of experts (low_rank_ops.h), for the slots of rows [row_begin,
// row_begin + row_count) of the step: out[s] = out[s] + up[e] (scale * (down[e] x)), e the expert
// of slot s. `product` is of stacks of experts; x is that of ProjectExperts. REQUIRES: a backend
// that adapts_experts(); slots of an expert ascend by row, as PlanExperts has them.
struct ExpertLowRankSum {
  const LowRank* product = nullptr;
  int64_t row_begin = 0;
  int64_t row_count = 0;
  Rows out;  // [slots, weight rows]
};
void AddExpertLowRank(const OpContext& context, const ExpertPlan& plan, const ConstRows& x,
                      ExpertInput input, std::span<const ExpertLowRankSum> sums);

// y[s] = y[s] + bias[expert of slot s]; bias: [plan.experts, y.cols].
void AddExpertBias(const OpContext& context, const ExpertPlan& plan, ConstFloats bias,
                   const Rows& y);

// y[t] = fma chain over the row's choices, best first, of weight * slots[slot], from 0 or from y[t]
// as it is.
enum class SumStart : uint8_t { kZero, kPresent };
void CombineExperts(const OpContext& context, const Routing& routing, const ExpertPlan& plan,
                    const ConstRows& slots, SumStart start, const Rows& y);

}  // namespace reprise
