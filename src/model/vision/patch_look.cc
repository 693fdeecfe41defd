// SPDX-License-Identifier: Apache-2.0
#include "model/vision/patch_look.h"

#include <algorithm>
#include <utility>

#include "kernels/activation_ops.h"
#include "model/layers/step.h"

namespace reprise {
namespace {

// Nothing of a tower is changed by adapters.
const WeightIndex& NoAdapters() {
  static const WeightIndex none;
  return none;
}

}  // namespace

PatchLook::PatchLook(const VisionTower& tower, const Sizes& sizes, const Pixels& pixels)
    : tower_(tower),
      sizes_(sizes),
      pixels_(pixels),
      columns_(pixels.width / tower.card().rules.patch),
      rows_(pixels.height / tower.card().rules.patch),
      patches_(int64_t{columns_} * rows_),
      of_token_(int64_t{tower.card().rules.merge} * tower.card().rules.merge) {}

Status PatchLook::Allocate(const OpContext& context) {
  DeviceMemory& memory = context.backend->memory();
  const auto floats = [&](int64_t count) { return memory.Allocate(size_t(count) * sizeof(float)); };
  REPRISE_ASSIGN(stream_, floats(patches_ * sizes_.dim));
  REPRISE_ASSIGN(queries_, floats(patches_ * width()));
  REPRISE_ASSIGN(vectors_, floats(patches_ / of_token_ * sizes_.out));
  int64_t angles = 0;
  for (const auto& axes : sizes_.turns) angles += 2 * patches_ * int64_t(axes.size());
  if (angles > 0) {
    REPRISE_ASSIGN(angles_, floats(angles));
  }
  of_part_ = context.backend->step_rows() / of_token_ * of_token_;
  // Tensor cores take 16 bits.
  kv_ = memory.copies_by_caller() ? DType::kF32 : DType::kF16;
  StateSpec spec;
  const std::vector<int64_t> heads = {sizes_.heads, sizes_.head_dim};
  spec.layers.emplace_back().tensors = {{"k", heads, kv_}, {"v", heads, kv_}};
  REPRISE_ASSIGN(LiveState kept, LiveState::Create(spec, 1, patches_, memory));
  kept_.emplace(std::move(kept));
  return OkStatus();
}

double PatchLook::done() const {
  const double passes = 2.0 * sizes_.layers + 2;
  return (pass_ + double(at_) / double(patches_)) / passes;
}

void PatchLook::RunPart(const OpContext& context, int64_t end) {
  if (pass_ == 0) {
    MakeAngles(context, at_, end);
    return Embed(context, at_, end);
  }
  const int layer = (pass_ - 1) / 2;
  if (layer == sizes_.layers) return Merge(context, at_, end);
  pass_ % 2 == 1 ? StoreInputs(context, layer, at_, end) : MixPatches(context, layer, at_, end);
}

Result<bool> PatchLook::Advance(const OpContext& context) {
  const int64_t end = std::min(at_ + of_part_, patches_);
  {
    const ScratchScope scope(*context.scratch);
    RunPart(context, end);
    const Status refusal = context.scratch->TakeRefusal();
    const Status error = context.backend->TakeError();
    REPRISE_TRY(refusal);
    REPRISE_TRY(error);
  }
  at_ = end;
  if (at_ < patches_) return false;
  at_ = 0;
  if (++pass_ <= 2 * sizes_.layers + 1) return false;
  context.backend->memory().Synchronize();
  stream_ = {};
  queries_ = {};
  angles_ = {};
  kept_.reset();
  return true;
}

Rows PatchLook::Stream(int64_t begin, int64_t end) const {
  return {stream_.data().As<float>() + begin * sizes_.dim, end - begin, sizes_.dim, sizes_.dim};
}

Rows PatchLook::Queries(int64_t begin, int64_t end) const {
  return {queries_.data().As<float>() + begin * width(), end - begin, width(), width()};
}

Rows PatchLook::Vectors(int64_t begin, int64_t end) const {
  const int64_t first = begin / of_token_, count = (end - begin) / of_token_;
  return {vectors_.data().As<float>() + first * sizes_.out, count, sizes_.out, sizes_.out};
}

void PatchLook::MeanOf(const OpContext& context, const ConstRows& x, int64_t rows,
                       const Rows& mean) {
  const auto every = [&](int64_t index) {
    return ConstRows{x.data + index * x.stride, mean.rows, x.cols, x.stride * rows};
  };
  CopyHeads(context, 1, x.cols, every(0), 0, mean, 0);
  for (int64_t i = 1; i < rows; ++i) Add(context, mean, every(i), mean);
  Scale(context, mean, 1 / float(rows), mean);
}

Rows PatchLook::NewRows(const OpContext& context, int64_t rows, int64_t cols) {
  return {context.scratch->Floats(size_t(rows * cols)), rows, cols, cols};
}

Rows PatchLook::FromHost(const OpContext& context, const std::vector<float>& values, int64_t rows) {
  const Rows out = NewRows(context, rows, int64_t(values.size()) / rows);
  if (!context.scratch->refused()) {
    context.backend->memory().UploadArray<float>(out.data, std::span<const float>(values));
  }
  return out;
}

Rows PatchLook::Patches(const OpContext& context, int64_t begin, int64_t end) const {
  const int64_t square = int64_t{rules().patch} * rules().patch;
  const int frames = rules().frames;
  PatchRules still = rules();  // every frame is the same
  still.frames = 1;
  const auto make = [&](int64_t from, int64_t to, float* values) {
    std::ranges::copy(MakePatches(pixels_, still, from, to), values);
  };
  const Rows one = FromPatches(context, begin, end, 3 * square, make);
  if (frames == 1) return one;
  const Rows all = NewRows(context, one.rows, 3 * frames * square);
  for (int frame = 0; frame < frames; ++frame) {
    const int64_t at = frame * square;
    CopyHeads(context, 3, square, one, square, Columns(all, at, all.cols - at), frames * square);
  }
  return all;
}

// 0, row, column.
std::vector<RopePlace> PatchLook::Places(int64_t begin, int64_t end) const {
  std::vector<RopePlace> places;
  for (int64_t i = begin; i < end; ++i) {
    const PatchPlace place = PlaceOfPatch(i, columns_, rules());
    places.push_back({0, place.row, place.column});
  }
  return places;
}

Rows PatchLook::Angles(size_t table, bool sin, int64_t begin, int64_t end) const {
  const auto half = int64_t(sizes_.turns[table].size());
  int64_t at = sin ? patches_ * half : 0;
  for (size_t i = 0; i < table; ++i) at += 2 * patches_ * int64_t(sizes_.turns[i].size());
  return {angles_.data().As<float>() + at + begin * half, end - begin, half, half};
}

void PatchLook::MakeAngles(const OpContext& context, int64_t begin, int64_t end) {
  const std::vector<RopePlace> places = Places(begin, end);
  for (size_t i = 0; i < sizes_.turns.size(); ++i) {
    const RopeTable table =
        MakePlacedRopeTable(context, places, sizes_.turns[i], sizes_.frequencies);
    for (const bool sin : {false, true}) {
      const ConstRows made = {sin ? table.sin : table.cos, end - begin, table.half, table.half};
      CopyHeads(context, 1, table.half, made, 0, Angles(i, sin, begin, end), 0);
    }
  }
}

void PatchLook::Turn(const OpContext& context, size_t table, int64_t begin, const Rows& x,
                     int64_t offset) const {
  const Rows cos = Angles(table, false, begin, begin + x.rows);
  const Rows sin = Angles(table, true, begin, begin + x.rows);
  Rope(context, {cos.data, sin.data, int(cos.cols)}, sizes_.heads, x, offset);
}

KvShape PatchLook::Kv() const {
  KvShape kv;
  kv.kv_heads = sizes_.heads;
  kv.head_dim = kv.value_dim = sizes_.head_dim;
  kv.dtype = kv_;
  return kv;
}

void PatchLook::Keep(const OpContext& context, int64_t begin, const ConstRows& q,
                     const ConstRows& k, const ConstRows& v) {
  CopyHeads(context, 1, width(), q, 0, Queries(begin, begin + q.rows), 0);
  const std::vector<TokenId> tokens(size_t(q.rows), 0);
  const SequenceSlice slice = {
      0, uint32_t(q.rows), {int32_t(begin), int32_t(begin)}, kept_->blocks(0), StateId{0}};
  const StateMemory memory = kept_->memory();
  const BatchView batch = {tokens, {&slice, 1}, {}};
  const Step step(context, batch, memory, NoAdapters());
  StoreKv(context, step.layout(), step.Kv(0), Kv(), k, v);
}

void PatchLook::AttendAll(const OpContext& context, int64_t begin, int64_t end,
                          const Rows& out) const {
  const int64_t count = end - begin;
  const std::vector<TokenId> tokens(size_t(count), 0);
  // Behind all patches, so that the sequence has all of their blocks.
  const auto past = int32_t(patches_ - count);
  const SequenceSlice slice = {0, uint32_t(count), {past, past}, kept_->blocks(0), StateId{0}};
  const StateMemory memory = kept_->memory();
  const BatchView batch = {tokens, {&slice, 1}, {}};
  const Step step(context, batch, memory, NoAdapters());
  const std::vector<int32_t> ends(static_cast<size_t>(count), static_cast<int32_t>(patches_));
  AttentionParams params;
  params.q_heads = sizes_.heads;
  params.scale = sizes_.scale;
  params.ends = ends;
  Attend(context, step.layout(), step.Kv(0), Kv(), params, Queries(begin, end), out);
}

}  // namespace reprise
