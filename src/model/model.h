// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "kernels/low_rank_ops.h"
#include "kernels/op_context.h"
#include "model/placement/placement.h"
#include "state/batch.h"
#include "state/spec.h"
#include "tensor/dtype.h"

namespace reprise {

struct AdaptableModel;
class Devices;
class Step;
class VisionTower;
struct StepResults;

// What a loaded model says about itself.
struct ModelCard {
  std::string family;
  int64_t vocab_size = 0;
  int64_t dim = 0;  // of the residual stream, and so of the vectors of texts; 0: gives none
  // Tokens of the longest sequence: that it was trained for, or, if less, that it was loaded for.
  int64_t context_length = 0;
  std::string rope_regime;  // for people: which one the context chose; empty: there is no choice
  int64_t parameter_count = 0;  // of all weights
  size_t weight_bytes = 0;      // resident, as packed
  // Bytes of the matrices that a step of one token reads (the embedding table only where it is the
  // head, of experts those that a token goes to).
  size_t step_bytes = 0;
  DType main_type = DType::kF32;  // of most of these bytes
  // Multiply-adds per token of the matrix products, without and with the head.
  double layer_products = 0;
  double head_products = 0;
  // What a token's state depends on besides the tokens before it: weights with their quantisation,
  // numerics of the family, rotary regime, layout of the state. 32 hex digits.
  std::string digest;
  StateSpec state;
  // With a block that predicts further tokens (Model::Predict): the layer state that holds what the
  // final norm made of the last token. None: why there is no block.
  std::optional<size_t> mtp_state;
  std::string mtp_absent;     // also of one that was not asked for: empty
  bool mtp_declared = false;  // the model says that it has one
  // Rows of a picture see all of it: no step ends inside one (PictureRows reach to its end).
  bool whole_pictures = false;
  // Of which guesses are mostly made, if their device can leave out the others: vocabularies begin
  // with what is said most. 0: of all.
  int32_t common_tokens = 0;
};

// A model: a function from tokens and state to logits and state.
//
// Thread safety: Forward is called by one thread at a time; it runs on the pool of its context.
class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelCard& card() const { return card_; }
  const StateSpec& state_spec() const { return card_.state; }
  int64_t vocab_size() const { return card_.vocab_size; }
  // What adapters need to know of it; outlives it.
  const std::shared_ptr<const AdaptableModel>& adaptable() const { return adaptable_; }
  // What looks at pictures for it (vision/tower.h); null: it reads text only.
  const VisionTower* tower() const { return tower_.get(); }
  // The devices that it was loaded on, the first of which is that of every context that it is run
  // with; null: it lies on one alone. Where its layers lie on them.
  Devices* devices() const { return devices_; }
  const Placement& placement() const { return placement_; }
  // The contexts that a step runs on, and the memory that state lies in, for this one, home.
  std::span<const OpContext> ContextsOf(const OpContext& context) const;
  DeviceMemory& StateMemoryOf(const OpContext& context) const;

  // One step: reads and extends the state of every sequence of the batch and writes the logits of
  // batch.logit_rows, in order, to `logits` [logit_rows, vocab_size]. Row i of a sequence depends
  // on that sequence's tokens alone: the same bits in any batch, however the tokens were cut into
  // steps.
  // REQUIRES: at least one token, every one in [0, vocab_size); the memory has the layout of
  // state_spec().
  // Fails with kResourceExhausted, before anything is computed, if the device has no memory to
  // compute in; with kDataLoss if it ran out of memory on the way, and with kInternal if it did not
  // do what it was asked to: the state that the sequences had is lost then.
  Status Forward(const OpContext& context, const BatchView& batch, const StateMemory& memory,
                 float* logits) const;

  // The same, but asked for, not waited for, and with the results in the memory of the backend:
  // what batch.finite and batch.hidden point to is not filled.
  Status Begin(const OpContext& context, const BatchView& batch, const StateMemory& memory,
               const StepResults& results) const;

  // A guess for each sequence: what its block that predicts further tokens makes of one row a
  // sequence, all of whose logits are wanted. logits: [rows, vocabulary], or [rows,
  // card().common_tokens]: of the first tokens alone. hidden: [rows, dim], what came before each
  // row, which is taken from the state of the sequences if `first`; then what comes before the
  // next. State of the sequences stays as it is, but for K/V of the block at these rows, behind the
  // end. REQUIRES: card().mtp_state, one device. Fails as Forward does; then no state is lost.
  Status Predict(const OpContext& context, const BatchView& batch, const StateMemory& memory,
                 bool first, std::span<float> hidden, std::span<float> logits) const;

 protected:
  Model() = default;

  // The ops of a step, and nothing else: what they do depends on the step's shape alone, so that a
  // backend may keep them and run them again for the next step of that shape (Backend::RunStep).
  virtual void Run(const Step& step, const StepResults& results) const = 0;
  // The same for Predict, where `before` stands for the state of `hidden`. Families without such a
  // block do not come here.
  virtual void Predict(const Step& step, const ConstRows& before, const StepResults& results) const;

  ModelCard card_;
  std::shared_ptr<const AdaptableModel> adaptable_;
  WeightIndex weights_;  // that adapters may change, by their places in the plan
  std::shared_ptr<const VisionTower> tower_;
  Devices* devices_ = nullptr;
  Placement placement_;
};

}  // namespace reprise
