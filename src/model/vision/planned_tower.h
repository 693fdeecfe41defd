// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/rows.h"
#include "kernels/vector.h"
#include "model/tensor_plan.h"
#include "model/vision/tower.h"

namespace reprise {

// A tower that is loaded by a plan of its tensors (load_tower.cc).
class PlannedTower : public VisionTower {
 public:
  // With pointers into this object; called once.
  virtual void DeclareTensors(TensorPlan* plan) = 0;
  // When the tensors are in place.
  virtual Status CompleteWeights(const OpContext& context) = 0;
  void HoldVectors(DeviceBuffer memory) { vectors_ = std::move(memory); }
  TowerCard* mutable_card() { return &card_; }

 protected:
  // A matrix that a file does not have as one: [values.size() / cols, cols] in F32.
  static Status Pack(const OpContext& context, const std::vector<float>& values, int64_t cols,
                     Matrix* out);

 private:
  DeviceBuffer vectors_;
};

// y = W x + b.
void Linear(const OpContext& context, const ConstRows& x, const Matrix& weight, const Vector& bias,
            const Rows& out);

// Names and places of a layer's or a projector's parts: "<name>.weight" and "<name>.bias".
void DeclareLinear(TensorPlan* plan, const std::string& hf, const std::string& gguf, int64_t rows,
                   int64_t cols, Matrix* weight, Vector* bias);
void DeclareLayerNorm(TensorPlan* plan, const std::string& hf, const std::string& gguf, int64_t dim,
                      Vector* weight, Vector* bias);

}  // namespace reprise
