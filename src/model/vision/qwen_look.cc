// SPDX-License-Identifier: Apache-2.0
#include "model/vision/qwen_look.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/activation_ops.h"
#include "kernels/backend.h"

namespace reprise {
namespace {

constexpr float kEps = 1e-6f;

StateSpec KeysAndValues(const QwenTower::Shape& shape) {
  StateSpec spec;
  LayerState& layer = spec.layers.emplace_back();
  const std::vector<int64_t> heads = {shape.heads, shape.head_dim()};
  layer.tensors = {{"k", heads, DType::kF32}, {"v", heads, DType::kF32}};
  return spec;
}

KvShape KvOf(const QwenTower::Shape& shape) {
  KvShape kv;
  kv.kv_heads = shape.heads;
  kv.head_dim = kv.value_dim = shape.head_dim();
  kv.dtype = DType::kF32;
  return kv;
}

// Nothing of a tower is changed by adapters.
const WeightIndex& NoAdapters() {
  static const WeightIndex none;
  return none;
}

Rows NewRows(const OpContext& context, int64_t rows, int64_t cols) {
  return {context.scratch->Floats(size_t(rows * cols)), rows, cols, cols};
}

Rows FromHost(const OpContext& context, const std::vector<float>& values, int64_t rows) {
  const Rows out = NewRows(context, rows, int64_t(values.size()) / rows);
  if (!context.scratch->refused()) {
    context.backend->memory().UploadArray<float>(out.data, std::span<const float>(values));
  }
  return out;
}

void Linear(const OpContext& context, const ConstRows& x, const Matrix& weight, const Vector& bias,
            const Rows& out) {
  const Projection projection[] = {{&weight, out, bias.data()}};
  Project(context, x, projection);
}

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
    : tower_(tower),
      pixels_(pixels),
      columns_(pixels.width / tower.card().rules.patch),
      rows_(pixels.height / tower.card().rules.patch),
      patches_(int64_t{columns_} * rows_) {}

Result<std::unique_ptr<VisionTower::Look>> QwenLook::Begin(const QwenTower& tower,
                                                           const OpContext& context,
                                                           const Pixels& pixels) {
  std::unique_ptr<QwenLook> look(new QwenLook(tower, pixels));
  DeviceMemory& memory = context.backend->memory();
  const auto& shape = look->shape();
  const int64_t of_token = int64_t{tower.card().rules.merge} * tower.card().rules.merge;
  const size_t bytes = size_t(look->patches_ * shape.dim) * sizeof(float);
  REPRISE_ASSIGN(look->stream_, memory.Allocate(bytes));
  REPRISE_ASSIGN(look->queries_, memory.Allocate(bytes));
  REPRISE_ASSIGN(look->vectors_,
                 memory.Allocate(size_t(look->patches_ / of_token * shape.out) * sizeof(float)));
  REPRISE_ASSIGN(LiveState kept,
                 LiveState::Create(KeysAndValues(shape), 1, look->patches_, memory));
  look->kept_.emplace(std::move(kept));
  return std::unique_ptr<VisionTower::Look>(std::move(look));
}

double QwenLook::done() const {
  const double passes = 2.0 * shape().depth + 2;
  return (pass_ + double(at_) / double(patches_)) / passes;
}

Result<bool> QwenLook::Advance(const OpContext& context) {
  const int last = 2 * shape().depth + 1;
  const int64_t end = std::min(at_ + kRows, patches_);
  {
    const ScratchScope scope(*context.scratch);
    if (pass_ == 0) {
      Embed(context, at_, end);
    } else if (pass_ == last) {
      Merge(context, at_, end);
    } else {
      const Layer& layer = tower_.layers_[size_t(pass_ - 1) / 2];
      pass_ % 2 == 1 ? StoreInputs(context, layer, at_, end) : MixPatches(context, layer, at_, end);
    }
    const Status refusal = context.scratch->TakeRefusal();
    const Status error = context.backend->TakeError();
    REPRISE_TRY(refusal);
    REPRISE_TRY(error);
  }
  at_ = end;
  if (at_ < patches_) return false;
  at_ = 0;
  if (++pass_ <= last) return false;
  context.backend->memory().Synchronize();
  stream_ = {};
  queries_ = {};
  kept_.reset();
  return true;
}

Rows QwenLook::Stream(int64_t begin, int64_t end) const {
  const int64_t dim = shape().dim;
  return {stream_.data().As<float>() + begin * dim, end - begin, dim, dim};
}

Rows QwenLook::Queries(int64_t begin, int64_t end) const {
  const int64_t dim = shape().dim;
  return {queries_.data().As<float>() + begin * dim, end - begin, dim, dim};
}

// What the table says where the patches lie, stretched over the picture.
std::vector<float> QwenLook::TablePositions(int64_t begin, int64_t end) const {
  const int64_t dim = shape().dim;
  const int side = shape().table_side;
  std::vector<float> positions(size_t((end - begin) * dim));
  for (int64_t i = begin; i < end; ++i) {
    const PatchPlace place = PlaceOfPatch(i, columns_, tower_.card().rules);
    const Between y = PlaceInTable(place.row, rows_, side);
    const Between x = PlaceInTable(place.column, columns_, side);
    const auto entry = [&](int row, int column) {
      return tower_.table_.data() + (int64_t{row} * side + column) * dim;
    };
    const float* corners[] = {entry(y.low, x.low), entry(y.low, x.high), entry(y.high, x.low),
                              entry(y.high, x.high)};
    const float shares[] = {(1 - y.share) * (1 - x.share), (1 - y.share) * x.share,
                            y.share * (1 - x.share), y.share * x.share};
    float* out = positions.data() + (i - begin) * dim;
    for (int64_t c = 0; c < dim; ++c) {
      float sum = 0;
      for (int corner = 0; corner < 4; ++corner) sum = sum + corners[corner][c] * shares[corner];
      out[c] = sum;
    }
  }
  return positions;
}

std::vector<RopePlace> QwenLook::Places(int64_t begin, int64_t end) const {
  std::vector<RopePlace> places;
  for (int64_t i = begin; i < end; ++i) {
    const PatchPlace place = PlaceOfPatch(i, columns_, tower_.card().rules);
    places.push_back({0, place.row, place.column});
  }
  return places;
}

void QwenLook::Embed(const OpContext& context, int64_t begin, int64_t end) {
  const Rows x = Stream(begin, end);
  const Rows values =
      FromHost(context, MakePatches(pixels_, tower_.card().rules, begin, end), x.rows);
  Linear(context, values, tower_.patch_, tower_.patch_bias_, x);
  Add(context, x, FromHost(context, TablePositions(begin, end), x.rows), x);
}

void QwenLook::StoreInputs(const OpContext& context, const Layer& layer, int64_t begin,
                           int64_t end) {
  const int64_t dim = shape().dim, rows = end - begin;
  const Rows h = NewRows(context, rows, dim);
  const Rows qkv = NewRows(context, rows, 3 * dim);
  LayerNorm(context, Stream(begin, end), layer.norm1.data(), layer.norm1_bias.data(), 1, kEps, h);
  Linear(context, h, layer.qkv, layer.qkv_bias, qkv);
  const RopeTable rope =
      MakePlacedRopeTable(context, Places(begin, end), tower_.axes_, tower_.frequencies_.data());
  const Rows q = Columns(qkv, 0, dim), k = Columns(qkv, dim, dim);
  Rope(context, rope, shape().heads, q);
  Rope(context, rope, shape().heads, k);
  CopyHeads(context, 1, dim, q, 0, Queries(begin, end), 0);
  const std::vector<TokenId> tokens(size_t(rows), 0);
  const SequenceSlice slice = {
      0, uint32_t(rows), {int32_t(begin), int32_t(begin)}, kept_->blocks(0), StateId{0}};
  const StateMemory memory = kept_->memory();
  const BatchView batch = {tokens, {&slice, 1}, {}};
  const Step step(context, batch, memory, NoAdapters());
  StoreKv(context, step.layout(), step.Kv(0), KvOf(shape()), k, Columns(qkv, 2 * dim, dim));
}

void QwenLook::MixPatches(const OpContext& context, const Layer& layer, int64_t begin,
                          int64_t end) {
  const int64_t dim = shape().dim, rows = end - begin;
  const Rows x = Stream(begin, end);
  const Rows mixed = NewRows(context, rows, dim), y = NewRows(context, rows, dim);
  {
    const std::vector<TokenId> tokens(size_t(rows), 0);
    // Behind all patches, so that the sequence has all of their blocks.
    const auto past = int32_t(patches_ - rows);
    const SequenceSlice slice = {0, uint32_t(rows), {past, past}, kept_->blocks(0), StateId{0}};
    const StateMemory memory = kept_->memory();
    const BatchView batch = {tokens, {&slice, 1}, {}};
    const Step step(context, batch, memory, NoAdapters());
    AttentionParams params;
    params.q_heads = shape().heads;
    params.scale = 1 / std::sqrt(float(shape().head_dim()));
    params.sees = int(patches_);
    Attend(context, step.layout(), step.Kv(0), KvOf(shape()), params, Queries(begin, end), mixed);
  }
  Linear(context, mixed, layer.proj, layer.proj_bias, y);
  Add(context, x, y, x);
  LayerNorm(context, x, layer.norm2.data(), layer.norm2_bias.data(), 1, kEps, mixed);
  const Rows hidden = NewRows(context, rows, shape().hidden);
  Linear(context, mixed, layer.fc1, layer.fc1_bias, hidden);
  Gelu(context, hidden, hidden);
  Linear(context, hidden, layer.fc2, layer.fc2_bias, y);
  Add(context, x, y, x);
}

void QwenLook::Merge(const OpContext& context, int64_t begin, int64_t end) {
  const int64_t dim = shape().dim, out = shape().out;
  const int64_t of_token = int64_t{tower_.card().rules.merge} * tower_.card().rules.merge;
  const Rows normed = NewRows(context, end - begin, dim);
  LayerNorm(context, Stream(begin, end), tower_.merge_norm_.data(), tower_.merge_norm_bias_.data(),
            1, kEps, normed);
  // The patches of a token lie behind one another.
  const int64_t tokens = normed.rows / of_token, width = dim * of_token;
  const Rows joined = {normed.data, tokens, width, width};
  const Rows hidden = NewRows(context, tokens, width);
  Linear(context, joined, tower_.merge1_, tower_.merge1_bias_, hidden);
  GeluErf(context, hidden, hidden);
  Linear(context, hidden, tower_.merge2_, tower_.merge2_bias_,
         {vectors_.data().As<float>() + begin / of_token * out, tokens, out, out});
}

}  // namespace reprise
