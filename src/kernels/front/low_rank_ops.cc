// SPDX-License-Identifier: Apache-2.0
#include "kernels/low_rank_ops.h"

#include <vector>

#include "base/check.h"
#include "kernels/backend.h"

namespace reprise {
namespace {

// What the adapters of the step's rows say of these products.
std::vector<LowRankSum> SumsOf(std::span<const ProjectionGroup> groups, const StepAdapters& step) {
  std::vector<LowRankSum> sums;
  for (const AdaptedRows& adapted : step.rows) {
    const auto part = [&](const auto& x) {
      auto rows = x;
      rows.data = x.data + adapted.row_begin * x.stride;
      rows.rows = adapted.row_count;
      return rows;
    };
    for (const ProjectionGroup& group : groups) {
      for (const Projection& projection : group.projections) {
        const auto weight = step.weights->find(projection.weight);
        if (weight == step.weights->end()) continue;
        const LowRank& product = adapted.products[weight->second];
        if (product.empty()) continue;
        CHECK(group.x.rows == step.row_count);
        CHECK(product.down.count() == 1 && product.up.count() == 1);
        CHECK(product.down.cols() == group.x.cols && product.up.rows() == projection.out.cols);
        CHECK(product.down.rows() == product.up.cols());
        sums.push_back({part(group.x), &product, part(projection.out)});
      }
    }
  }
  return sums;
}

}  // namespace

void Backend::ProjectAdapted(ScratchArena& scratch, std::span<const ProjectionGroup> groups,
                             const StepAdapters& adapters) {
  Project(scratch, groups);
  const std::vector<LowRankSum> sums = SumsOf(groups, adapters);
  if (!sums.empty()) AddLowRank(scratch, sums);
}

// Two products and a sum, each for all of them at once.
void Backend::AddLowRank(ScratchArena& scratch, std::span<const LowRankSum> sums) {
  const ScratchScope scope(scratch);
  const auto make = [&](int64_t rows, int64_t cols) {
    return Rows{scratch.Floats(size_t(rows * cols)), rows, cols, cols};
  };
  std::vector<Rows> between, added;
  std::vector<Projection> down, up;
  for (const LowRankSum& sum : sums) {
    between.push_back(make(sum.x.rows, sum.product->down.rows()));
    added.push_back(make(sum.x.rows, sum.out.cols));
    down.push_back({&sum.product->down, between.back()});
    up.push_back({&sum.product->up, added.back()});
  }
  if (scratch.refused()) return;
  std::vector<ProjectionGroup> narrow(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) narrow[i] = {sums[i].x, {&down[i], 1}};
  Project(scratch, narrow);
  for (size_t i = 0; i < sums.size(); ++i) {
    const float scale = sums[i].product->scale;
    if (scale != 1) Scale(between[i], scale, between[i]);
    narrow[i] = {between[i], {&up[i], 1}};
  }
  Project(scratch, narrow);
  for (size_t i = 0; i < sums.size(); ++i) Add(sums[i].out, added[i], sums[i].out);
}

}  // namespace reprise
