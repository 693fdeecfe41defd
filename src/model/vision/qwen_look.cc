// SPDX-License-Identifier: Apache-2.0
#include "model/vision/qwen_look.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/activation_ops.h"

namespace reprise {
namespace {

constexpr float kEps = 1e-6f;

// Two entries of a table of `side` that a place on a line of `size` lies between; the ends of both
// lie on each other.
struct Between {
  int low = 0;
  int high = 0;
  float share = 0;  // of the high one
};
Between PlaceInTable(int index, int size, int side) {
  const float at = float(index) * float(side - 1) / float(std::max(size - 1, 1));
  const float floor = std::floor(at);
  const int low = int(floor);
  return {std::min(low, side - 1), std::min(low + 1, side - 1), at - floor};
}

}  // namespace

QwenLook::QwenLook(const QwenTower& tower, const Pixels& pixels)
    : PatchLook(tower,
                {tower.shape_.depth,
                 tower.shape_.dim,
                 tower.shape_.heads,
                 tower.shape_.head_dim(),
                 tower.shape_.width(),
                 1 / std::sqrt(float(tower.shape_.head_dim())),
                 {tower.axes_},
                 tower.frequencies_.data()},
                pixels),
      tower_(tower) {}

Result<std::unique_ptr<VisionTower::Look>> QwenLook::Begin(const QwenTower& tower,
                                                           const OpContext& context,
                                                           const Pixels& pixels) {
  std::unique_ptr<QwenLook> look(new QwenLook(tower, pixels));
  REPRISE_TRY(look->Allocate(context));
  return std::unique_ptr<VisionTower::Look>(std::move(look));
}

// What the table says where the patch lies, stretched over the picture. [dim]
void QwenLook::TablePosition(int64_t patch, float* out) const {
  const int64_t dim = shape().dim;
  const int side = shape().table_side;
  const PatchPlace place = PlaceOfPatch(patch, columns(), rules());
  const Between y = PlaceInTable(place.row, rows(), side);
  const Between x = PlaceInTable(place.column, columns(), side);
  const auto entry = [&](int row, int column) {
    return tower_.table_.data() + (int64_t{row} * side + column) * dim;
  };
  const float* corners[] = {entry(y.low, x.low), entry(y.low, x.high), entry(y.high, x.low),
                            entry(y.high, x.high)};
  const float shares[] = {(1 - y.share) * (1 - x.share), (1 - y.share) * x.share,
                          y.share * (1 - x.share), y.share * x.share};
  for (int64_t c = 0; c < dim; ++c) {
    float sum = 0;
    for (int corner = 0; corner < 4; ++corner) sum = sum + corners[corner][c] * shares[corner];
    out[c] = sum;
  }
}

void QwenLook::Embed(const OpContext& context, int64_t begin, int64_t end) {
  const Rows x = Stream(begin, end);
  Linear(context, Patches(context, begin, end), tower_.patch_, tower_.patch_bias_, x);
  const auto position = [&](int64_t from, int64_t to, float* out) {
    for (int64_t patch = from; patch < to; ++patch, out += shape().dim) TablePosition(patch, out);
  };
  Add(context, x, FromPatches(context, begin, end, shape().dim, position), x);
}

void QwenLook::StoreInputs(const OpContext& context, int index, int64_t begin, int64_t end) {
  const Layer& layer = tower_.layers_[size_t(index)];
  const int64_t dim = shape().dim, count = end - begin;
  const Rows h = NewRows(context, count, dim);
  const Rows qkv = NewRows(context, count, 3 * dim);
  LayerNorm(context, Stream(begin, end), layer.norm1.data(), layer.norm1_bias.data(), 1, kEps, h);
  Linear(context, h, layer.qkv, layer.qkv_bias, qkv);
  const Rows q = Columns(qkv, 0, dim), k = Columns(qkv, dim, dim);
  Turn(context, 0, begin, q);
  Turn(context, 0, begin, k);
  Keep(context, begin, q, k, Columns(qkv, 2 * dim, dim));
}

void QwenLook::MixPatches(const OpContext& context, int index, int64_t begin, int64_t end) {
  const Layer& layer = tower_.layers_[size_t(index)];
  const int64_t dim = shape().dim, count = end - begin;
  const Rows x = Stream(begin, end);
  const Rows mixed = NewRows(context, count, dim), y = NewRows(context, count, dim);
  AttendAll(context, begin, end, mixed);
  Linear(context, mixed, layer.proj, layer.proj_bias, y);
  Add(context, x, y, x);
  LayerNorm(context, x, layer.norm2.data(), layer.norm2_bias.data(), 1, kEps, mixed);
  const Rows hidden = NewRows(context, count, shape().hidden);
  Linear(context, mixed, layer.fc1, layer.fc1_bias, hidden);
  Gelu(context, hidden, hidden);
  Linear(context, hidden, layer.fc2, layer.fc2_bias, y);
  Add(context, x, y, x);
  const std::vector<int>& deep = shape().deep;
  const auto at = std::find(deep.begin(), deep.end(), index);
  if (at == deep.end()) return;
  RunEnd(context, tower_.ends_[size_t(at - deep.begin())], 1 + (at - deep.begin()), begin, end);
}

void QwenLook::RunEnd(const OpContext& context, const QwenTower::End& end, int64_t index,
                      int64_t first_patch, int64_t end_patch) {
  const int64_t dim = shape().dim;
  const int64_t of_token = int64_t{rules().merge} * rules().merge;
  const Rows stream = Stream(first_patch, end_patch);
  const Rows normed = NewRows(context, stream.rows, dim);
  // The patches of a token lie behind one another.
  const int64_t tokens = normed.rows / of_token, width = dim * of_token;
  const Rows joined = {normed.data, tokens, width, width};
  if (index == 0) {
    LayerNorm(context, stream, end.norm.data(), end.norm_bias.data(), 1, kEps, normed);
  } else {
    LayerNorm(context, {stream.data, tokens, width, width}, end.norm.data(), end.norm_bias.data(),
              1, kEps, joined);
  }
  const Rows hidden = NewRows(context, tokens, width);
  Linear(context, joined, end.fc1, end.fc1_bias, hidden);
  GeluErf(context, hidden, hidden);
  const Rows vectors = Vectors(first_patch, end_patch);
  Linear(context, hidden, end.fc2, end.fc2_bias,
         Columns(vectors, index * shape().out, shape().out));
}

void QwenLook::Merge(const OpContext& context, int64_t begin, int64_t end) {
  RunEnd(context, tower_.end_, 0, begin, end);
}

}  // namespace reprise
