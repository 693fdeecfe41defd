// SPDX-License-Identifier: Apache-2.0
#include "model/vision/planned_tower.h"

#include <memory>

#include "kernels/backend.h"
#include "kernels/ops.h"

namespace reprise {

Status PlannedTower::Pack(const OpContext& context, const std::vector<float>& values, int64_t cols,
                          Matrix* out) {
  const int64_t rows = int64_t(values.size()) / cols;
  REPRISE_ASSIGN(std::unique_ptr<PackedMatrix> packed,
                 context.backend->MakeMatrix({DType::kF32, 1, rows, cols}));
  REPRISE_TRY(context.backend->PackMatrix(packed.get(), 0,
                                          reinterpret_cast<const std::byte*>(values.data()),
                                          size_t(cols) * sizeof(float)));
  *out = Matrix(std::move(packed));
  return OkStatus();
}

void Linear(const OpContext& context, const ConstRows& x, const Matrix& weight, const Vector& bias,
            const Rows& out) {
  const Projection projection[] = {{&weight, out, bias.data()}};
  Project(context, x, projection);
}

void DeclareLinear(TensorPlan* plan, const std::string& hf, const std::string& gguf, int64_t rows,
                   int64_t cols, Matrix* weight, Vector* bias) {
  plan->AddMatrix(plan->Global(hf + ".weight", gguf + ".weight"), rows, cols, weight);
  plan->AddVector(plan->Global(hf + ".bias", gguf + ".bias"), rows, bias);
}

void DeclareLayerNorm(TensorPlan* plan, const std::string& hf, const std::string& gguf, int64_t dim,
                      Vector* weight, Vector* bias) {
  plan->AddVector(plan->Global(hf + ".weight", gguf + ".weight"), dim, weight);
  plan->AddVector(plan->Global(hf + ".bias", gguf + ".bias"), dim, bias);
}

}  // namespace reprise
