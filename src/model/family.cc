// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>

#include "model/adapter/adapter.h"
#include "weights/format/stored_tensor.h"

namespace reprise {
namespace {

std::string KnownNames() {
  std::string names;
  for (const Family* const* family = kFamilies; *family != nullptr; ++family) {
    if (!names.empty()) names += ", ";
    names += (*family)->name;
  }
  return names;
}

}  // namespace

void FamilyModel::Describe(const TensorPlan& plan, bool gguf,
                           std::span<const std::string_view> gguf_types) {
  auto adaptable = std::make_shared<AdaptableModel>();
  adaptable->tensors = plan.tensors();
  adaptable->gguf = gguf;
  adaptable->architectures.assign(gguf_types.begin(), gguf_types.end());
  adaptable->digest = card_.digest;
  for (size_t i = 0; i < adaptable->tensors.size(); ++i) {
    const PlannedTensor& tensor = adaptable->tensors[i];
    if (IsAdaptable(tensor)) weights_.emplace(tensor.matrix, i);
  }
  adaptable_ = std::move(adaptable);
}

Result<const Family*> FindFamily(bool gguf, std::string_view architecture) {
  for (const Family* const* family = kFamilies; *family != nullptr; ++family) {
    const auto types = gguf ? (*family)->gguf_types : (*family)->hf_types;
    if (std::find(types.begin(), types.end(), architecture) != types.end()) return *family;
  }
  if (architecture.empty()) {
    return InvalidArgument(std::string("the model does not say what it is (no ") +
                           (gguf ? "general.architecture" : "model_type") + ")");
  }
  std::string known;
  for (const Family* const* family = kFamilies; *family != nullptr; ++family) {
    for (const std::string_view type : gguf ? (*family)->gguf_types : (*family)->hf_types) {
      known += (known.empty() ? "" : ", ") + std::string(type);
    }
  }
  return Unimplemented("models of architecture " + Quoted(architecture) +
                       " are not supported (known families: " + known + ")");
}

Result<const Family*> FindFamilyByName(std::string_view name) {
  for (const Family* const* family = kFamilies; *family != nullptr; ++family) {
    if ((*family)->name == name) return *family;
  }
  return NotFound("there is no family " + Quoted(name) + " (known: " + KnownNames() + ")");
}

}  // namespace reprise
