// SPDX-License-Identifier: Apache-2.0
#include "cli/model_outline.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "model/family.h"
#include "model/load.h"
#include "model/tensor_plan.h"

namespace reprise::cli {
namespace {

// Bytes of an element of `tensor` in the file. A planned tensor that lies there in parts, or in a
// larger one, has the average of the file.
double ElementBytes(const Checkpoint& checkpoint, const PlannedTensor& tensor, double average) {
  const bool gguf = checkpoint.format() == CheckpointFormat::kGguf;
  const StoredTensor* stored = checkpoint.Find(gguf ? tensor.gguf : tensor.hf);
  if (stored == nullptr || stored->shape.elements() == 0) return average;
  return double(stored->bytes.size()) / double(stored->shape.elements());
}

void SetStep(const Checkpoint& checkpoint, FamilyModel* model, ModelOutline* outline) {
  double elements = 0;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    elements += double(tensor.shape.elements());
  }
  const bool empty = elements == 0;  // config.json alone: all elements weigh the same
  const double average = empty ? 1 : double(checkpoint.tensor_bytes()) / elements;
  TensorPlan plan(HfTensorPrefix(checkpoint));
  model->DeclareTensors(&plan);
  double bytes = 0, all = 0;
  for (const PlannedTensor& tensor : plan.tensors()) {
    all += double(tensor.element_count());
    if (!tensor.is_matrix() || tensor.role == TensorRole::kEmbedding) continue;
    bytes +=
        double(tensor.element_count()) * tensor.active * ElementBytes(checkpoint, tensor, average);
  }
  if (!empty) all = double(checkpoint.tensor_bytes());
  outline->step_bytes = empty ? 0 : uint64_t(bytes);
  outline->step_share = all > 0 ? std::min(1.0, bytes / all) : 1;
}

}  // namespace

Result<ModelOutline> ReadModelOutline(const Checkpoint& checkpoint, DType kv,
                                      int64_t context_tokens) {
  const bool gguf = checkpoint.format() == CheckpointFormat::kGguf;
  REPRISE_ASSIGN(const Family* family, FindFamily(gguf, checkpoint.architecture()));
  ConfigReader config(checkpoint);
  config.set_context_tokens(context_tokens);
  REPRISE_ASSIGN(const std::unique_ptr<FamilyModel> model, family->make(&config, kv));
  ModelOutline outline;
  outline.weight_bytes = checkpoint.tensor_bytes();
  SetStep(checkpoint, model.get(), &outline);
  outline.card = model->card();
  outline.card.family = family->name;
  REPRISE_ASSIGN(const MadeModel further,
                 MakeModel(checkpoint, {family, kv, context_tokens, /*mtp=*/true}));
  outline.with_mtp = further.model->card();
  return outline;
}

}  // namespace reprise::cli
