// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/vector.h"
#include "model/config/rope.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"

namespace reprise {

// The angles of a decoder: from its configuration, or from the divisors that GGUF files have as
// tensors.
class Rotary {
 public:
  explicit Rotary(const RopeConfig& config) : config_(config) {}

  void Declare(TensorPlan* plan);
  // The same where files have no divisors for it.
  void DeclareAngles(TensorPlan* plan) { plan->AddDerived(&frequencies_); }
  void CompleteWeights();
  // The rotations of the rows of a step.
  RopeTable Table(const Step& step) const;

 private:
  RopeConfig config_;
  // Of the file; empty if it has none.
  std::vector<float> divisors_, short_factors_, long_factors_;
  Vector frequencies_;
};

}  // namespace reprise
