// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/view.h"
#include "kernels/expert_ops.h"

// Mixture of experts around the products (kernels/expert_ops.h): bits and indices are the CPU's,
// and everything stays on the device. A plan is built by counting, in the order of the pairs, so
// nothing depends on which block runs first.
namespace reprise::cuda {

// experts, weights: [rows, top_k], as in reprise::Routing.
struct RoutingView {
  int32_t* experts = nullptr;
  float* weights = nullptr;
  int64_t rows = 0;
  int top_k = 0;
};
// logits: [rows, experts]; params.selection_bias and expert_scale are device addresses.
// REQUIRES: experts <= kMaxExperts, groups <= 64, and what RouteExperts requires.
inline constexpr int kMaxExperts = 4096;
void RouteExperts(Stream stream, const View& logits, const RoutingParams& params,
                  const RoutingView& routing);

// The (row, choice) pairs in order of expert, then row: reprise::ExpertPlan.
struct PlanView {
  int32_t* begin = nullptr;  // [experts + 1]
  int32_t* row = nullptr;    // [rows * top_k] row of the pair in a slot
  int32_t* slot = nullptr;   // [rows, top_k] slot of a pair
  int experts = 0;
  int64_t slots = 0;  // rows * top_k
};
// Bytes of scratch that PlanExperts needs for these counts.
size_t PlanScratchBytes(int64_t slots, int experts);
void PlanExperts(Stream stream, const RoutingView& routing, void* scratch, const PlanView& plan);

// RouteExperts and PlanExperts of all that it chooses from, for few rows: one kernel.
// REQUIRES: MayRouteAndPlan(logits, params) and plan.experts == logits.cols.
bool MayRouteAndPlan(const View& logits, const RoutingParams& params);
void RouteAndPlan(Stream stream, const View& logits, const RoutingParams& params,
                  const RoutingView& routing, const PlanView& plan);

// y[s] = y[s] + bias[expert of slot s]; bias: [plan.experts, y.cols].
void AddExpertBias(Stream stream, const PlanView& plan, const float* bias, const View& y);

// y[t] = fma chain over the row's choices, best first, of weight * slots[slot].
void CombineExperts(Stream stream, const RoutingView& routing, const PlanView& plan,
                    const View& slots, SumStart start, const View& y);

}  // namespace reprise::cuda
