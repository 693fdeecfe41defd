// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/config/reader.h"
#include "model/decoders/block_part.h"
#include "model/layers/attention.h"
#include "model/layers/mla.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "model/layers/step.h"
#include "model/layers/vocabulary.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

struct MtpShape {
  int64_t dim = 0;
  std::variant<AttentionShape, MlaShape> attention;
  MlpShape mlp;
  std::unique_ptr<const MoeShape> moe;  // instead of `mlp`; or null
  float eps = 0;
  ValueForm norm_form = ValueForm::kPlain;
  // What stands before its names in Hugging Face files; empty: it is a further layer of the model,
  // with names of its own (DeepSeek, GLM).
  std::string hf = "mtp.";
  std::string gguf_mlp_norm = "post_attention_norm.weight";
};

// Whether the reader is to make a model with a block that is a further layer of it, and the file
// says that there is one. (Of several nobody has said how they follow each other.)
bool ReadsMtpLayer(ConfigReader* reader);

// Its attention: one that can leave its K/V alone.
class MtpAttention : public BlockPart {
 public:
  virtual LayerState state() const = 0;
  virtual void Store(const Step& step, const RopeTable& rope, const ConstRows& x) const = 0;
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

  LayerState kv() const { return attention_->state(); }
  LayerState hidden() const;
  size_t hidden_state() const { return layer_state_ + 1; }

  void Declare(TensorPlan* plan);
  void CompleteWeights();

  // The end of a step of the model, with what came out of its last layer: in place of
  // Vocabulary::Logits.
  void Finish(const Step& step, const Vocabulary& vocabulary, const RopeTable& rope,
              const ConstRows& x, const StepResults& results) const;
  // Model::Predict.
  void Guess(const Step& step, const Vocabulary& vocabulary, const RopeTable& rope,
             const ConstRows& before, const StepResults& results) const;

 private:
  // embedded: of the tokens of the step; hidden: h of all rows.
  void Follow(const Step& step, const RopeTable& rope, const ConstRows& embedded,
              const ConstRows& hidden) const;
  // The same rows with what came before each, h or m; out: m. x: what m is the norm of.
  void Predict(const Step& step, const RopeTable& rope, const ConstRows& embedded,
               const ConstRows& before, const Rows& x, const Rows& out) const;
  int64_t dim() const { return shape_.dim; }
  void Join(const Step& step, const ConstRows& embedded, const ConstRows& before,
            const Rows& out) const;

  MtpShape shape_;
  int layer_;
  size_t layer_state_;
  std::unique_ptr<MtpAttention> attention_;
  std::unique_ptr<BlockPart> mlp_;
  Matrix fc_;
  Vector embedding_norm_, hidden_norm_, input_norm_, mlp_norm_, norm_;
  Vector before_;  // weights of a convolution that gives the row before
};

}  // namespace reprise
