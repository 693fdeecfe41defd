// SPDX-License-Identifier: Apache-2.0
#include "kernels/low_rank_ops.h"

#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/front/op_scope.h"

namespace reprise {

void AddLowRank(const OpContext& context, std::span<const LowRankSum> sums) {
  for (const LowRankSum& sum : sums) {
    const LowRank& product = *sum.product;
    CHECK(sum.x.rows > 0 && sum.x.rows == sum.out.rows);
    CHECK(product.down.count() == 1 && product.up.count() == 1);
    CHECK(product.down.cols() == sum.x.cols && product.up.rows() == sum.out.cols);
    CHECK(product.down.rows() == product.up.cols());
  }
  if (sums.empty()) return;
  const OpScope scope(context, "add low rank");
  if (scope.runs()) context.backend->AddLowRank(*context.scratch, sums);
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
  std::vector<ProjectionGroup> groups(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) groups[i] = {sums[i].x, {&down[i], 1}};
  Project(scratch, groups);
  for (size_t i = 0; i < sums.size(); ++i) {
    const float scale = sums[i].product->scale;
    if (scale != 1) Scale(between[i], scale, between[i]);
    groups[i] = {between[i], {&up[i], 1}};
  }
  Project(scratch, groups);
  for (size_t i = 0; i < sums.size(); ++i) Add(sums[i].out, added[i], sums[i].out);
}

}  // namespace reprise
