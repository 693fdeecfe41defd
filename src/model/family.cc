// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model/adapter/adapter.h"
#include "model/load.h"
#include "model/planned_source.h"
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

// What stands before all names of a block of which this is the first: that of a norm.
std::string BlockOf(const std::string& name) {
  for (const std::string_view norm : {"pre_fc_norm_embedding.weight", "enorm.weight"}) {
    if (name.ends_with(norm)) return name.substr(0, name.size() - norm.size());
  }
  return name;
}

bool IsCopy(const StoredTensor& one, const StoredTensor* other) {
  return other != nullptr && one.dtype == other->dtype && one.shape == other->shape &&
         one.recipe == nullptr && other->recipe == nullptr &&
         one.bytes.size() == other->bytes.size() &&
         std::memcmp(one.bytes.data(), other->bytes.data(), one.bytes.size()) == 0;
}

// Why the checkpoint does not have the block that predicts further tokens that the model declares,
// or has one that is not known; empty: it does. A tensor of another shape is there: it is refused
// where it is read.
std::string AbsenceOfMtp(const Checkpoint& checkpoint, FamilyModel* model) {
  TensorPlan plan(HfTensorPrefix(checkpoint));
  model->DeclareTensors(&plan);
  const bool gguf = checkpoint.format() == CheckpointFormat::kGguf;
  std::string block, embedding, head;
  for (const PlannedTensor& tensor : plan.tensors()) {
    const std::string& name = gguf ? tensor.gguf : tensor.hf;
    const bool both = tensor.role == TensorRole::kEmbeddingAndHead;
    if (both || tensor.role == TensorRole::kHead) head = name;
    // A further table of another kind (gemma4) comes behind the vocabulary's.
    if (embedding.empty() && (both || tensor.role == TensorRole::kEmbedding)) embedding = name;
    if (!tensor.mtp) continue;
    const auto source = PlannedSource::Find(checkpoint, tensor);
    if (!source.ok() && source.status().code() == StatusCode::kNotFound) {
      return "the block that predicts further tokens is not whole: " + source.status().message();
    }
    if (block.empty()) block = gguf ? name.substr(0, name.find("nextn.") + 6) : BlockOf(name);
  }
  // Some files have a copy of the vocabulary in the block.
  for (const auto& [own, models] : {std::pair{"embed_tokens.weight", &embedding},
                                    {"shared_head_head.weight", &head},
                                    {"shared_head.head.weight", &head},
                                    {"lm_head.weight", &head}}) {
    const StoredTensor* found = checkpoint.Find(block + own);
    if (found == nullptr || IsCopy(*found, checkpoint.Find(*models))) continue;
    return "the block that predicts further tokens has a vocabulary of its own, " +
           Quoted(block + own) + ", which is not supported";
  }
  return "";
}

Result<MadeModel> MakeOnce(const Checkpoint& checkpoint, const MakeRequest& request) {
  auto config = std::make_unique<ConfigReader>(checkpoint);
  config->set_context_tokens(request.context_tokens);
  config->set_mtp(request.mtp);
  if (request.mtp_file != nullptr) config->set_mtp_beside();
  REPRISE_ASSIGN(auto model, request.family->make(config.get(), request.kv));
  return MadeModel{std::move(model), std::move(config), nullptr};
}

}  // namespace

Result<MadeModel> MakeModel(const Checkpoint& checkpoint, const MakeRequest& request) {
  MakeRequest next = request;
  next.mtp_file = nullptr;
  REPRISE_ASSIGN(MadeModel made, MakeOnce(checkpoint, next));
  if (!request.mtp) return made;
  std::string absent = "the model has no block that predicts further tokens";
  const bool declared = made.model->card().mtp_state.has_value();
  for (const Checkpoint* from : {&checkpoint, request.mtp_file}) {
    if (from == nullptr || (from == &checkpoint && !declared)) continue;
    next.mtp = true;
    next.mtp_file = from == &checkpoint ? nullptr : from;
    REPRISE_ASSIGN(made, MakeOnce(checkpoint, next));
    if (!made.model->card().mtp_state) break;  // a family without
    absent = AbsenceOfMtp(*from, made.model.get());
    // What was declared points into that model: it is used up.
    if (!absent.empty()) continue;
    REPRISE_ASSIGN(made, MakeOnce(checkpoint, next));
    made.mtp = from;
    return made;
  }
  next.mtp = false;
  next.mtp_file = nullptr;
  REPRISE_ASSIGN(made, MakeOnce(checkpoint, next));
  made.model->mutable_card()->mtp_absent = absent;
  made.model->mutable_card()->mtp_declared = declared || request.mtp_file != nullptr;
  return made;
}

void FamilyModel::Describe(const TensorPlan& plan, bool gguf,
                           std::span<const std::string_view> gguf_types) {
  auto adaptable = std::make_shared<AdaptableModel>();
  adaptable->tensors = plan.tensors();
  adaptable->gguf = gguf;
  adaptable->architectures.assign(gguf_types.begin(), gguf_types.end());
  adaptable->digest = card_.digest;
  adaptable->placement = placement_;
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
