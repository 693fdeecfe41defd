// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/low_rank_ops.h"
#include "kernels/ops.h"
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
class Step {
 public:
  // `weights`: those of the model that adapters may change.
  Step(const OpContext& context, const BatchView& batch, const StateMemory& memory,
       const WeightIndex& weights);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const OpContext& context() const { return context_; }
  const BatchView& batch() const { return batch_; }
  const StepLayout& layout() const { return layout_; }
  int64_t rows() const { return layout_.rows(); }
  // Whether rows of it have adapters.
  bool adapted() const { return !adapters_.rows.empty(); }

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
    return memory_.layout->offset(layer_state, tensor);
  }

 private:
  void AddSequence(const SequenceSlice& sequence);
  void AddAdapter(const SequenceSlice& sequence);

  OpContext context_;  // with the adapters of the step
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
  std::vector<AdaptedRows> adapted_;
  StepAdapters adapters_;
};

}  // namespace reprise
