// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/quantised/product.h"
#include "kernels/cuda/rows/experts.h"
#include "kernels/cuda/tensor/product_half.h"

// One row through the experts that were chosen for it, as two kernels: one up to the gates, one
// behind them. A decoded token is bound by the number of kernels and by latency, so both quantise
// what they read on the way, and what is done with the outputs is done where they come out. The
// bits are those of the ops, and all that they would have written is written.
namespace reprise::cuda {

// Weights of a stack and their outputs.
struct ChosenProduct {
  QuantisedMatrix quantised;  // in planes; not used where packed
  HalfMatrix packed;          // the first of the stack, if it is packed
  View y;
};

// y of `up` and `gate`: [slots, hidden], the products of x, which is one row, with the expert of
// each slot. gated: gate's rows become silu(gate) * up.
struct ChosenGates {
  View x;
  PlanView plan;
  ChosenProduct up, gate;
  bool gated = false;
};
// Whether there is a kernel for it. Weights are stacks of plan.experts matrices.
bool MayRunChosenGates(const ChosenGates& gates);
void RunChosenGates(Stream stream, const ChosenGates& gates);

// down.y: [slots, dim], the products of x, which has a row for each slot. With a y, which is one
// row, CombineExperts of them; with a sum besides, sum += y.
struct ChosenSum {
  View x;
  PlanView plan;
  ChosenProduct down;
  RoutingView routing;  // of one row
  SumStart start = SumStart::kZero;
  View y, sum;
};
bool MayRunChosenSum(const ChosenSum& sum);
// REQUIRES: RunChosenGates with the same plan comes before it in the stream, behind the plan: the
// kernel begins to read the plan before its inputs are there. Nothing that is written is read but y
// and sum.
void RunChosenSum(Stream stream, const ChosenSum& sum);

}  // namespace reprise::cuda
