// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/raw.h"
#include "kernels/cuda/rows/experts.h"
#include "kernels/cuda/view.h"
#include "kernels/rows.h"
#include "kernels/step_layout.h"

// Operands of ops as operands of kernels.
namespace reprise::cuda {

inline View ViewOf(const Rows& x) { return {Raw(x.data), x.rows, x.cols, x.stride}; }
// Kernels do not write to what they are given to read.
inline View ViewOf(const ConstRows& x) {
  return {const_cast<float*>(Raw(x.data)), x.rows, x.cols, x.stride};
}

inline RoutingView ViewOf(const Routing& routing) {
  return {Raw(routing.experts), Raw(routing.weights), routing.rows, routing.top_k};
}
inline PlanView ViewOf(const ExpertPlan& plan) {
  return {Raw(plan.begin), Raw(plan.row), Raw(plan.slot), plan.experts, plan.slots};
}

inline StepView ViewOf(const StepLayout& step) {
  StepView view;
  view.rows = static_cast<int32_t>(step.rows());
  view.sequence_count = static_cast<int32_t>(step.host.sequences.size());
  view.tokens = Raw(step.device.tokens);
  view.positions = Raw(step.device.positions);
  view.row_sequence = Raw(step.device.row_sequences);
  view.sequences = Raw(step.device.sequences);
  view.blocks = Raw(step.device.blocks);
  view.taps = Raw(step.device.taps);
  view.block_memory = Raw(step.block_memory);
  view.state_memory = Raw(step.state_memory);
  view.block_bytes = static_cast<int64_t>(step.block_bytes);
  view.state_bytes = static_cast<int64_t>(step.state_bytes);
  view.spoilt = Raw(step.spoilt);
  return view;
}

}  // namespace reprise::cuda
