// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: every device has rows of every expert. All of them choose, alike, so nobody
// sends a choice; slots are gathered between the two products, and each column of a row is added up
// where it is, in the order of choice.
#include <vector>

#include "kernels/split/split_backend.h"
#include "kernels/split/split_matrix.h"

namespace reprise {
namespace {

Routing On(const SplitMachine::Here& here, const Routing& routing) {
  return {here.At(routing.experts), here.At(routing.weights), routing.rows, routing.top_k};
}

ExpertPlan On(const SplitMachine::Here& here, const ExpertPlan& plan) {
  return {here.At(plan.begin), here.At(plan.row), here.At(plan.slot), plan.experts, plan.slots};
}

}  // namespace

void SplitBackend::RouteExperts(ScratchArena&, const ConstRows& logits,
                                const RoutingParams& params, const Routing& routing) {
  const ConstRows weights = {routing.weights, routing.rows, routing.top_k, routing.top_k};
  ByRows("route experts", {SplitMachine::Whole(logits)}, {SplitMachine::Whole(weights)},
         [&](const Here& here) {
           RoutingParams mine = params;
           mine.selection_bias = here.At(params.selection_bias);
           mine.expert_scale = here.At(params.expert_scale);
           here.backend().RouteExperts(here.scratch(), here.All(logits), mine, On(here, routing));
         });
  machine_.Wrote(routing.experts, routing.rows * routing.top_k);
}

void SplitBackend::PlanExperts(ScratchArena&, const Routing& routing, const ExpertPlan& plan) {
  ByRows("plan experts", {}, {}, [&](const Here& here) {
    here.backend().PlanExperts(here.scratch(), On(here, routing), On(here, plan));
  });
  machine_.Wrote(plan.begin, plan.experts + 1);
  machine_.Wrote(plan.row, plan.slots);
  machine_.Wrote(plan.slot, plan.slots);
}

void SplitBackend::ProjectExperts(ScratchArena&, const ExpertPlan& plan, const ConstRows& x,
                                  ExpertInput input,
                                  std::span<const ExpertProjection> projections) {
  Gather(x);
  for (int device = 0; device < count(); ++device) {
    const Here here = {&machine_, device, {}};
    std::vector<ExpertProjection> mine;
    for (const ExpertProjection& projection : projections) {
      for (const SplitMatrix::Part& part : SplitMatrix::Of(*projection.weights).parts()) {
        if (part.device != device) continue;
        mine.push_back(
            {&part.weights, here.All(Columns(projection.out, part.begin, part.count()))});
      }
    }
    if (mine.empty()) continue;
    machine_.On(device, "project experts", [&](Backend& on) {
      on.ProjectExperts(here.scratch(), On(here, plan), here.All(x), input, mine);
    });
  }
  for (const ExpertProjection& projection : projections) {
    for (const SplitMatrix::Part& part : SplitMatrix::Of(*projection.weights).parts()) {
      machine_.Wrote(Columns(projection.out, part.begin, part.count()),
                     DeviceSet{1} << part.device);
    }
  }
}

void SplitBackend::AddExpertBias(const ExpertPlan& plan, ConstFloats bias, const Rows& y) {
  const SplitMachine::Operand columns = SplitMachine::Columns(y);
  machine_.MakeSlices(bias, plan.experts, y.cols, machine_.WhereInputsAre({columns}, y.cols));
  ByColumns("add expert bias", {columns}, {columns}, [&](const Here& here) {
    here.backend().AddExpertBias(On(here, plan), here.Slice(bias, plan.experts, y.cols),
                                 here.Of(y));
  });
}

void SplitBackend::CombineExperts(const Routing& routing, const ExpertPlan& plan,
                                  const ConstRows& slots, SumStart start, const Rows& y) {
  const auto combine = [&](const Here& here) {
    here.backend().CombineExperts(On(here, routing), On(here, plan), here.Of(slots), start,
                                  here.Of(y));
  };
  if (start == SumStart::kZero) {
    ByColumns("combine experts", {SplitMachine::Columns(slots)}, {SplitMachine::Columns(y)},
              combine);
  } else {
    ByColumns("combine experts", {SplitMachine::Columns(slots), SplitMachine::Columns(y)},
              {SplitMachine::Columns(y)}, combine);
  }
}

}  // namespace reprise
