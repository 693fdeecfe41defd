// SPDX-License-Identifier: Apache-2.0
#include "model/vision/gemma/siglip_look.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/activation_ops.h"

namespace reprise {

SiglipLook::SiglipLook(const SiglipTower& tower, const Pixels& pixels)
    : PatchLook(tower,
                {tower.shape_.depth, tower.shape_.dim, tower.shape_.heads, tower.shape_.head_dim(),
                 tower.shape_.out, 1 / std::sqrt(float(tower.shape_.head_dim()))},
                pixels),
      tower_(tower) {}

Result<std::unique_ptr<VisionTower::Look>> SiglipLook::Begin(const SiglipTower& tower,
                                                             const OpContext& context,
                                                             const Pixels& pixels) {
  std::unique_ptr<SiglipLook> look(new SiglipLook(tower, pixels));
  REPRISE_TRY(look->Allocate(context));
  return std::unique_ptr<VisionTower::Look>(std::move(look));
}

void SiglipLook::Embed(const OpContext& context, int64_t begin, int64_t end) {
  const int64_t dim = shape().dim;
  const Rows x = Stream(begin, end);
  Linear(context, Patches(context, begin, end), tower_.patch_, tower_.patch_bias_, x);
  const auto position = [&](int64_t from, int64_t to, float* out) {
    for (int64_t patch = from; patch < to; ++patch, out += dim) {
      const PatchPlace place = PlaceOfPatch(patch, columns(), rules());
      const int64_t entry = int64_t{place.row} * columns() + place.column;
      std::copy_n(tower_.table_.data() + entry * dim, dim, out);
    }
  };
  Add(context, x, FromPatches(context, begin, end, dim, position), x);
}

void SiglipLook::StoreInputs(const OpContext& context, int index, int64_t begin, int64_t end) {
  const Layer& layer = tower_.layers_[size_t(index)];
  const int64_t dim = shape().dim, count = end - begin;
  const Rows h = NewRows(context, count, dim);
  LayerNorm(context, Stream(begin, end), layer.norm1.data(), layer.norm1_bias.data(), 1,
            shape().eps, h);
  const Rows q = NewRows(context, count, dim), k = NewRows(context, count, dim);
  const Rows v = NewRows(context, count, dim);
  const Projection projections[] = {{&layer.q, q, layer.q_bias.data()},
                                    {&layer.k, k, layer.k_bias.data()},
                                    {&layer.v, v, layer.v_bias.data()}};
  Project(context, h, projections);
  Keep(context, begin, q, k, v);
}

void SiglipLook::MixPatches(const OpContext& context, int index, int64_t begin, int64_t end) {
  const Layer& layer = tower_.layers_[size_t(index)];
  const int64_t dim = shape().dim, count = end - begin;
  const Rows x = Stream(begin, end);
  const Rows mixed = NewRows(context, count, dim), y = NewRows(context, count, dim);
  AttendAll(context, begin, end, mixed);
  Linear(context, mixed, layer.out, layer.out_bias, y);
  Add(context, x, y, x);
  LayerNorm(context, x, layer.norm2.data(), layer.norm2_bias.data(), 1, shape().eps, mixed);
  const Rows hidden = NewRows(context, count, shape().hidden);
  Linear(context, mixed, layer.fc1, layer.fc1_bias, hidden);
  Gelu(context, hidden, hidden);
  Linear(context, hidden, layer.fc2, layer.fc2_bias, y);
  Add(context, x, y, x);
}

void SiglipLook::Merge(const OpContext& context, int64_t begin, int64_t end) {
  const int64_t dim = shape().dim;
  const int64_t of_token = int64_t{rules().merge} * rules().merge;
  const Rows normed = NewRows(context, end - begin, dim);
  LayerNorm(context, Stream(begin, end), tower_.norm_.data(), tower_.norm_bias_.data(), 1,
            shape().eps, normed);
  const Rows mean = NewRows(context, normed.rows / of_token, dim);
  MeanOf(context, normed, of_token, mean);
  RmsNorm(context, mean, tower_.token_norm_.data(), 1, shape().eps, mean);
  const Projection projection[] = {{&tower_.project_, Vectors(begin, end)}};
  Project(context, mean, projection);
}

}  // namespace reprise
