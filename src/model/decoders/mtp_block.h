// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/decoders/block_part.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

struct MtpShape {
  AttentionShape attention;
  MlpShape mlp;
  std::unique_ptr<const MoeShape> moe;  // instead of `mlp`; or null
  float eps = 0;
  ValueForm norm_form = ValueForm::kPlain;
  std::string hf = "mtp.";  // what stands before its names in Hugging Face files
};

// A block of a decoder that predicts the token behind the next one (MTP): a layer of its own over
//
//   y_p = fc(norm(embedding of token p) | norm(h_{p-1}))
//
// with h what the final norm makes of the last layer, 0 before the first token. Its output, behind
// a norm of its own, is m_p; the model's head makes of it the logits of token p + 1, and m_p stands
// for h_p where the next guess is asked for.
//
// State: K/V of the layer, and h of the last token. Both are functions of tokens [0, p], so they
// live where all state lives, are published and shared. Every step of the model brings them up to
// date (Follow): that takes fc and the projections of K and V. Only who wants guesses computes the
// rest (Predict), for a row of a sequence: its K/V is stored at the row's place, where the step
// that runs the token writes over it, with h as it is instead of m.
class MtpBlock {
 public:
  // `layer`: behind the last of the model. `layer_state`: of its K/V; that of h is the next one.
  MtpBlock(MtpShape shape, int layer, size_t layer_state);

  LayerState kv() const { return attention_.state(); }
  LayerState hidden() const;
  size_t hidden_state() const { return layer_state_ + 1; }

  void Declare(TensorPlan* plan);
  void CompleteWeights();

  // embedded: of the tokens of the step; hidden: h of all rows.
  void Follow(const Step& step, const RopeTable& rope, const ConstRows& embedded,
              const ConstRows& hidden) const;
  // The same rows with what came before each, h or m; out: m. x: what m is the norm of.
  void Predict(const Step& step, const RopeTable& rope, const ConstRows& embedded,
               const ConstRows& before, const Rows& x, const Rows& out) const;

 private:
  int64_t dim() const { return shape_.attention.dim; }
  void Join(const Step& step, const ConstRows& embedded, const ConstRows& before,
            const Rows& out) const;

  MtpShape shape_;
  int layer_;
  size_t layer_state_;
  Attention attention_;
  std::unique_ptr<BlockPart> mlp_;
  Matrix fc_;
  Vector embedding_norm_, hidden_norm_, input_norm_, mlp_norm_, norm_;
  Vector before_;  // weights of a convolution that gives the row before
};

}  // namespace reprise
