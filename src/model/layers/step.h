// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/devices/moves.h"
#include "kernels/low_rank_ops.h"
#include "kernels/ops.h"
#include "model/placement/placement.h"
#include "state/batch.h"

namespace reprise {

// Where a step leaves what it found, in the memory of the backend.
struct StepResults {
  Rows logits;                // [logit_rows, vocabulary]
  DevicePtr<uint8_t> finite;  // [sequences], or null: not asked for
  Rows hidden = {};           // [rows, dim] behind the final norm, or no rows: not asked for
};

// One forward pass as its layers see it: the batch as ops want it, and where the state of a layer
// lies. Everything it hands out is valid until the end of the step.
//
// A model that lies on several devices has a Step on each: the one that is made is that of the
// first, home, where the vocabulary lies. A layer is given the one of its device.
class Step {
 public:
  // all: the contexts of the devices, home first; they outlive this. `weights`: those of the model
  // that adapters may change.
  Step(std::span<const OpContext> all, const BatchView& batch, const StateMemory& memory,
       const Placement& placement, const WeightIndex& weights);
  // On one device.
  Step(const OpContext& context, const BatchView& batch, const StateMemory& memory,
       const WeightIndex& weights);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // REQUIRES: this is home, or all lie on one device.
  const Step& OfLayer(int layer) const { return On(placement_.OfLayer(layer)); }
  // Where the routed experts of a layer compute. On any of them.
  const Step& OfExperts(int layer) const { return home_.On(placement_.OfExperts(layer)); }
  // What another device has made, brought here.
  Rows Bring(const Step& from, const ConstRows& x) const {
    return Moved(from.context_, x, context_);
  }
  RopeTable Bring(const Step& from, const RopeTable& table) const {
    return Moved(from.context_, table, rows(), context_);
  }
  // At home, behind the last layer: what the devices have found of sequences is known here.
  void JoinSpoilt() const;

  const OpContext& context() const { return context_; }
  // For ops on the rows whose logits are wanted.
  const OpContext& logit_context() const { return logit_context_; }
  const BatchView& batch() const { return batch_; }
  const StepLayout& layout() const { return layout_; }
  int64_t rows() const { return layout_.rows(); }
  // Whether rows of it have adapters.
  bool adapted() const { return !home_.adapted_.empty(); }
  // Rows to whose embeddings an adapter adds.
  struct EmbeddedRows {
    int64_t row_begin = 0;
    int64_t row_count = 0;
    const LowRank* product = nullptr;  // down: [vocabulary, rank], a row for each token
  };
  std::span<const EmbeddedRows> embedded() const { return embedded_; }

  // AttentionParams::ends where rows of a picture see all of it; empty: the step has no pictures.
  std::span<const int32_t> picture_ends() const { return home_.picture_ends_; }

  // Uninitialised activations [rows, cols].
  Rows MakeRows(int64_t cols) const { return MakeRows(rows(), cols); }
  Rows MakeRows(int64_t row_count, int64_t cols) const;

  // The K/V of a layer state (index in the model's StateSpec; tensor 0: K, tensor 1: V if there is
  // one).
  KvPlace Kv(size_t layer_state) const;
  // Adds what keys weigh with the rows of `q` that are watched, if any are. K is stored.
  void Watch(size_t layer_state, const KvShape& shape, const AttentionParams& params,
             const ConstRows& q) const;
  // One tensor of a recurrent layer state.
  size_t StateOffset(size_t layer_state, size_t tensor) const {
    return memory_.layout->place(layer_state, tensor);
  }

 private:
  Step(const Step& home, int device);
  const Step& On(int device) const {
    return device == Placement::kHome ? *this : *others_[size_t(device)];
  }
  void AddSequence(const SequenceSlice& sequence);
  void AddPictureEnds();
  void AddAdapter(const SequenceSlice& sequence);
  void FindAdaptedLogits();
  void SetMemory(int device);

  const std::span<const OpContext> all_;
  OpContext context_;  // with the adapters of the step
  const Placement& placement_;
  const Step& home_;
  const BatchView& batch_;
  const StateMemory& memory_;
  // What layout_ views.
  std::vector<int32_t> positions_;
  std::vector<int32_t> row_sequences_;
  std::vector<StepSequence> sequences_;
  std::vector<uint32_t> blocks_;
  std::vector<StepTap> taps_;
  std::vector<int32_t> logit_rows_;
  StepLayout layout_;
  std::vector<AdaptedRows> adapted_;  // at home
  StepAdapters adapters_;
  std::vector<std::unique_ptr<const Step>> others_;  // at home: by device, those that take part
  std::vector<int32_t> picture_ends_;
  std::vector<EmbeddedRows> embedded_;
  std::vector<AdaptedRows> adapted_logits_;
  StepAdapters logit_adapters_;
  OpContext logit_context_;  // with the adapters of the rows whose logits are wanted
};

}  // namespace reprise
