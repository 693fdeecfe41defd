// SPDX-License-Identifier: Apache-2.0
#include "model/vision/gemma/gemma4_look.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/activation_ops.h"

namespace reprise {
namespace {

// Columns turn the first half of a head, rows the second.
std::vector<std::vector<uint8_t>> Axes(int head_dim) {
  const auto quarter = size_t(head_dim / 4);
  return {std::vector<uint8_t>(quarter, 2), std::vector<uint8_t>(quarter, 1)};
}

}  // namespace

Gemma4Look::Gemma4Look(const Gemma4Tower& tower, const Pixels& pixels)
    : PatchLook(tower,
                {tower.shape_.depth, tower.shape_.dim, tower.shape_.heads, tower.shape_.head_dim,
                 tower.shape_.out, 1, Axes(tower.shape_.head_dim), tower.frequencies_.data()},
                pixels),
      tower_(tower) {}

Result<std::unique_ptr<VisionTower::Look>> Gemma4Look::Begin(const Gemma4Tower& tower,
                                                             const OpContext& context,
                                                             const Pixels& pixels) {
  std::unique_ptr<Gemma4Look> look(new Gemma4Look(tower, pixels));
  REPRISE_TRY(look->Allocate(context));
  return std::unique_ptr<VisionTower::Look>(std::move(look));
}

void Gemma4Look::Project(const OpContext& context, const Gemma4Tower::Linear& linear,
                         const ConstRows& x, const Rows& y) const {
  const auto& bounds = linear.bounds;
  if (!shape().clamps) {
    const Projection projection[] = {{&linear.weight, y}};
    return reprise::Project(context, x, projection);
  }
  const ScratchScope scope(*context.scratch);
  const Rows clamped = NewRows(context, x.rows, x.cols);
  Clamp(context, x, bounds[0][0], bounds[1][0], clamped);
  const Projection projection[] = {{&linear.weight, y}};
  reprise::Project(context, clamped, projection);
  Clamp(context, y, bounds[2][0], bounds[3][0], y);
}

void Gemma4Look::Embed(const OpContext& context, int64_t begin, int64_t end) {
  const int64_t dim = shape().dim;
  const Rows x = Stream(begin, end);
  const Projection projection[] = {{&tower_.patch_, x}};
  reprise::Project(context, Patches(context, begin, end), projection);
  const auto position = [&](int64_t from, int64_t to, float* out) {
    for (int64_t patch = from; patch < to; ++patch, out += dim) {
      const PatchPlace place = PlaceOfPatch(patch, columns(), rules());
      const float* column = tower_.table_.data() + int64_t{place.column} * dim;
      const float* row = tower_.table_.data() + (shape().table_side + place.row) * dim;
      for (int64_t c = 0; c < dim; ++c) out[c] = column[c] + row[c];
    }
  };
  Add(context, x, FromPatches(context, begin, end, dim, position), x);
}

void Gemma4Look::StoreInputs(const OpContext& context, int index, int64_t begin, int64_t end) {
  const Layer& layer = tower_.layers_[size_t(index)];
  const int64_t count = end - begin;
  const Rows h = NewRows(context, count, shape().dim);
  RmsNorm(context, Stream(begin, end), layer.norm.data(), 1, shape().eps, h);
  const Rows q = NewRows(context, count, width()), k = NewRows(context, count, width());
  const Rows v = NewRows(context, count, width());
  Project(context, layer.q, h, q);
  Project(context, layer.k, h, k);
  Project(context, layer.v, h, v);
  RmsNorm(context, q, layer.q_norm.data(), shape().heads, shape().eps, q);
  RmsNorm(context, k, layer.k_norm.data(), shape().heads, shape().eps, k);
  RmsNorm(context, v, tower_.ones_.data(), shape().heads, shape().eps, v);
  for (const Rows& x : {q, k}) {
    Turn(context, 0, begin, x);
    Turn(context, 1, begin, x, shape().head_dim / 2);
  }
  Keep(context, begin, q, k, v);
}

void Gemma4Look::MixPatches(const OpContext& context, int index, int64_t begin, int64_t end) {
  const Layer& layer = tower_.layers_[size_t(index)];
  const int64_t dim = shape().dim, count = end - begin;
  const Rows x = Stream(begin, end);
  const Rows mixed = NewRows(context, count, width()), y = NewRows(context, count, dim);
  AttendAll(context, begin, end, mixed);
  Project(context, layer.out, mixed, y);
  RmsNorm(context, y, layer.post_norm.data(), 1, shape().eps, y);
  Add(context, x, y, x);
  const Rows h = NewRows(context, count, dim);
  RmsNorm(context, x, layer.mlp_norm.data(), 1, shape().eps, h);
  const Rows gate = NewRows(context, count, shape().hidden);
  const Rows up = NewRows(context, count, shape().hidden);
  Project(context, layer.gate, h, gate);
  Project(context, layer.up, h, up);
  GeGlu(context, gate, up, gate);
  Project(context, layer.down, gate, y);
  RmsNorm(context, y, layer.mlp_post_norm.data(), 1, shape().eps, y);
  Add(context, x, y, x);
}

void Gemma4Look::Merge(const OpContext& context, int64_t begin, int64_t end) {
  const int64_t dim = shape().dim;
  const int64_t of_token = int64_t{rules().merge} * rules().merge;
  const Rows stream = Stream(begin, end);
  const Rows mean = NewRows(context, stream.rows / of_token, dim);
  MeanOf(context, stream, of_token, mean);
  Scale(context, mean, std::sqrt(float(dim)), mean);
  if (shape().standardises) {
    const auto for_all = [&](const std::vector<float>& values) {
      return ConstRows(FromHost(context, values, 1).data, mean.rows, dim, 0);
    };
    Add(context, mean, for_all(tower_.std_bias_), mean);
    Mul(context, mean, for_all(tower_.std_scale_), mean);
  }
  RmsNorm(context, mean, tower_.token_ones_.data(), 1, shape().eps, mean);
  const Projection projection[] = {{&tower_.project_, Vectors(begin, end)}};
  reprise::Project(context, mean, projection);
}

}  // namespace reprise
