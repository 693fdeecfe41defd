// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/families/zamba2/config.h"
#include "model/families/zamba2/shared_block.h"
#include "model/family.h"
#include "model/layers/mamba2.h"
#include "model/layers/rotary.h"
#include "model/layers/vocabulary.h"

namespace reprise {

// x += mamba2(norm(x)); in layers that use a shared block, x += mamba2(norm(x + W block([x | what
// the first layer got]))).
class Zamba2Model final : public FamilyModel {
 public:
  Zamba2Model(const Zamba2Config& config, DType kv);

  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  std::string DescribeNumerics() const override;
  void DescribeGguf(GgufWriter* out) const override { DescribeZamba2(config_, out); }
  void Run(const Step& home, const StepResults& results) const override;

 private:
  struct Layer {
    explicit Layer(Mamba2 m) : mamba(std::move(m)) {}
    Mamba2 mamba;
    Vector norm;
    int use = -1;       // of a block; -1: none
    Matrix projection;  // of what the block gives
  };
  // What a step has on one device.
  struct Lane {
    const Step* step = nullptr;
    Rows x, first, h, y;
    RopeTable rope;
  };

  Lane MakeLane(const Step& step, const Rows& x, const Rows& first, const RopeTable& rope) const;
  // The lane of another device, or the same.
  Lane Moved(const Lane& lane, const Step& to) const;
  // y = what the layer's block adds to its input.
  void RunBlock(const Step& home, const Lane& lane, const Layer& layer) const;

  const Zamba2Config config_;
  Vocabulary vocabulary_;
  std::vector<std::unique_ptr<Zamba2Block>> blocks_;
  std::vector<Layer> layers_;
  Rotary rotary_;
};

}  // namespace reprise
