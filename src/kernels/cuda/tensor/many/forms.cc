// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tensor/many/forms.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/architecture.h"

namespace reprise::cuda {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What decides how long a product takes.
struct Size {
  int64_t rows = 0;
  int64_t steps = 0;  // of 64 along K
  int64_t outputs[kMatricesMost] = {};
  size_t matrices = 0;

  bool operator==(const Size&) const = default;
};

int64_t TeamsAtOnce(const Tiling& tiling) {
  return ThisGpu().multiprocessors / (tiling.team_tokens * tiling.team_outputs);
}
int64_t RowTeams(const Tiling& tiling, int64_t rows) {
  return CeilDiv(rows, tiling.tokens * tiling.team_tokens);
}

int64_t Nanoseconds(const ProductForm& form, const Size& size) {
  const Tiling& tiling = form.tiling;
  int64_t column_tiles = 0;
  for (size_t i = 0; i < size.matrices; ++i) {
    column_tiles += CeilDiv(size.outputs[i], tiling.outputs);
  }
  const int64_t teams = RowTeams(tiling, size.rows) * CeilDiv(column_tiles, tiling.team_outputs);
  const int64_t turns = CeilDiv(teams, TeamsAtOnce(tiling));
  return form.launch_ns + turns * (size.steps * form.step_ns + form.tile_ns);
}

struct Choice {
  size_t form = 0;
  int64_t ns = std::numeric_limits<int64_t>::max();
};
Choice Quickest(const Size& size) {
  Choice best;
  for (size_t i = 0; i < kProductForms.size(); ++i) {
    const int64_t ns = Nanoseconds(kProductForms[i], size);
    if (ns < best.ns) best = {i, ns};
  }
  return best;
}

ProductPlan MakePlan(const Size& size) {
  const Choice whole = Quickest(size);
  ProductPlan plan = {.form = whole.form};
  if (size.matrices > 1) return plan;
  int64_t least = whole.ns - whole.ns / 64;  // less is not worth a launch
  for (size_t i = 0; i < kProductForms.size(); ++i) {
    const Tiling& tiling = kProductForms[i].tiling;
    const int64_t row_teams = RowTeams(tiling, size.rows);
    const int64_t columns = tiling.outputs * tiling.team_outputs;
    const int64_t teams = row_teams * CeilDiv(size.outputs[0], columns);
    const int64_t full_turns = teams / TeamsAtOnce(tiling);
    Size first = size, rest = size;
    first.outputs[0] = full_turns * TeamsAtOnce(tiling) / row_teams * columns;
    rest.outputs[0] -= first.outputs[0];
    if (first.outputs[0] == 0 || rest.outputs[0] <= 0) continue;
    const Choice second = Quickest(rest);
    const int64_t ns = Nanoseconds(kProductForms[i], first) + second.ns;
    if (ns < least) {
      least = ns;
      plan = {.form = i, .outputs = first.outputs[0], .rest = second.form};
    }
  }
  return plan;
}

}  // namespace

ProductPlan PlanOf(int64_t rows, std::span<const HalfProduct> products) {
  Size size = {.rows = rows, .steps = CeilDiv(products[0].weight.stride, 64)};
  for (const HalfProduct& one : products) size.outputs[size.matrices++] = one.weight.rows;
  // A step asks for the same few again and again, and a plan takes longer than a launch.
  struct Known {
    Size size;
    ProductPlan plan;
  };
  thread_local std::array<Known, 256> known;
  const uint64_t hash =
      static_cast<uint64_t>(rows * 31 + size.steps * 977 + size.outputs[0]) * 0x9E3779B97F4A7C15u;
  Known& one = known[hash >> 56];
  if (!(one.size == size)) one = {size, MakePlan(size)};
  return one.plan;
}

}  // namespace reprise::cuda
