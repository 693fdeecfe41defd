// SPDX-License-Identifier: Apache-2.0
#include "model/layers/step.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/keep_ops.h"
#include "model/adapter/adapter.h"

namespace reprise {
namespace {

size_t BlockCount(const SequenceSlice& sequence) {
  const size_t rows = size_t(sequence.past.physical) + sequence.row_count;
  return (rows + kBlockTokens - 1) / kBlockTokens;
}

// Behind a picture a row stands at one number again, though not at how many tokens are before it:
// where all do, their positions are these.
void PlaceRows(std::span<const RopePlace> places, std::vector<int32_t>* positions) {
  const auto is_one = [](const RopePlace& at) { return at[0] == at[1] && at[0] == at[2]; };
  if (places.empty() || !std::all_of(places.begin(), places.end(), is_one)) return;
  CHECK(places.size() == positions->size());
  for (size_t i = 0; i < places.size(); ++i) (*positions)[i] = places[i][0];
}

const Placement& AllAtHome() {
  static const Placement placement;
  return placement;
}

}  // namespace

Step::Step(std::span<const OpContext> all, const BatchView& batch, const StateMemory& memory,
           const Placement& placement, const WeightIndex& weights)
    : all_(all),
      context_(all.front()),
      placement_(placement),
      home_(*this),
      batch_(batch),
      memory_(memory),
      logit_context_(all.front()) {
  CHECK(!batch.tokens.empty());
  positions_.reserve(batch.tokens.size());
  row_sequences_.reserve(batch.tokens.size());
  sequences_.reserve(batch.sequences.size());
  for (const SequenceSlice& sequence : batch.sequences) {
    AddSequence(sequence);
    AddAdapter(sequence);
  }
  CHECK(positions_.size() == batch.tokens.size());
  logit_rows_.assign(batch.logit_rows.begin(), batch.logit_rows.end());
  for (size_t i = 0; i < logit_rows_.size(); ++i) {
    CHECK(size_t(logit_rows_[i]) < batch.tokens.size() &&
          (i == 0 || logit_rows_[i - 1] < logit_rows_[i]));
  }
  if (!batch.pictures.empty()) AddPictureEnds();
  PlaceRows(batch.places, &positions_);
  layout_.host = {batch.tokens, positions_, row_sequences_, sequences_,
                  blocks_,      taps_,      logit_rows_};
  adapters_ = {&weights, adapted_, layout_.rows()};
  if (adapted()) {
    FindAdaptedLogits();
    logit_adapters_ = {&weights, adapted_logits_, int64_t(logit_rows_.size())};
    context_.adapters = &adapters_;
    logit_context_.adapters = &logit_adapters_;
  }
  // Home begins last: a thread works with the GPU that it called last.
  others_.resize(all.size());
  for (const std::vector<int>* devices : {&placement.layers, &placement.experts}) {
    for (const int device : *devices) {
      if (device == Placement::kHome || others_[size_t(device)] != nullptr) continue;
      others_[size_t(device)].reset(new Step(*this, device));
    }
  }
  SetMemory(Placement::kHome);
  layout_.choices = batch.choices;
  BeginStep(context_, &layout_);
}

Step::Step(const OpContext& context, const BatchView& batch, const StateMemory& memory,
           const WeightIndex& weights)
    : Step(std::span(&context, 1), batch, memory, AllAtHome(), weights) {}

Step::Step(const Step& home, int device)
    : all_(home.all_),
      context_(home.all_[size_t(device)]),
      placement_(home.placement_),
      home_(home),
      batch_(home.batch_),
      memory_(home.memory_),
      logit_context_(context_) {
  layout_.host = home.layout_.host;
  context_.adapters = home.context_.adapters;
  SetMemory(device);
  BeginStep(context_, &layout_);
}

void Step::SetMemory(int device) {
  const StateLayout& layout = *memory_.layout;
  layout_.block_bytes = layout.block_bytes(device);
  layout_.state_bytes = layout.state_bytes(device);
  if (layout_.block_bytes > 0) layout_.block_memory = memory_.blocks_in(device);
  if (layout_.state_bytes > 0) layout_.state_memory = memory_.states_in(device);
}

void Step::JoinSpoilt() const {
  if (context_.scratch->refused()) return;
  const size_t count = sequences_.size();
  std::vector<int32_t> flags(count), all(count);
  for (const auto& other : others_) {
    if (other == nullptr || other->context_.scratch->refused() || !other->layout_.spoilt) continue;
    other->context_.backend->memory().DownloadArray<int32_t>(flags, other->layout_.spoilt);
    for (size_t i = 0; i < count; ++i) all[i] |= flags[i];
  }
  if (std::all_of(all.begin(), all.end(), [](int32_t flag) { return flag == 0; })) return;
  DeviceMemory& memory = context_.backend->memory();
  memory.DownloadArray<int32_t>(flags, layout_.spoilt);
  for (size_t i = 0; i < count; ++i) all[i] |= flags[i];
  memory.UploadArray<int32_t>(layout_.spoilt, all);
}

// Neighbours with one adapter are multiplied together.
void Step::AddAdapter(const SequenceSlice& sequence) {
  if (sequence.adapter == nullptr || sequence.adapted_from >= sequence.row_count) return;
  const std::span<const LowRank> products = sequence.adapter->products();
  const int64_t begin = int64_t{sequence.row_begin} + sequence.adapted_from;
  const int64_t count = int64_t{sequence.row_count} - sequence.adapted_from;
  if (!adapted_.empty() && adapted_.back().products.data() == products.data() &&
      adapted_.back().row_begin + adapted_.back().row_count == begin) {
    adapted_.back().row_count += count;
  } else {
    adapted_.push_back(
        {begin, count, products, sequence.adapter->table(), sequence.adapter->shape()});
  }
  const LowRank& embedding = sequence.adapter->embedding();
  if (!embedding.empty()) embedded_.push_back({begin, count, &embedding});
}

// The rows whose logits are wanted, of those with adapters.
void Step::FindAdaptedLogits() {
  for (const AdaptedRows& rows : adapted_) {
    const auto place = [&](int64_t row) {
      return std::lower_bound(logit_rows_.begin(), logit_rows_.end(), int32_t(row)) -
             logit_rows_.begin();
    };
    const int64_t begin = place(rows.row_begin);
    const int64_t end = place(rows.row_begin + rows.row_count);
    if (begin < end) adapted_logits_.push_back({begin, end - begin, rows.products, nullptr, 0});
  }
}

void Step::AddSequence(const SequenceSlice& sequence) {
  CHECK(sequence.row_begin == positions_.size() && sequence.past.physical >= 0 &&
        sequence.past.logical >= sequence.past.physical);
  StepSequence& added = sequences_.emplace_back();
  added.row_begin = int32_t(sequence.row_begin);
  added.row_count = int32_t(sequence.row_count);
  added.position = sequence.past.physical;
  added.state = sequence.state.value;
  for (uint32_t i = 0; i < sequence.row_count; ++i) {
    positions_.push_back(sequence.past.logical + int32_t(i));
    row_sequences_.push_back(int32_t(sequences_.size()) - 1);
  }
  added.tap_begin = int32_t(taps_.size());
  added.tap_count = int32_t(sequence.taps.size());
  for (const StateTap& tap : sequence.taps) {
    taps_.push_back({int32_t(sequence.row_begin + tap.row_count), tap.state.value});
  }
  if (memory_.layout->block_bytes() == 0) return;
  CHECK(sequence.blocks.size() >= BlockCount(sequence));
  added.block_begin = int32_t(blocks_.size());
  added.block_count = int32_t(BlockCount(sequence));
  static_assert(BlockId::kNone == kNoBlock);
  for (size_t b = 0; b < BlockCount(sequence); ++b) blocks_.push_back(sequence.blocks[b].value);
}

// A part of a picture in a step is its end.
void Step::AddPictureEnds() {
  for (const StepSequence& sequence : sequences_) {
    for (int32_t row = 0; row < sequence.row_count; ++row) {
      picture_ends_.push_back(sequence.position + row + 1);
    }
  }
  for (const PictureRows& picture : batch_.pictures) {
    const auto begin = picture_ends_.begin() + picture.row_begin;
    const auto end = begin + picture.row_count;
    std::fill(begin, end, *(end - 1));
  }
}

Rows Step::MakeRows(int64_t row_count, int64_t cols) const {
  return Rows{context_.scratch->Floats(size_t(row_count * cols)), row_count, cols, cols};
}

KvPlace Step::Kv(size_t layer_state) const {
  const bool has_values = memory_.layout->tensor_count(layer_state) > 1;
  return {memory_.layout->place(layer_state, 0),
          has_values ? memory_.layout->place(layer_state, 1) : 0};
}

void Step::Watch(size_t layer_state, const KvShape& shape, const AttentionParams& params,
                 const ConstRows& q) const {
  for (const WatchedRows& one : batch_.watched) {
    const SequenceSlice& slice = batch_.sequences[one.sequence];
    ScoredRows rows;
    rows.sequence = int32_t(one.sequence);
    rows.row_begin = int32_t(slice.row_begin + one.row_begin);
    rows.row_count = int32_t(one.row_count);
    rows.weights = one.weights + int64_t(memory_.layout->list_begin(layer_state)) * one.stride;
    rows.stride = one.stride;
    if (&home_ == this) {
      ScoreKeys(context_, layout_, Kv(layer_state), shape, params, q, rows);
      continue;
    }
    // The weights lie at home: they come here, are added to, and go back.
    const ScratchScope scope(*context_.scratch);
    const Rows there = {rows.weights, shape.kv_heads, one.stride, one.stride};
    const Rows here = Bring(home_, there);
    rows.weights = here.data;
    ScoreKeys(context_, layout_, Kv(layer_state), shape, params, q, rows);
    MoveRows(context_, here, home_.context_, there);
  }
}

}  // namespace reprise
