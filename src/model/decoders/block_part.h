// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "kernels/ops.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"

namespace reprise {

// What a residual block adds to the stream: any layer, seen through one door.
class BlockPart {
 public:
  virtual ~BlockPart() = default;
  virtual void Declare(TensorPlan* plan) = 0;
  virtual void CompleteWeights() = 0;
  // x is already normalised.
  virtual void Forward(const Step& step, const RopeTable& rope, const ConstRows& x,
                       const Rows& out) const = 0;
};

template <typename Layer>
class LayerPart final : public BlockPart {
 public:
  explicit LayerPart(Layer layer) : layer_(std::move(layer)) {}
  void Declare(TensorPlan* plan) override { layer_.Declare(plan); }
  void CompleteWeights() override {
    if constexpr (requires { layer_.CompleteWeights(); }) layer_.CompleteWeights();
  }
  void Forward(const Step& step, const RopeTable& rope, const ConstRows& x,
               const Rows& out) const override {
    if constexpr (requires { layer_.Forward(step, rope, x, out); }) {
      layer_.Forward(step, rope, x, out);
    } else {
      layer_.Forward(step, x, out);
    }
  }

 private:
  Layer layer_;
};

}  // namespace reprise
