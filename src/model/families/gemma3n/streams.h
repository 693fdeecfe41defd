// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/families/gemma3n/config.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"

namespace reprise {

// AltUp: a token has several streams, one of which goes through the layers. Before a layer every
// stream is predicted from all of them, behind it every one takes a part of what the layer has
// changed; how much, a small router says. Rows are [rows, streams * dim], one stream behind
// another.
class StreamRouter {
 public:
  StreamRouter(const Gemma3nConfig& config, int layer) : config_(&config), layer_(layer) {}

  void Declare(TensorPlan* plan);
  void CompleteWeights();
  void Predict(const Step& step, const Rows& streams, const Rows& predicted) const;
  // `computed` is what the layer has made of the active stream of `predicted`.
  void Correct(const Step& step, const ConstRows& computed, const Rows& predicted) const;
  // The active stream as the gate of the embeddings for layers sees it; into `out` where it is
  // scaled.
  ConstRows Seen(const Step& step, const Rows& streams, const Rows& out) const;

 private:
  // [rows, streams]: tanh of products with the normed active stream.
  Rows Route(const Step& step, const ConstRows& active) const;

  const Gemma3nConfig* config_;
  int layer_;
  Vector norm_, scale_;
  Matrix router_, predict_, correct_;
};

// Stream i of all: columns [i * dim, (i + 1) * dim).
inline Rows StreamOf(const Rows& streams, int i, int64_t dim) {
  return Columns(streams, i * dim, dim);
}

// Both ends of the streams: all of them from one, as long as it; and their mean, each brought to
// the length of the first.
class StreamEnds {
 public:
  explicit StreamEnds(const Gemma3nConfig& config) : config_(&config) {}

  void Declare(TensorPlan* plan);
  void Divide(const Step& step, const Rows& x, const Rows& streams) const;
  void Join(const Step& step, const Rows& streams, const Rows& x) const;

 private:
  const Gemma3nConfig* config_;
  Matrix divide_, join_;  // stacks of streams - 1
};

}  // namespace reprise
