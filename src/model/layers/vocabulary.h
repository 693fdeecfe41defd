// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"

namespace reprise {

// Both ends of a decoder: tokens to the residual stream, and the residual stream to logits.
class Vocabulary {
 public:
  struct Shape {
    int64_t size = 0;
    int64_t dim = 0;
    bool tied = false;  // one table serves both ends
    float eps = 0;
    ValueForm norm_form = ValueForm::kPlain;
    float embedding_scale = 1;    // of what comes out of the table
    float softcap = 0;            // logits are cap * tanh(logit / cap); 0: as they are
    float logit_scale = 1;        // before that
    bool scales_in_gguf = false;  // GGUF files have both scales in their weights
    bool layer_norm = false;      // the final norm is a layer norm with a bias
    std::string_view hf_embedding = "embed_tokens.weight";
    std::string_view hf_norm = "norm";  // without ".weight"
    std::string_view gguf_norm = "output_norm";
  };
  explicit Vocabulary(const Shape& shape) : shape_(shape) {}

  void DeclareEmbedding(TensorPlan* plan);
  void DeclareHead(TensorPlan* plan);

  // The residual stream of the batch: [rows, dim].
  Rows Embed(const Step& step) const;
  // Final norm and head for the rows whose logits are wanted, the norm of all where that is, and
  // which sequences are finite.
  void Logits(const Step& step, const ConstRows& x, const StepResults& results) const;
  // The parts of it: the final norm, and the head, for the rows whose logits are wanted; of the
  // first out.cols tokens alone, if that is fewer.
  void Norm(const OpContext& context, const ConstRows& x, const Rows& out) const;
  void Head(const Step& step, const ConstRows& normed, const Rows& out) const;

 private:
  static void AddAdapter(const Step& step, const Step::EmbeddedRows& rows, const Rows& x);
  // Of the rows whose logits are wanted; out: [logit_rows, size].
  void NormAndHead(const Step& step, const ConstRows& x, const Rows& out) const;

  Shape shape_;
  Matrix embedding_;
  Matrix head_;  // empty if tied
  Vector norm_, norm_bias_;
};

}  // namespace reprise
